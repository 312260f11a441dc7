"""Deadlines: which can be kept, and how few GPUs keep them."""
