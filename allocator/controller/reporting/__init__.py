"""Reports of a controller: journal, status, telemetry, preview and replay."""
