"""The values of a plan, by the definition of the objective (formulations/objectives).

Speeds and pairs of the plan are the audit's own reading of the problem.
"""

from __future__ import annotations

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Floats
from allocator.performance.pauses import restart_s
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
    pool, gpus, kept = s.pool[j], s.gpus[j], s.is_kept[j]
    again_s = np.where(s.running[j], restart_s(problem, j, pool, gpus), 0.0)
    pause = np.where(kept, 0.0, problem.pools.startup_s[pool] + again_s)
    given = Offer(j, pool, gpus, rate[j], pause, kept)
    plan = build_context(problem, given, lambda: s.every, s.held[j] / gpus)
    value[j] = option_values(problem, plan)
    if gpus_to_explore(problem) > 0:
        alone = option_values(problem, plan.everything.for_offer(s.every))
        # a job that shares GPUs gets no reward: its speed does not show how fast it is alone
        every = s.every
        same = (s.has_gpus & ~s.is_colocated)[every.job]
        same &= (s.pool[every.job] == every.pool) & (s.gpus[every.job] == every.gpus)
        value[every.job[same]] += reward_exploring(problem, every, alone)[same]
    return value, bound_rounding(problem, plan, j)
