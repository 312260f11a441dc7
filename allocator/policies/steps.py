"""Steps that rule-based policies share: order of service, ranking of options, and repairs.

Every baseline serves jobs that may not move first, then jobs of tenants below their guarantee, then
all others. A plan that breaks a guarantee or the limit on changes in the end is repaired.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.fallback import find_fallback_plan
from allocator.policies.free_capacity import FreeCapacity, keeps_rules
from formulations.model.linear import Bools, Floats, Ints
from formulations.primal.rounding import repair

OptionRanking = list[list[int]]
"""The options of each job, best first."""


def rank_options(
    round_: CompiledRound, preferred: Ints, *keys: Ints | Floats | Bools
) -> OptionRanking:
    """Rank the options `preferred` (k,) of each job by the keys, (k,) each, smallest first.

    Ties go to the pool that the job runs in, then to the faster option, then to the earlier pool.
    """
    pool = round_.instance.pool[preferred]
    away = pool != round_.problem.jobs.pool[round_.instance.job[preferred]]
    order = np.lexsort((pool, -option_rates(round_)[preferred], away, *keys[::-1]))
    return group_options(round_, preferred[order])


def group_options(round_: CompiledRound, ranked: Ints) -> OptionRanking:
    """Return ranked options (k,), the best first, by their jobs."""
    job = round_.instance.job[ranked]
    order = np.argsort(job, kind="stable")
    start = np.searchsorted(job[order], np.arange(len(round_.problem.jobs) + 1))
    option = ranked[order].tolist()
    return [option[a:b] for a, b in pairwise(start.tolist())]


def option_rates(round_: CompiledRound) -> Floats:
    """Return the work per second of every option of the instance, (n,)."""
    return round_.option_table.rate[round_.option]


def order_by_submission(round_: CompiledRound) -> Ints:
    """Return the jobs by time of submission, (J,), in file order where equal."""
    return np.argsort(round_.problem.jobs.submitted_s, kind="stable")


def options_at_requested_size(round_: CompiledRound) -> Ints:
    """Return the options at the requested size, (k,), at most one per job and pool.

    The size is that of a job's sizes which is nearest to requested_gpus, the smaller of two equally
    near ones (as in the objective `throughput`).
    """
    i = round_.instance
    asked = round_.problem.jobs.requested_gpus[i.job]
    return np.flatnonzero(is_least_of_job(i.start, 2 * np.abs(i.gpus - asked) + (i.gpus > asked)))


def is_least_of_job(start: Ints, key: Ints) -> Bools:
    """Return the options whose key (n,) is the smallest of their job, (n,)."""
    filled = np.flatnonzero(np.diff(start) > 0)
    if not len(filled):
        return np.zeros(0, dtype=bool)
    smallest = np.minimum.reduceat(key, start[filled])
    return np.asarray(key == np.repeat(smallest, np.diff(start)[filled]))


def serve(
    free_capacity: FreeCapacity, order: Ints, preferred: OptionRanking, grows: bool = True
) -> None:
    """Give jobs the first of their preferred options that fits, in the order (J,) in each class.

    The classes are those of the module. The other parameters are those of `serve_first`.
    """
    now = free_capacity.choice.data
    for j in serve_first(free_capacity, order, preferred, grows):
        if now[j] >= 0 or not free_capacity.is_full:
            free_capacity.assign_first(j, preferred[j])


def serve_first(
    free_capacity: FreeCapacity, order: Ints, preferred: OptionRanking, grows: bool = True
) -> list[int]:
    """Serve the pinned jobs, then those of tenants below their guarantee until it is met.

    Return the other jobs, in the order. With `grows`, jobs of such tenants then get more than they
    prefer if that is not enough, in their pool and in the same order.
    """
    round_ = free_capacity.round
    i = round_.instance
    serve_pinned(free_capacity, order)
    order = order[~free_capacity.pinned[order]]
    served = set()
    now = free_capacity.choice.data
    entitled = order[np.isin(order, i.job[i.is_guaranteed])].tolist()
    for j in entitled:
        owed = [o for o in preferred[j] if free_capacity.owes(o)] if now[j] < 0 else []
        if owed:
            free_capacity.assign_first(j, owed)
            served.add(j)
    for j in entitled if grows else ():
        while (
            now[j] >= 0
            and free_capacity.owes(now[j])
            and (o := next_larger_option(round_, now[j])) >= 0
            and free_capacity.assign(j, o)
        ):
            pass
    return [j for j in order.tolist() if j not in served]


def serve_pinned(free_capacity: FreeCapacity, order: Ints) -> None:
    """Let the pinned jobs keep what they hold, with the primary jobs of their pairs first."""
    round_, pinned = free_capacity.round, free_capacity.pinned
    unchanged_choice = round_.unchanged_choice()
    secondary, primary = round_.instance.colocations
    needed = round_.instance.job[primary[np.isin(secondary, unchanged_choice[pinned])]]
    for jobs in (np.isin(order, needed), pinned[order]):
        for j in order[jobs].tolist():
            free_capacity.assign(j, int(unchanged_choice[j]))


def next_larger_option(round_: CompiledRound, o: int) -> int:
    """Return the option with the next larger size of the same job and pool, -1 without one."""
    # options lie job by job, then by pool and size, those of secondary jobs last
    i = round_.instance
    for larger in range(o + 1, int(i.start[i.job[o] + 1])):
        if i.pool[larger] != i.pool[o] or i.primary[larger] >= 0:
            break
        if i.gpus[larger] > i.gpus[o]:
            return larger
    return -1


Steps = Callable[[FreeCapacity], None]


def replan(task: Task, order: Ints, steps: Steps, pinned: Bools | None = None) -> Proposal:
    """Plan from nothing by steps, for policies that preempt; jobs `pinned` (J,) stay as they are.

    If that changes more running jobs than max_changes allows, the first jobs in the order (J,) are
    pinned, as many as needed, with all that the plan keeps anyway, and the steps plan around them.
    So at most max_changes jobs change, the last of the order first. Errors are those of
    `run_steps`.
    """
    i = task.round.instance
    if i.least_kept > 0:
        trial = FreeCapacity(task.round, pinned=pinned)
        steps(trial)
        unchanged_choice = task.round.unchanged_choice()
        kept = (unchanged_choice >= 0) & (trial.choice == unchanged_choice)
        could = order[(unchanged_choice[order] >= 0) & ~kept[order]]
        missing = i.least_kept - int(kept.sum())
        if missing > 0:
            pinned = trial.pinned | kept
            pinned[could[:missing]] = True
    return run_steps(task, steps, pinned=pinned)


def run_steps(
    task: Task,
    steps: Steps,
    start: Ints | None = None,
    guaranteed: bool = True,
    pinned: Bools | None = None,
) -> Proposal:
    """Run the steps from the start (None: from nothing), and repair the plan if it breaks a rule.

    The repair has the least loss of value (formulations/primal/rounding.py); then the steps run
    again for what is left. A start that breaks a rule is repaired first, unless guaranteed=False
    and only guarantees are short. Raises Infeasible or NoPlanInTime (policies/fallback.py) if no
    plan is found.
    """
    round_ = task.round
    if start is not None and not keeps_rules(round_, start, guaranteed):
        start = repair(task.choices, start, task.dual.prices)
    free_capacity = FreeCapacity(round_, start, pinned)
    steps(free_capacity)
    if keeps_rules(round_, free_capacity.choice):
        return Proposal(free_capacity.choice)
    repaired = repair(task.choices, free_capacity.choice, task.dual.prices)
    if repaired is None:
        return find_fallback_plan(task)
    free_capacity = FreeCapacity(round_, repaired, pinned)
    steps(free_capacity)
    choice = free_capacity.choice if keeps_rules(round_, free_capacity.choice) else repaired
    return Proposal(
        choice,
        detail="guarantees or the limit on changes made the policy deviate from its own plan",
    )
