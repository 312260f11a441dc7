"""Solvers in worker processes that can be killed from outside."""
