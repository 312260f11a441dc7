"""The options of every job, and the way from a Problem to arrays and back."""
