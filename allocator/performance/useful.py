"""The useful share of time: the part of a speed that remains after lost GPUs and checkpoints."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.modes import choose_modes, mode_share

# smallest share, because work and money are divided by it
LEAST = 1e-9


def useful_share(problem: Problem, job: Ints, pool: Ints, gpus: Ints, rate: Floats) -> Floats:
    """Return phi of n options, (n,): the expected share of the speed that remains.

    Revocations and the writing of checkpoints take the rest. The inputs are
    the hazard and lifetime_s of the pool, startup_s and restart_s as the time to
    replace a worker, and the job's checkpoints (without them: the best interval); see
    formulations/transient/lifetimes.py. rate (n,) is the work per second without losses. It
    determines how many lifetimes of new servers the rest of the job takes. The result is at least
    LEAST.
    """
    jobs = problem.jobs
    pools = problem.pools
    out = np.ones(len(job))
    saves = (jobs.checkpoint_s > 0) & ~np.isnan(jobs.checkpoint_every_s)
    if not (pools.is_lossy.any() or saves.any()):
        return out
    at = np.flatnonzero(pools.is_lossy[pool] | saves[job])
    job, pool, gpus = job[at], pool[at], gpus[at]
    work_s = jobs.remaining_work[job] / np.maximum(rate[at], 1e-300)
    chosen = choose_modes(problem, job, pool, gpus)
    for k in np.unique(chosen.which).tolist():
        rows = np.flatnonzero(chosen.which == k)
        out[at[rows]] = mode_share(
            problem, chosen.modes[k], job[rows], pool[rows], gpus[rows], work_s[rows]
        )
    return np.maximum(out, LEAST)
