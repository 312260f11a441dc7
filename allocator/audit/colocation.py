"""Two jobs on the same GPUs, checked pair by pair: is it allowed, do they fit, how fast are they?

A way to run a job at a model, GPU type and size is a row of rates.csv with memory_gb; where no row
exists, the usual speed with memory_gb of the job. A pair may use any two ways that fit the GPU
together. Its speeds are those of the ways divided by the slowdowns of sharing.csv. The plan names
the rows that say which ways it uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from allocator.domain.problem import Isolation, Problem
from allocator.performance.colocated_speed import can_pair
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.table import RateTable

# row of rates.csv (-1 = none), work per second alone, GB of each GPU
Way = tuple[int, float, float]


@dataclass(frozen=True)
class PairChecker:
    """Checks pairs of jobs of one problem; it keeps the speeds and slowdowns."""

    problem: Problem
    table: RateTable
    known: MeasuredSlowdowns
    _ways: dict[tuple[int, float, int, int], list[Way]] = field(default_factory=dict)
    _slow: dict[tuple[int, int, int, int], tuple[float, float]] = field(default_factory=dict)

    def ways(self, job: int, pool: int, gpus: int) -> list[Way]:
        """List the ways of the job there whose memory is known."""
        jobs = self.problem.jobs
        place = int(jobs.model[job]), float(jobs.memory_gb[job]), pool, gpus
        if place not in self._ways:
            self._ways[place] = self._list_ways(job, pool, gpus)
        return self._ways[place]

    def _list_ways(self, job: int, pool: int, gpus: int) -> list[Way]:
        jobs, rates, kind = self.problem.jobs, self.problem.rates, self.problem.pools.gpu_type[pool]
        here = np.flatnonzero(
            (rates.model == jobs.model[job])
            & (rates.gpu_type == kind)
            & (rates.gpus == gpus)
            & (rates.memory_gb > 0)
            & (rates.rate > 0)
        )
        if len(here):
            rate = rates.over(here, self.problem.pools.link_gb_s[pool])
            return list(
                zip(here.tolist(), rate.tolist(), rates.memory_gb[here].tolist(), strict=True)
            )
        rate, row = self.table.rate_in_pools(
            self.problem.pools, jobs.model[[job]], np.array([pool]), np.array([gpus])
        )
        known = rate[0] > 0 and jobs.memory_gb[job] > 0
        return [(int(row[0]), float(rate[0]), float(jobs.memory_gb[job]))] if known else []

    def slowdowns(self, a: int, b: int, pool: int, gpus: int) -> tuple[float, float]:
        """Return the slowdowns of job a next to job b, and of b next to a; nan where unknown."""
        model, kind = self.problem.jobs.model, self.problem.pools.gpu_type[[pool]]
        both = int(model[a]), int(model[b]), int(kind[0]), gpus
        if both not in self._slow:
            slow = self.known.slowdown(model[[a]], model[[b]], kind, np.array([gpus]))
            self._slow[both] = float(slow[0][0]), float(slow[1][0])
        one, other = self._slow[both]
        free, most = self.problem.jobs.best_effort, float(self.problem.pools.isolation[pool])
        if free[b] and not free[a]:
            return self._isolate(one, other, most)
        if free[a] and not free[b]:
            return self._isolate(other, one, most)[::-1]
        return one, other

    def _isolate(self, guaranteed: float, best_effort: float, most: float) -> tuple[float, float]:
        """Return the slowdowns of the two where the first has `most` at most, at their speed."""
        if not guaranteed > most:
            return guaranteed, best_effort
        left = 1 / best_effort - (1 / most - 1 / guaranteed)
        return most, 1 / left if left > 0 else np.nan

    def allows_sharing(self, a: int, b: int, pool: int) -> bool:
        """Return whether the pool lets job b run on the GPUs of job a."""
        tenant, rule = self.problem.jobs.tenant, self.problem.pools.sharing[pool]
        if not can_pair(self.problem, np.array([a, b]), np.array([pool, pool])).all():
            return False
        if rule == Isolation.BEST_EFFORT:
            return bool(self.problem.jobs.best_effort[b])
        return bool(rule == Isolation.ANY or (rule == Isolation.TENANT and tenant[a] == tenant[b]))

    def can_share(self, a: int, b: int, pool: int, gpus: int, gpus_b: int) -> bool:
        """Return whether the two jobs could share the GPUs of job a there in any two ways."""
        gpu_memory_gb = float(self.problem.pools.memory_gb[pool]) * (1 + 1e-9)
        sizes = ((a, gpus), (b, gpus_b))
        needs = [[way[2] for way in self.ways(j, pool, k)] for j, k in sizes]
        fits = any(x + y <= gpu_memory_gb for x in needs[0] for y in needs[1])
        return (
            fits
            and self.allows_sharing(a, b, pool)
            and not np.isnan(self.slowdowns(a, b, pool, gpus)).any()
        )

    def speeds(
        self, jobs: tuple[int, int], rows: tuple[int, int], pool: int, gpus: int, gpus_b: int
    ) -> tuple[float, float]:
        """Return the work per second of the two jobs next to each other in the ways of these rows.

        They share the GPUs of the first. It is nan where a row is no way of its job.
        """
        alone = [
            next((w[1] for w in self.ways(j, pool, k) if w[0] == row), np.nan)
            for j, row, k in zip(jobs, rows, (gpus, gpus_b), strict=True)
        ]
        slow = self.slowdowns(*jobs, pool, gpus)
        return alone[0] / slow[0], alone[1] / slow[1]
