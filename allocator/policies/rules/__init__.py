"""Policies that serve jobs by a rule, without a solver."""
