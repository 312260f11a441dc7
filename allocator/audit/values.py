"""The values of a plan, by the definition of the objective (formulations/objectives).

Options, speeds, pauses and pairs are the audit's own reading of the problem.
"""

from __future__ import annotations

import numpy as np

from allocator.audit.context import AuditContext
from allocator.audit.pauses import restart_s
from allocator.domain.problem import Bools, Floats, Ints
from allocator.valuation import Offer, bound_rounding, build_context, option_values
from allocator.valuation.exploring import gpus_to_explore, reward_exploring


def plan_values(s: AuditContext, rate: Floats) -> tuple[Floats, float]:
    """Return the values (J,) of the plan, and how much rounding may change their sum.

    A job that gets nothing has the value 0.

    Parameters
    ----------
    s : AuditContext
        The plan and the problem, as the audit reads them.
    rate : (J,)
        Work per second of each job under the plan, 0 where it is not known.
    """
    value = np.zeros(len(s.problem.jobs))
    problem = s.problem
    j = np.flatnonzero(s.has_gpus & (rate > 0))
    if not len(j):
        return value, 0.0
    given = _offer(s, j, s.pool[j], s.gpus[j], rate[j], s.is_kept[j])
    pays = s.held[j] / s.gpus[j]
    plan = build_context(problem, given, lambda: _every(s), pays)
    value[j] = option_values(problem, plan)
    if gpus_to_explore(problem) > 0:
        every = plan.everything.offer
        alone = option_values(problem, plan.everything.for_offer(every))
        value += _exploring_rewards(s, every, reward_exploring(problem, every, alone))
    return value, bound_rounding(problem, plan, j)


def _every(s: AuditContext) -> Offer:
    """Return all options of all jobs."""
    return _offer(s, *s.options(), s.is_held_option)


def _offer(s: AuditContext, job: Ints, pool: Ints, gpus: Ints, rate: Floats, keep: Bools) -> Offer:
    """Return options (n,) in the order of their jobs, with the pause that each of them costs.

    An option that a job keeps (`keep`) costs no pause.
    """
    startup = s.problem.pools.startup_s[pool]
    pause = startup + np.where(s.running[job], restart_s(s, job, pool, gpus), 0.0)
    start = np.searchsorted(job, np.arange(len(s.problem.jobs) + 1))
    return Offer(start, job, pool, gpus, rate, np.where(keep, 0.0, pause), keep)


def _exploring_rewards(s: AuditContext, every: Offer, more: Floats) -> Floats:
    """Return the reward of each job for trying a size whose speed is not known well, (J,).

    `more` (n,) is the reward of each option in `every`. A job that shares GPUs gets no reward: its
    speed does not show how fast it is alone.
    """
    given = (s.has_gpus & ~s.is_colocated)[every.job]
    given &= (s.pool[every.job] == every.pool) & (s.gpus[every.job] == every.gpus)
    out = np.zeros(len(s.has_gpus))
    out[every.job[given]] = more[given]
    return out
