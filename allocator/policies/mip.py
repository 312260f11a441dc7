"""The policy `mip`: the best plan with its proof, whatever the solver does.

Every plan is valued and checked again here. A solver's bound is accepted only as long as no known
plan exceeds it; the Lagrangian bound does not depend on a solver. The solver starts from the best
plan known without it.

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
from allocator.policies.fallback import find_fallback_plan, find_plan_by_solver
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.pairs import TIGHT, add_missing_pairs, add_near_pairs, tighten_bound
from allocator.solvers.base import Solver, SolverResult, Termination, WarmStart
from formulations.bounds.lagrangian import excludes_every_plan
from formulations.colocation.rounding import fill_plan, round_pairs
from formulations.model.choices import Choices
from formulations.model.linear import Ints
from formulations.primal.block_plans import loses_in_blocks, round_blocks
from formulations.primal.closing import close_gap, restrict
from formulations.primal.rounding import BEYOND, round_dual

SHARE = 0.45  # share of the gap that the solver has to prove, see "Stability"
PRICED = 0.9  # share of the gap that prices alone have to prove
BRIEF = 0.02  # share of the remaining time for rounding prices where blocks gave a plan
SOON = 0.2  # share of the remaining time for the first call of a solver
ASKED = 5_000  # most columns of jobs that may change in the model of the first call
EXACT = 1e-9  # relative gap that counts as none
TRUST = 1e-7  # relative: a claimed bound is wrong if it is below a known value by more


def mip(task: Task) -> Proposal:
    """Solve the round's MIP from the best known start, and return the best verified plan.

    Raises Infeasible or NoPlanInTime (policies/fallback.py) if there is no plan to fall back on.
    """
    given, task = task, add_missing_pairs(task)
    task, start = _find_start(task)
    if start is None and excludes_every_plan(task.choices, task.dual):
        raise_if_infeasible(task.round, task.remaining())
    if task.round.omitted_pairs is not None and not _is_proven(task, start):
        task, start = _search_longer(given, task, start)
    _report_start(task, start)
    if task.solver is not None or not _is_proven(task, start):
        task, start = add_near_pairs(task, start)
    if task.solver is None and start is not None:
        task, start, answer = _close_gap(task, start)
        if answer is not None and answer.termination == "gap":
            return dataclasses.replace(answer, task=task)  # with the deadline of the round
        if _is_proven(task, start):
            plan = _prefer_unchanged(task, start, task.bound)
            bound = max(task.bound, task.choices.value_of(plan))
            by, why = "lagrangian", "auto: proven from prices, none needed"
            if answer is not None:
                by, why = answer.bound_by if bound >= answer.bound else by, answer.solver_choice
            return Proposal(plan, bound, by, "gap", solver_choice=why, task=task)
    return _ask_solver(task, start)


def _ask_solver(task: Task, start: Ints | None, most: float = math.inf) -> Proposal:
    """Return the plan and the bound of a solver that begins from a plan, as far as they are right.

    At most `most` columns can change. Raises Infeasible or NoPlanInTime as `mip` does.
    """
    value = task.choices.value_of
    engine, why = task.engine()
    answer = _call_solver(task, engine, start, most)
    best, fallback, detail = _verify_answer(task, answer, start, engine.name)
    if best is None:
        proposal = find_plan_by_solver(task)
        best, fallback = proposal.choice, proposal.fallback
    bound, by = _tighter_bound(task, answer, value(best))
    least = value(best) - _rounding(value(best))
    if fallback is None and math.isfinite(answer.bound) and answer.bound < least:
        fallback = "marginal"
        detail = f"{engine.name} claimed a bound below a plan that exists"
    if not (fallback or detail):  # the solver's account of a proven plan is no warning
        why = "; ".join(filter(None, (why, answer.detail)))
    best = _prefer_unchanged(task, best, bound)
    is_proven = relative_gap(bound, value(best)) <= max(task.limits.gap, EXACT)
    return Proposal(
        best,
        bound,
        by,
        _termination(answer, fallback, is_proven),
        engine.name,
        answer.version or None,
        why,
        fallback,
        detail or (answer.detail if fallback else ""),
        answer.log,
        task=task,
    )


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
    enough = max(PRICED * task.limits.gap, EXACT)
    return plan is not None and _proven_gap(task, plan) <= enough * (1 + 1e-6)


def _close_gap(task: Task, start: Ints) -> tuple[Task, Ints, Proposal | None]:
    """Return the task with the tightest bound, the best plan, and what a solver said if asked."""
    until, answer = task.share_of_time(0.5), None
    enough = PRICED * task.limits.gap
    watch, report = task.limits.watch, None
    if watch is not None:
        begin = time.monotonic()

        def report(step: str, value: float, bound: float) -> None:
            watch.improved(value, bound)
            gap, seconds = relative_gap(bound, value), time.monotonic() - begin
            watch.note(
                f"{step}: value {value:.7g}, bound {bound:.7g}, gap {gap:.3g}, {seconds:.2f} s"
            )

    def ask(plan: Ints) -> tuple[Ints, float]:
        nonlocal answer
        answer = _ask_solver(_closer(task, deadline=task.share_of_time(SOON)), plan, ASKED)
        return answer.choice, answer.bound

    c, dual = task.choices, task.dual
    plan, bound = close_gap(c, dual, start, enough, until, task.bound, report, ask)
    return _closer(task, max(bound, task.bound_with_other_pairs)), plan, answer


def _report_start(task: Task, start: Ints | None) -> None:
    """Report the bound that the prices prove and the value of the plan that they give."""
    watch = task.limits.watch
    n = task.choices.n
    m = task.choices.model.m
    if watch is None:
        return
    value = -math.inf if start is None else task.choices.value_of(start)
    watch.improved(value, task.bound)
    watch.note(f"round: {task.choices.J} jobs, {n} columns, {m} rows")
    watch.note(f"prices: no plan has a value above {task.bound:.7g} (Lagrangian bound, no solver)")
    watch.note(
        "prices give no plan"
        if start is None
        else f"plan from prices or from what runs: value {value:.7g}, "
        f"gap {_proven_gap(task, start):.3g}"
    )


def _proven_gap(task: Task, choice: Ints) -> float:
    """Return the gap of a plan proven from prices alone."""
    value = task.choices.value_of(choice)
    return relative_gap(max(task.bound, value), value)


def _termination(answer: SolverResult, fallback: str | None, proven: bool) -> str:
    """Return `termination`: a claimed gap counts only if the plan is the solver's own."""
    if proven or (fallback is None and answer.termination is Termination.GAP):
        return "gap"
    return (
        "time_limit"
        if answer.termination is Termination.TIME_LIMIT or fallback is None
        else "fallback"
    )


