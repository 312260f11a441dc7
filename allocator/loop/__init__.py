"""The rolling horizon: observe, decide, audit, apply, on any cluster behind the ports."""
