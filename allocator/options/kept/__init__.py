"""GPUs that are kept: for interactive jobs, and for a large job that waits."""
