"""Check a plan against every hard rule and value it.

The rules are read independently of allocator/options, so that a mistake there does not hide itself
here. What jobs could hold instead, on which guarantees and some objectives depend, is an argument.
Speeds, pauses, prices and values come from their one definition. The tests hold a second account of
all of them (tests/support/values).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.audit import all_jobs, each_job, kept
from allocator.audit.context import AuditContext
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Floats, Problem
from allocator.performance.lost_time import restart_s
from allocator.valuation import Offer, bound_rounding, build_context, option_values
from allocator.valuation.exploring import gpus_to_explore, reward_exploring
from allocator.valuation.prices import way_memory_gb


@dataclass(frozen=True, repr=False)
class Audit:
    """State what an independent check found out about a plan.

    Attributes
    ----------
    faults : tuple of str
        Sentences that name object, value and rule; empty: the plan is legal.
    value, rate, cost : ndarray of float, shape (jobs,)
        Value in the objective, work per second, US dollars per hour; 0 for jobs that get nothing.
    objective_value : float
        Sum of `value`.
    rounding : float
        What rounding may do to it.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.audit(problem, allocator.solve(problem))
    Audit(faults=0, objective_value=7.14)
    """

    faults: tuple[str, ...]
    value: Floats
    rate: Floats
    cost: Floats
    objective_value: float
    rounding: float = 0.0

    def __repr__(self) -> str:
        """Summarise the audit on one line."""
        return f"Audit(faults={len(self.faults)}, objective_value={self.objective_value:.6g})"


def audit(problem: Problem, allocation: Allocation, repairs: Repairs, every: Offer) -> Audit:
    """Check every hard rule (docs/reference/rules.md), and compute values, rates and costs again.

    Parameters
    ----------
    every : Offer
        All ways of the jobs to hold GPUs alone, without values.
    """
    context = AuditContext(problem, allocation, repairs, every)
    shape = tuple(_shape_faults(problem, allocation, repairs))
    if shape:
        nothing = np.zeros(len(problem.jobs))
        return Audit(shape, nothing, nothing, nothing, 0.0)
    cost = _costs(context)
    rate = np.where(context.rate > 0, context.rate, 0.0)
    faults = (
        *each_job.faults(context),
        *all_jobs.faults(context, cost),
        *kept.faults(context),
        *context.nodes.faults(context.has_gpus, context.pool, context.gpus, context.is_secondary),
    )
    # a job without any option cannot be valued; a plan that gives it GPUs has a fault
    has_options = np.bincount(every.job, minlength=len(rate)) > 0
    known = np.where(has_options, rate, 0.0) if faults else rate
    value, rounding = plan_values(context, known)
    return Audit(faults, value, rate, cost, float(value.sum()), rounding)


def _costs(s: AuditContext) -> Floats:
    """Return the US dollars per hour of what the plan gives each job, (J,)."""
    pools = s.problem.pools
    cost = np.zeros(len(s.has_gpus))
    on = np.flatnonzero(s.has_gpus)
    held, pool = s.held[on], s.pool[on]
    memory_gb = way_memory_gb(s.problem, on, pool, s.gpus[on])
    cost[on] = held * pools.price_per_gpu_hour[pool]
    cost[on] += held * pools.price_per_gb_hour[pool] * memory_gb
    return cost


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


def _shape_faults(problem: Problem, a: Allocation, repairs: Repairs) -> Iterator[str]:
    jobs = len(problem.jobs)
    quotas = len(problem.tenants) + len(problem.quotas)
    for name, array, length in (
        ("allocation.pool", a.pool, jobs),
        ("allocation.gpus", a.gpus, jobs),
        ("allocation.row", a.row, jobs),
        ("allocation.primary", a.primary, jobs),
        ("repairs.released", repairs.released, jobs),
        ("repairs.usable", repairs.usable, quotas),
    ):
        if array.shape != (length,):
            yield f"{name} has shape {array.shape}, it should be ({length},)"
