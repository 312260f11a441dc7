"""A trace to simulate: every job ever submitted, and what the cluster does by itself (contract
section 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.domain.problem import Changes, Problem

__all__ = ["Changes", "Workload"]


@dataclass(frozen=True)
class Workload:
    """problem: all jobs by time of submission, each queued with its total work left; pools as they
    are at the start, problem.now_s. changes: what happens to the pools after that."""

    problem: Problem
    changes: Changes
