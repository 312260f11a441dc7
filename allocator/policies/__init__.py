"""Policies: from a compiled round to one option per job, all behind one signature (base.Policy)."""
