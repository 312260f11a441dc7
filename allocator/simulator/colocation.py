"""The believed rate of jobs in the simulated cluster, alone or colocated.

Which GPUs two jobs share after a plan is decided in loop/gpu_places.py.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.colocated_speed import colocated_speeds, speeds_with_several
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.modes import choose_modes
from allocator.performance.table import RateTable


def believed_rate(
    problem: Problem,
    slowdowns: MeasuredSlowdowns,
    jobs: Ints,
    model: Ints,
    pool: Ints,
    gpus: Ints,
    primary: Ints,
    colocated_job: Ints,
    nodes: Ints,
) -> Floats:
    """Return the work per second that the policy believes of jobs, alone or colocated.

    Parameters
    ----------
    jobs, model, pool, gpus : (n,)
        The jobs, and the model in its present phase, the pool and the number of GPUs of each.
    primary : (n,)
        The primary job on whose GPUs each job runs, -1 if it holds the GPUs itself.
    colocated_job : (n,)
        The other job on the same GPUs, -1 if there is none.
    nodes : (n,)
        On how many nodes the GPUs are, 0 = unknown.

    Returns
    -------
    (n,)
        Work per second.
    """
    pools = problem.pools
    rate, _ = RateTable.of(problem).rate_in_pools(pools, model, pool, gpus, nodes=nodes)
    rate *= choose_modes(problem, jobs, pool, gpus).pace
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


def rates_in_group(
    problem: Problem,
    slowdowns: MeasuredSlowdowns,
    secondary: int,
    primaries: Ints,
    pool: int,
    gpus: Ints,
) -> dict[int, float]:
    """Return the work per second of a secondary job and of all of its primary jobs.

    gpus (N,) are those that each job of the workload gets.
    """
    n = len(primaries)
    second, places = np.full(n, secondary), np.full(n, pool)
    found = speeds_with_several(
        problem,
        np.zeros(n, dtype=np.int64),
        primaries,
        second,
        places,
        gpus[primaries],
        gpus[second],
        slowdowns,
    )
    rates = dict(zip(primaries.tolist(), found.pairs.rate_primary.tolist(), strict=True))
    return rates | {secondary: float(found.rate[0])}
