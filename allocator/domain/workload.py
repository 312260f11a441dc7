"""A trace to simulate: every job ever submitted, and what the cluster does by itself (contract section 7)."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.domain.problem import Floats, Ints, Problem


@dataclass(frozen=True)
class Changes:
    """Machines that come and go and prices that move, in order of time; arrays (C,).

    at_s: seconds on the clock of submitted_s. pool: index into Problem.pools. gpus: usable from then on, -1 = as
    before. price_per_gpu_hour: US dollars, nan = as before.
    """

    at_s: Floats
    pool: Ints
    gpus: Ints
    price_per_gpu_hour: Floats

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True)
class Workload:
    """problem: all jobs by time of submission, each queued with its total work left; pools as they are at the start,
    problem.now_s. changes: what happens to the pools after that."""

    problem: Problem
    changes: Changes
