"""Decide beside a live cluster without touching it, and say what that would have changed."""
