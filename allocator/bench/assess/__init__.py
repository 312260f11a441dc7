"""Assess what this allocator would do for a site, from the record of its past (docs/traces.md)."""
