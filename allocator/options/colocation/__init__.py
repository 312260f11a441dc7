"""Options in which two jobs run on the same GPUs."""
