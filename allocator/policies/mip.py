"""The policy `mip`: the best plan with its proof, whatever the solver does.

The solver starts from the best plan known without it; what it says is checked (fallback.py).

Stability: the solver is asked for a little less than half of the gap. Of the plans within the gap,
the one that changes nothing is preferred. A plan that was proven within gap/2 is therefore still
within the gap after it has been applied, because the value of what it holds only grew. So solving
again changes nothing. A plan proven from prices alone may use nearly the whole gap, because
applying it only improves its proof.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from allocator.options.instance_building import same_columns
from allocator.policies.base import Memory, Proposal, Task, relative_gap
from allocator.policies.conflict import raise_if_infeasible
from allocator.policies.fallback import EXACT, ask_solver
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.pairs import TIGHT, add_missing_pairs, add_near_pairs, tighten_bound
from formulations.bounds.lagrangian import excludes_every_plan
from formulations.colocation.rounding import round_pairs
from formulations.model.choices import Choices
from formulations.model.linear import Ints
from formulations.primal.block_plans import loses_in_blocks, round_blocks
from formulations.primal.closing import Report, close_gap
from formulations.primal.rounding import BEYOND, round_dual

PRICED = 0.9  # share of the gap that prices alone have to prove
BRIEF = 0.02  # share of the remaining time for rounding prices where blocks gave a plan
SOON = 0.2  # share of the remaining time for the first call of a solver
ASKED = 5_000  # most columns of jobs that may change in the model of the first call


def mip(task: Task) -> Proposal:
    """Solve the round's MIP from the best known start, and return the best verified plan.

    Raises Infeasible or NoPlanInTime (policies/fallback.py) if there is no plan to fall back on.
    """
    report = _reporter(task)
    given, task = task, add_missing_pairs(task)
    task, start = _find_start(task)
    if start is None and excludes_every_plan(task.choices, task.dual):
        raise_if_infeasible(task.round, task.remaining())
    if task.round.omitted_pairs is not None and not _is_proven(task, start):
        task, start = _search_longer(given, task, start)
    c, value = task.choices, -math.inf if start is None else task.choices.value_of(start)
    size = f"{c.J} jobs, {c.n} columns, {c.model.m} rows"
    report(f"prices and rounding of {size}", value, task.bound)
    if task.solver is not None or not _is_proven(task, start):
        task, start = add_near_pairs(task, start)
    proposal = None
    if task.solver is None and start is not None:
        task, start, answer = _close_gap(task, start, report)
        if answer is not None and answer.termination == "gap":
            proposal = answer
        elif _is_proven(task, start):
            bound = max(task.bound, task.choices.value_of(start))
            by, why = "lagrangian", "auto: proven from prices, none needed"
            if answer is not None:
                by, why = answer.bound_by if bound >= answer.bound else by, answer.solver_choice
            proposal = Proposal(start, bound, by, "gap", solver_choice=why)
    proposal = proposal or ask_solver(task, start)
    plan = _prefer_unchanged(task, proposal.choice, proposal.bound)
    return dataclasses.replace(proposal, choice=plan, task=task)


def _prefer_unchanged(task: Task, plan: Ints, bound: float) -> Ints:
    """Return the plan, or the choice that changes nothing if the bound proves its gap.

    Jobs that can start beside what is unchanged do so. A job may be worth less than the gap. It
    does not wait next to free GPUs for that.
    """
    i, unchanged = task.round.instance, task.round.unchanged_choice()
    gap = relative_gap(bound, task.choices.value_of(unchanged))
    if gap > max(task.limits.gap, EXACT) or not task.choices.feasible(unchanged):
        return plan
    able = np.flatnonzero((unchanged[i.job] < 0) & (i.value > 0) & (i.primary < 0))
    free_capacity = FreeCapacity(task.round, unchanged) if len(able) else None
    if free_capacity is None or max(free_capacity.free, default=0) <= 0:
        return unchanged
    able = able[i.load[able] <= np.array(free_capacity.free)[i.pool[able]]]
    density = i.value[able] / i.load[able]
    for o in able[np.argsort(-density, kind="stable")].tolist():
        if free_capacity.choice[i.job[o]] < 0:
            free_capacity.assign(int(i.job[o]), o)
    return free_capacity.choice


def _find_start(task: Task) -> tuple[Task, Ints | None]:
    """Return the task, with the bound that is proven by then, and the best known plan.

    That is the plan that changes nothing, or if that is not good enough also one put together from
    choices of tenants, or else the rounded prices.
    """
    c, enough = task.choices, PRICED * task.limits.gap
    unchanged = task.round.unchanged_choice()
    best = unchanged if c.feasible(unchanged) else None
    is_cold = task.prices is None and not task.round.model.has_pairs
    until = task.end_of_rounding
    if is_cold and not _is_proven(task, best) and loses_in_blocks(c, task.dual, enough):
        plan, bound = round_blocks(c, task.dual, enough, until)
        task, best = _closer(task, bound), _best(c, best, plan)
        until = until if plan is None else task.share_of_time(BRIEF)
    if not _is_proven(task, best):
        beyond = BEYOND if task.prices is None else 0
        round_prices = round_pairs if task.round.model.has_pairs else round_dual
        best = _best(c, best, round_prices(c, task.dual, until, enough, beyond))
    return task, best


def _best(c: Choices, *plans: Ints | None) -> Ints | None:
    """Return the plan of the largest value, None if none is known."""
    return max((plan for plan in plans if plan is not None), key=c.value_of, default=None)


def _closer(task: Task, bound: float = math.inf, deadline: float = math.inf) -> Task:
    """Return the task with a known bound and a deadline, and with its prices as they are."""
    bound, deadline = min(task.known_bound, bound), min(task.deadline, deadline)
    return dataclasses.replace(task, known_bound=bound, deadline=deadline, known_dual=task.dual)


def _search_longer(given: Task, task: Task, start: Ints | None) -> tuple[Task, Ints | None]:
    """Return a task with a tighter bound over all pairs, and the best plan known by then.

    The bound comes from more turns of the search for prices, or else from a linear programme.
    """
    if task.limits.gap >= TIGHT:
        memory = Memory.of(task.round.problem.objective, task.round.model, task.dual.prices)
        prices = memory.row_prices(given.round.model)[0]
        longer = add_missing_pairs(dataclasses.replace(given, prices=prices), missing=0.0)
        better = _find_start(longer)[1]
        if _is_proven(longer, better):
            return longer, better
        task = dataclasses.replace(task, known_bound=min(task.known_bound, longer.known_bound))
    wider = tighten_bound(task)
    old = None if start is None else same_columns(task.round, start, wider.round)
    return wider, _best(wider.choices, _find_start(wider)[1], old)


def _is_proven(task: Task, plan: Ints | None) -> bool:
    """Return whether the bound proves the gap of a plan without a solver."""
    enough = max(PRICED * task.limits.gap, EXACT) * (1 + 1e-6)
    return plan is not None and relative_gap(task.bound, task.choices.value_of(plan)) <= enough


def _close_gap(task: Task, start: Ints, report: Report) -> tuple[Task, Ints, Proposal | None]:
    """Return the task with the tightest bound, the best plan, and what a solver said if asked."""
    until, answer = task.share_of_time(0.5), None

    def ask(plan: Ints) -> tuple[Ints, float]:
        nonlocal answer
        answer = ask_solver(_closer(task, deadline=task.share_of_time(SOON)), plan, ASKED)
        return answer.choice, answer.bound

    enough = PRICED * task.limits.gap
    plan, bound = close_gap(task.choices, task.dual, start, enough, until, task.bound, report, ask)
    return _closer(task, max(bound, task.bound_with_other_pairs)), plan, answer


def _reporter(task: Task) -> Report:
    """Return what is told the value and the bound after each step, for the log."""
    watch, begin = task.limits.watch, time.monotonic()

    def report(step: str, value: float, bound: float) -> None:
        if watch is not None:
            gap, seconds = relative_gap(bound, value), time.monotonic() - begin
            watch.improved(value, bound)
            watch.note(
                f"{step}: value {value:.7g}, bound {bound:.7g}, gap {gap:.3g}, {seconds:.2f} s"
            )

    return report
