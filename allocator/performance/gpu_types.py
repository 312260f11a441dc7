"""The GPU types that a job may use, and the slowest of them."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.performance.table import RateTable


def allowed_types(problem: Problem) -> Bools:
    """Return the GPU types that each job may use, (J, T)."""
    # code -1 selects the last row: any type
    sets = np.vstack([*problem.type_sets, np.ones(len(problem.gpu_types), bool)])
    allowed: Bools = sets[problem.jobs.gpu_types]
    return allowed


def slowest_rate(problem: Problem, gpus: Ints) -> Floats:
    """Return the rate of each job at so many GPUs on its slowest allowed type of the pools, (J,).

    It is nan for a job that has no rate on any of them.
    """
    table, pools, types = RateTable.of(problem), problem.pools, allowed_types(problem)
    out = np.full(len(problem.jobs), np.nan)
    for t in np.unique(pools.gpu_type):
        # the maximum is nan if any memory is unknown
        memory_gb = pools.memory_gb[pools.gpu_type == t].max()
        rate, _ = table.rate(problem.jobs.model, np.full(len(gpus), t), gpus, memory_gb)
        out = np.where(types[:, t] & (rate > 0), np.fmin(out, rate), out)
    return out
