"""GPUs that are kept: for interactive jobs, for a large job that waits, and as somebody asked."""
