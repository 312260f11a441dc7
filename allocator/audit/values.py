"""The values of what a plan gives, by the definition of the objective (formulations/objectives).

Options, speeds, pauses and pairs are the audit's own reading of the problem.
"""

from __future__ import annotations

import numpy as np

from allocator.audit.context import AuditContext
from allocator.audit.pauses import restart_s
from allocator.domain.problem import Bools, Floats, Ints
from allocator.valuation import Offer, context_of, option_values, rounding
from allocator.valuation.exploring import bonus, gpus_to_explore


def plan_values(s: AuditContext, rate: Floats) -> tuple[Floats, float]:
    """Return the values (J,) of the plan, 0 where it gives nothing, and what rounding may do.

    Parameters
    ----------
    rate : (J,)
        Work per second, 0 where nothing is known.
    """
    value, jobs = np.zeros(len(s.problem.jobs)), s.problem.jobs
    job, pool, gpus, speed = s.options()
    holds = s.running[job] & (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
    every = _offer(s, job, pool, gpus, speed, holds)
    # what a job without any option gets is a fault
    j = np.flatnonzero(s.has_gpus & (rate > 0) & (np.diff(every.start) > 0))
    if not len(j):
        return value, 0.0
    whole = context_of(s.problem, s.table, every)
    plan = whole.of(_offer(s, j, s.pool[j], s.gpus[j], rate[j], s.is_kept[j]), ~s.is_secondary[j])
    value[j] = option_values(s.problem, plan)
    if gpus_to_explore(s.problem) > 0:
        more = bonus(s.problem, every, option_values(s.problem, whole.of(every)))
        value += _taught(s, every, more)
    return value, rounding(s.problem, whole, j)


def _offer(s: AuditContext, job: Ints, pool: Ints, gpus: Ints, rate: Floats, keep: Bools) -> Offer:
    """Options with the seconds that they lose. Ascending jobs."""
    startup = s.problem.pools.startup_s[pool]
    pause = startup + np.where(s.running[job], restart_s(s, job, pool, gpus), 0.0)
    start = np.searchsorted(job, np.arange(len(s.problem.jobs) + 1))
    return Offer(start, job, pool, gpus, rate, np.where(keep, 0.0, pause), keep)


def _taught(s: AuditContext, every: Offer, more: Floats) -> Floats:
    """(J,) the reward for exploring, (n,) by option, of what the plan gives.

    Two jobs on the same GPUs do not teach how fast one is.
    """
    given = (s.has_gpus & ~s.is_colocated)[every.job]
    given &= (s.pool[every.job] == every.pool) & (s.gpus[every.job] == every.gpus)
    out = np.zeros(len(s.has_gpus))
    out[every.job[given]] = more[given]
    return out
