"""The useful share of time on GPUs that may be taken back."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from formulations.transient import useful_fraction


def useful(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """(n,) phi of n options: expected share of the work that revocations leave, 1 outside spot pools.

    From revocations_per_gpu_hour and lifetime_s of the pool, startup_s and restart_s as the time to replace a worker,
    and the job's checkpoints (none given: the best interval); formulations/transient.py.
    """
    jobs, pools = problem.jobs, problem.pools
    out = np.ones(len(job))
    at_risk = (pools.market == Market.SPOT) & ((pools.revocations_per_gpu_hour > 0) | np.isfinite(pools.lifetime_s))
    at = np.flatnonzero(at_risk[pool]) if len(pools) else np.zeros(0, dtype=np.int64)
    if len(at):
        j, p = job[at], pool[at]
        out[at] = useful_fraction(
            gpus[at].astype(np.float64), pools.revocations_per_gpu_hour[p], checkpoint_s=jobs.checkpoint_s[j],
            checkpoint_every_s=jobs.checkpoint_every_s[j], replace_s=pools.startup_s[p] + jobs.restart_s[j],
            lifetime_s=pools.lifetime_s[p], synchronous=jobs.synchronous[j])
    return out
