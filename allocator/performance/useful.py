"""The useful share of time: the part of a speed that remains after lost GPUs and checkpoints."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.performance.modes import choose_modes, find_alike, mode_share

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
    if len(at):
        j = job[at]
        p = pool[at]
        work_s = jobs.remaining_work[j] / np.maximum(rate[at], 1e-300)
        first = np.arange(len(at))
        same = np.arange(len(at))
        ends = (pools.market == Market.SPOT) & np.isfinite(pools.lifetime_s)
        if not (ends | pools.is_ageing)[p].any():  # the work that is left makes no difference
            first, same = find_alike(problem, j, p, gpus[at])
        share = _share(problem, j[first], p[first], gpus[at[first]], work_s[first])
        out[at] = share[same]
    return np.maximum(out, LEAST)


def _share(problem: Problem, job: Ints, pool: Ints, gpus: Ints, work_s: Floats) -> Floats:
    """Return phi of n options in their modes, (n,)."""
    out = np.ones(len(job))
    chosen = choose_modes(problem, job, pool, gpus)
    for k in np.unique(chosen.which).tolist():
        mine = np.flatnonzero(chosen.which == k)
        out[mine] = mode_share(
            problem, chosen.modes[k], job[mine], pool[mine], gpus[mine], work_s[mine]
        )
    return out
