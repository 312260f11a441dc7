"""Two jobs on the same GPUs in the simulated cluster: how fast a job runs in its company. Who stays
where: control/places.py."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.beside import beside
from allocator.performance.interference import Measured
from allocator.performance.table import RateTable

Slowdowns = Measured


def believed(
    problem: Problem,
    slowdowns: Slowdowns,
    jobs: Ints,
    pool: Ints,
    gpus: Ints,
    host: Ints,
    mate: Ints,
) -> Floats:
    """(n,) work per second of the jobs (n,) on so many GPUs, beside their mates where they have one
    (-1 = none). host (n,): whose guest each is, -1 = it holds the GPUs itself."""
    pools = problem.pools
    rate, _ = RateTable.of(problem).rate(
        problem.jobs.model[jobs], pools.gpu_type[pool], gpus, pools.memory_gb[pool]
    )
    both = np.flatnonzero(mate >= 0)
    if len(both):
        guest = host[both] >= 0
        found = beside(
            problem,
            np.where(guest, mate[both], jobs[both]),
            np.where(guest, jobs[both], mate[both]),
            pool[both],
            gpus[both],
            slowdowns,
        )
        rate[both] = np.where(guest, found.rate_guest, found.rate_host)
    return rate
