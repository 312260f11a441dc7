"""Two jobs on the same GPUs in the simulated cluster: how fast a job runs with its colocated job.
Which one stays where: loop/gpu_places.py."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.table import RateTable

Slowdowns = MeasuredSlowdowns


def believed_rate(
    problem: Problem,
    slowdowns: Slowdowns,
    jobs: Ints,
    pool: Ints,
    gpus: Ints,
    primary: Ints,
    colocated_job: Ints,
) -> Floats:
    """Return work per second (n,) of the jobs (n,) on so many GPUs, with their colocated jobs where
    they have one (-1 = none). primary (n,): the job on whose GPUs each runs, -1 = it holds the GPUs
    itself."""
    pools = problem.pools
    rate, _ = RateTable.of(problem).rate(
        problem.jobs.model[jobs], pools.gpu_type[pool], gpus, pools.memory_gb[pool]
    )
    both = np.flatnonzero(colocated_job >= 0)
    if len(both):
        secondary = primary[both] >= 0
        found = colocated_speeds(
            problem,
            np.where(secondary, colocated_job[both], jobs[both]),
            np.where(secondary, jobs[both], colocated_job[both]),
            pool[both],
            gpus[both],
            slowdowns,
        )
        rate[both] = np.where(secondary, found.rate_secondary, found.rate_primary)
    return rate
