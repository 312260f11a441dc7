"""Renting GPUs on a long-run budget."""
