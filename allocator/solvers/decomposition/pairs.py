"""The decomposition of rounds with colocation.

Prices come from linear programmes, and HiGHS then searches for plans over good columns. The bound
is the Lagrangian one (formulations/colocation/prices.py). The search has three steps: over the
columns that the programme uses and those of the groups that it splits, then over more columns, and
finally over all columns that a better plan may use (reduced-cost test, decomposition/branch.py).
The bound of the last step counts as well.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from allocator.solvers import highs
from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.decomposition.pricing import losses
from formulations.bounds.lagrangian import Dual
from formulations.colocation.prices import CLOSE, PairColumns, solve_paired_dual
from formulations.colocation.rounding import improve_paired, round_pairs
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, LinearModel

FIELDS = (0, 3, math.inf)  # columns per group in each search; 0: those the programme uses
EPS = 1e-6
SHARE = 0.8  # share of the asked gap that the search may leave; the rest is for the bound


def solve(
    view: Choices, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve a round with secondary jobs, see base.Backend."""
    until = time.monotonic() + limits.time_s
    gap = max(0.0, limits.gap)
    dual = _dual(view, hint.prices, min(CLOSE, 0.2 * gap) if gap > 0 else 1e-7, until)
    plan = _complete_start(view, hint.values)
    if plan is None:
        plan = round_pairs(view, dual, until, gap)
    value = -math.inf if plan is None else view.value_of(plan)
    bound = dual.bound
    proof = "Lagrangian"
    steps = ["rounding"] if plan is not None else []
    if plan is not None:
        report(view.to_x(plan), bound)
    loss = losses(view, dual)
    for field in FIELDS:
        if _gap(bound, value) <= gap or time.monotonic() >= until:
            break
        exact = loss <= (bound - value if plan is not None else math.inf) + 1e-9 * abs(bound)
        columns = (
            _select_used_columns(view, dual, plan)
            if field == 0
            else _select_columns(view, loss, field, plan)
        )
        whole = len(columns) == view.n or bool(np.isin(np.flatnonzero(exact), columns).all())
        if field == math.inf and not whole:
            columns = _with_primaries(view, exact, plan)
            whole = True
        answer, found = _search(
            view, columns, plan, dual, replace(limits, time_s=until - time.monotonic(), gap=gap)
        )
        if found is not None and view.value_of(found) > value:
            plan = found
            value = view.value_of(found)
            steps.append(f"search over {len(columns)} columns")
            report(view.to_x(plan), bound)
        if whole and answer.termination is Termination.INFEASIBLE and plan is None:
            return SolverResult(Termination.INFEASIBLE, bound=-math.inf)
        if whole and max(answer.bound, value) < bound:
            bound = max(answer.bound, value)
            proof = "HiGHS on the columns left by the reduced-cost test"
        if whole:
            break
    if plan is None:
        return highs.solve(
            view.model, replace(limits, time_s=max(0.0, until - time.monotonic())), hint, report
        )
    reached = _gap(bound, value) <= max(gap, 1e-8)
    detail = f"bound: {proof}; plan: {', '.join(dict.fromkeys(steps)) or 'hint'}"
    return SolverResult(
        Termination.GAP if reached else Termination.TIME_LIMIT,
        view.to_x(plan),
        value,
        max(bound, value),
        dual.prices,
        "decomposition",
        detail=detail,
    )


def _search(
    view: Choices, columns: Ints, plan: Ints | None, dual: Dual, limits: SolveLimits
) -> tuple[SolverResult, Ints | None]:
    """Run HiGHS over some columns, from `plan`; return its result and the best plan found."""
    start = None if plan is None else np.isin(columns, plan).astype(float)
    left = replace(limits, time_s=max(0.01, limits.time_s), gap=SHARE * limits.gap)
    answer = highs.solve(
        _compressed(view.model.take(columns)), left, WarmStart(start), lambda values, _: None
    )
    if answer.values is None:
        return answer, None
    found = view.from_x(_spread(view, columns, answer.values))
    if not view.feasible(found):
        return answer, None
    better = (
        improve_paired(view, found, dual.prices, time.monotonic() + left.time_s)
        if limits.gap > 0
        else None
    )
    return answer, (
        found if better is None or view.value_of(better) < view.value_of(found) else better
    )


def _gap(bound: float, value: float) -> float:
    return (bound - value) / max(abs(value), 1e-9) if math.isfinite(value) else math.inf


def _dual(view: Choices, prices: Floats | None, close: float, until: float) -> Dual:
    """Return the dual by linear programmes, started at the given prices if they are usable."""
    good = (
        prices is not None
        and len(prices) == view.model.m
        and bool(np.isfinite(prices).all())
        and prices.any()
    )
    return solve_paired_dual(
        view, prices if good else None, until if math.isfinite(until) else None, _programme, close
    )


def _programme(model: LinearModel, seconds: float) -> tuple[Floats, Floats] | None:
    if not model.n:
        return np.zeros(0), np.zeros(model.m)
    answer = highs.solve(model, SolveLimits(seconds), WarmStart(), lambda values, _: None)
    return (
        None if answer.values is None or answer.prices is None else (answer.values, answer.prices)
    )


def _complete_start(view: Choices, values: Floats | None) -> Ints | None:
    if values is None or len(values) != view.n or not np.isfinite(values).all():
        return None
    plan = view.from_x(values)
    return plan if view.feasible(plan) else None


def _select_used_columns(view: Choices, dual: Dual, plan: Ints | None) -> Ints:
    """Return the columns that the programme uses, and all of split and mandatory groups."""
    x = np.zeros(view.n) if dual.values is None else dual.values
    split = view.mandatory.copy()
    split[view.group[(x > EPS) & (x < 1 - EPS)]] = True
    return _with_primaries(view, (x > EPS) | split[view.group], plan)


def _select_columns(view: Choices, loss: Floats, field: float, plan: Ints | None) -> Ints:
    """Return the columns of least loss, `field` per group on average.

    The columns of the plan and of groups that must have one are added.
    """
    want = field * view.J
    limit = np.partition(loss, int(want) - 1)[int(want) - 1] if want < view.n else math.inf
    return _with_primaries(view, (loss <= limit) | view.mandatory[view.group], plan)


def _with_primaries(view: Choices, wanted: Bools, plan: Ints | None) -> Ints:
    """Return the wanted columns, those of the plan, and those of the primary jobs they need."""
    chosen = wanted.copy()
    if plan is not None:
        chosen[plan[plan >= 0]] = True
    secondaries = PairColumns.of(view)
    chosen[secondaries.primary[chosen[secondaries.secondary]]] = True
    return np.flatnonzero(chosen)


def _spread(view: Choices, columns: Ints, values: Floats) -> Floats:
    x = np.zeros(view.n)
    x[columns] = values
    return x


def _compressed(model: LinearModel) -> LinearModel:
    """Return the model without empty rows; an empty row that cannot hold stays."""
    used = np.bincount(model.index, minlength=model.m) > 0
    used |= (model.lower > 0) | (model.upper < 0)
    number = np.cumsum(used) - 1
    return replace(
        model,
        index=number[model.index],
        lower=model.lower[used],
        upper=model.upper[used],
        families=(),
    )
