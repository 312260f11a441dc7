"""What a controller tells: journal, status, telemetry, preview, replay."""
