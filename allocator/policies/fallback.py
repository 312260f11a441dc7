"""Plans of solvers, as far as they are right, and the last resort of all policies.

Every plan of a solver is valued and checked again here. A solver's bound is accepted only as long
as no known plan exceeds it; the Lagrangian bound does not depend on a solver.

The last resort is any plan that keeps every hard rule, or why there is none.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from allocator.errors import NoPlanInTime
from allocator.policies.base import Proposal, Task, relative_gap
from allocator.policies.conflict import raise_if_infeasible
from allocator.policies.pairs import add_missing_pairs
from allocator.solvers.base import Solver, SolverResult, Termination, WarmStart
from formulations.colocation.rounding import fill_plan, round_pairs
from formulations.model.linear import Ints
from formulations.primal.moves import Losses

SHARE = 0.45  # share of the gap that the solver has to prove, see "Stability" in mip.py
EXACT = 1e-9  # relative gap that counts as none
TRUST = 1e-7  # relative: a solver's bound is wrong if it is below the value of a plan by more


def ask_solver(task: Task, start: Ints | None, most: float = math.inf) -> Proposal:
    """Return the plan and the bound of a solver that begins from a plan, as far as they are right.

    At most `most` columns can change. Raises Infeasible or NoPlanInTime as `mip` does.
    """
    engine, why = task.engine()
    answer = _call_solver(task, engine, start, most)
    best, fallback, detail = _verify_answer(task, answer, start, engine.name)
    if best is None:
        proposal = find_plan_by_solver(task)
        best, fallback = proposal.choice, proposal.fallback
    value = task.choices.value_of(best)
    bound, by = _tighter_bound(task, answer, value)
    if fallback is None and math.isfinite(answer.bound) and answer.bound < value - _rounding(value):
        fallback = "marginal"
        detail = f"{engine.name} claimed a bound below a plan that exists"
    if not (fallback or detail):  # the solver's account of a proven plan is no warning
        why = "; ".join(filter(None, (why, answer.detail)))
    is_proven = relative_gap(bound, value) <= max(task.limits.gap, EXACT)
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
    part, columns, is_whole = Losses.of(choices, task.dual).restrict(choices, start, most)
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


def _termination(answer: SolverResult, fallback: str | None, proven: bool) -> str:
    """Return `termination`: a claimed gap counts only if the plan is the solver's own."""
    if proven or (fallback is None and answer.termination is Termination.GAP):
        return "gap"
    return (
        "time_limit"
        if answer.termination is Termination.TIME_LIMIT or fallback is None
        else "fallback"
    )


def _rounding(value: float) -> float:
    """Return how far a value or a bound of a solver may be from a plan's value by rounding."""
    return TRUST * max(1.0, abs(value))


def find_fallback_plan(task: Task) -> Proposal:
    """Return any plan that keeps the rules: the rounded dual, else the first plan of a solver.

    Raises Infeasible if the rules are proven to contradict each other, and NoPlanInTime if the time
    ends before.
    """
    rounded = round_pairs(task.choices, task.dual, task.end_of_rounding, math.inf)
    if rounded is not None:
        return Proposal(rounded, fallback="marginal")
    return find_plan_by_solver(task)


def find_plan_by_solver(task: Task) -> Proposal:
    """Return the first feasible plan of the task's solver; errors as in `find_fallback_plan`."""
    model = task.round.model
    limits = dataclasses.replace(task.remaining(), gap=math.inf)
    solver, _ = task.engine()
    answer = solver.solve(model, limits, WarmStart(None, task.dual.prices))
    if answer.values is not None:
        choice = task.choices.from_x(answer.values)
        if task.choices.feasible(choice):
            return Proposal(choice, fallback=solver.name)
    # the solver has found no plan, so its claim is checked
    raise_if_infeasible(task.round, task.remaining())
    raise NoPlanInTime(
        "no plan that keeps all hard rules was found in time"
        f" ({answer.detail or answer.termination})"
    )


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
