"""Readers of what a site records itself; all of them make the records that sacct prints."""
