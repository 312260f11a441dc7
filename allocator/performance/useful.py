"""The useful share of time: the part of a speed that remains after lost GPUs and checkpoints."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.performance.modes import choose_modes, find_alike, mode_share

# smallest share, because work and money are divided by it
LEAST = 1e-9
KEPT = 16  # the number of results that are kept, the latest ones
# Columns of jobs and of pools that determine the useful share phi of an option, together with its
# number of GPUs, in pools where the work left does not matter.
JOB_FACTS = ("modes", "synchronous", "checkpoint_s", "checkpoint_every_s", "restart_s")
POOL_FACTS = ("market", "startup_s", "straggler_cv", "revocations_per_gpu_hour")


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
        ends = (pools.market == Market.SPOT) & np.isfinite(pools.lifetime_s)
        if (ends | pools.is_ageing)[p].any():
            out[at] = _share(problem, j, p, gpus[at], work_s)
        else:  # the work that is left makes no difference
            first, same = find_alike(problem, j, p, gpus[at])
            out[at] = _lasting_share(problem, j[first], p[first], gpus[at[first]])[same]
    return np.maximum(out, LEAST)


def _lasting_share(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return phi of n options in their modes, (n,), where it does not depend on the work left.

    The same options come again and again within a round and from round to round, so the latest
    results are kept.
    """
    jobs = problem.jobs
    pools = problem.pools
    key = (
        problem.mode_sets,
        *(getattr(jobs, name)[job].tobytes() for name in JOB_FACTS),
        *(getattr(pools, name).tobytes() for name in POOL_FACTS),
        pools.hazard_by_age,
        pool.tobytes(),
        gpus.tobytes(),
    )
    found = _shares.pop(key, None)
    if found is None:
        found = _share(problem, job, pool, gpus, np.full(len(job), np.inf))
    _shares[key] = found  # the latest one comes last
    for old in list(_shares)[:-KEPT]:
        _shares.pop(old, None)
    return found


_shares: dict[tuple[object, ...], Floats] = {}


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