def _call_solver(task: Task, engine: Solver, start: Ints | None, most: float) -> SolverResult:
    """Ask the solver for a plan; one that was chosen here, only about what can change.

    No other plan is better than the start, so the solver's bound holds for all plans. It does not
    if there are more than `most` columns.
    """
    choices, model, prices = task.choices, task.round.model, task.dual.prices
    limits = dataclasses.replace(task.remaining(), gap=SHARE * task.limits.gap)
    if task.solver is not None or start is None or task.round.omitted_pairs is not None:
        values = None if start is None else choices.to_x(start)
        return engine.solve(model, limits, WarmStart(values, prices))
    x = choices.to_x(start)
    part, columns, is_whole = restrict(choices, task.dual, start, most)
    answer = engine.solve(part, limits, WarmStart(np.append(x[columns], 1.0), prices))
    if not is_whole:
        answer = dataclasses.replace(answer, bound=math.inf, termination=Termination.TIME_LIMIT)
    if answer.values is None:
        return answer
    x[columns] = answer.values[:-1]
    return dataclasses.replace(answer, values=x)


def _verify_answer(
    task: Task, answer: SolverResult, start: Ints | None, name: str
) -> tuple[Ints | None, str | None, str]:
    """Return the best known plan, the name of the fallback, and the reason.

    The solver's plan counts if it keeps the rules and is not worse than the start. If it is worse
    by no more than the gap that was asked for, with rounding, the solver has not failed, and the
    start is the better of two good plans. The fallback is "incumbent" for the last plan of a solver
    that failed afterwards, and "marginal" for the start.
    """
    choices = task.choices
    x = answer.values
    if x is not None and (len(x) != choices.n or not np.isfinite(x).all()):
        return start, "marginal", f"{name} returned garbage"
    plan = None if x is None else choices.from_x(x)
    if plan is not None and task.round.model.feasible(choices.to_x(plan)):
        plan = fill_plan(choices, plan, task.dual.prices)
        if start is None or choices.value_of(plan) >= choices.value_of(start):
            failed = answer.termination is Termination.FAILED
            return plan, "incumbent" if failed else None, answer.detail if failed else ""
        value = choices.value_of(start)
        lost = value - choices.value_of(plan)
        enough = SHARE * task.limits.gap * abs(value) + _rounding(value)
        if answer.termination is Termination.GAP and lost <= enough:
            return start, None, ""
        late = answer.termination is Termination.TIME_LIMIT
        return (
            start,
            None if late else "marginal",
            f"{name} returned a worse plan than it was given",
        )
    if plan is not None:
        return start, "marginal", f"{name} returned a plan that breaks a rule"
    if answer.termination is Termination.INFEASIBLE and start is None:
        return None, None, answer.detail
    return start, "marginal", answer.detail or f"{name} returned no plan ({answer.termination})"


def _tighter_bound(task: Task, answer: SolverResult, value: float) -> tuple[float, str]:
    """Return the tighter of the Lagrangian and the solver's bound.

    A solver's bound below an existing plan is ignored. The value that plans with pairs unknown to
    the solver may have counts for both.
    """
    is_credible = answer.bound >= value - _rounding(value)
    if is_credible and max(answer.bound, task.bound_with_other_pairs) < task.bound:
        return max(answer.bound, task.bound_with_other_pairs, value), answer.solver
    return max(task.bound, value), "lagrangian"


def _rounding(value: float) -> float:
    """Return by how much the value of a plan may differ in the accounts of a solver."""
    return TRUST * max(1.0, abs(value))


def marginal(task: Task) -> Proposal:
    """Return the strong greedy plan: best value per unit of scarce resource.

    Each job takes its best option at the dual prices; the plan is made feasible and filled
    (formulations/primal/rounding.py). The plan that changes nothing is preferred at the same value.
    """
    task = add_missing_pairs(task)
    proposal = find_fallback_plan(task)
    unchanged_choice = task.round.unchanged_choice()
    value_of = task.choices.value_of
    if task.choices.feasible(unchanged_choice) and (
        value_of(unchanged_choice) >= value_of(proposal.choice)
    ):
        proposal = Proposal(unchanged_choice)
    elif proposal.fallback == "marginal":
        proposal = Proposal(proposal.choice)
    return dataclasses.replace(proposal, task=task)
