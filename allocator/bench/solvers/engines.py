"""The engines that the solver benchmarks compare.

They are the back ends, two heuristics without a solver, and back ends of users.
"""

import heapq
import importlib
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from allocator.errors import UsageError
from allocator.solvers import registry
from allocator.solvers.base import (
    Backend,
    ReportProgress,
    SolveLimits,
    SolverResult,
    Termination,
    WarmStart,
)
from formulations.bounds.lagrangian import minimise_dual
from formulations.branching.branch_and_bound import compile_search
from formulations.model.choices import Choices, NotChoices, choices
from formulations.model.linear import CAPACITY, Floats, Ints, LinearModel
from formulations.primal.closing import close_gap
from formulations.primal.rounding import round_dual


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines; a dotted module with a function `solve` is an engine too."""
    return (*registry.SOLVERS, *SHORT)


def check(name: str) -> None:
    """Raise UsageError for text that is neither a name nor looks like a module."""
    if name not in engine_names() and "." not in name:
        raise UsageError(
            f'unknown engine "{name}" (known: {", ".join(engine_names())}, or module.with.solve)'
        )


def load(name: str) -> tuple[Backend, str]:
    """Load an engine; return its back end and the version of its library.

    It loads the library, so call it only in the process of a measurement.
    """
    if name in SHORT:
        if name == "auto":
            compile_search()
        return SHORT[name], ""
    entry = registry.SOLVERS.get(name)
    module = importlib.import_module(entry.module if entry else name)
    return cast(Backend, module.solve), str(module.version()) if hasattr(module, "version") else ""


def auto(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve as policy `mip` does: prices, rounding, branch and bound, and HiGHS for the rest."""
    answer = marginal(model, limits, hint, report, closes=True)
    if answer.termination is Termination.GAP:
        return answer
    start = hint if answer.values is None else replace(hint, values=answer.values)
    return load("highs")[0](model, limits, start, report)


def marginal(
    model: LinearModel,
    limits: SolveLimits,
    hint: WarmStart,
    report: ReportProgress,
    closes: bool = False,
) -> SolverResult:
    """Return the Lagrangian bound, and the plan that its prices suggest.

    The plan is rounded by formulations/primal/rounding.py; `closes` asks for branch and bound where
    value and bound differ.
    """
    until = time.monotonic() + limits.time_s / 2
    try:
        view = choices(model)
    except NotChoices as lack:
        return SolverResult(Termination.FAILED, detail=str(lack))
    dual = minimise_dual(view, hint.prices, deadline=until if math.isfinite(until) else None)
    report(None, dual.bound)
    plan, bound = round_dual(view, dual, enough=limits.gap if closes else None), dual.bound
    if plan is None:
        return SolverResult(
            Termination.TIME_LIMIT,
            bound=bound,
            prices=dual.prices,
            detail="the rounding found no plan",
        )
    report(view.to_x(plan), bound)
    if closes:
        plan, bound = close_gap(view, dual, plan, limits.gap, until)
        report(view.to_x(plan), bound)
    answer = SolverResult(
        Termination.TIME_LIMIT, view.to_x(plan), view.value_of(plan), bound, dual.prices
    )
    gap = (bound - answer.objective) / max(abs(answer.objective), 1e-9)
    return answer if gap > limits.gap else replace(answer, termination=Termination.GAP)


def greedy(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Return the plan of the greedy loop, without a bound. Raises NotChoices."""
    view = choices(model)
    plan = plain_greedy(view, time.monotonic() + limits.time_s)
    if plan is None:
        return SolverResult(
            Termination.TIME_LIMIT, detail="the greedy loop found no plan that keeps every row"
        )
    return SolverResult(Termination.TIME_LIMIT, view.to_x(plan), view.value_of(plan))


def plain_greedy(view: Choices, deadline: float) -> Ints | None:
    """Return a choice (J,), or None if the loop ends with a violated row.

    It first takes what rows with a lower bound require (guarantees, jobs that must keep what they
    hold). Then it takes steps from one option of a job to a better one, the best gain per GPU
    first, as long as no row is violated. A step that does not fit is not tried again. The loop has
    no prices, no repair and no bound.

    The loop adds nothing after the deadline (time.monotonic).
    """
    # plain lists, because steps touch single numbers; the last entries stand for no column
    value, size = ([*column.tolist(), 0.0] for column in (view.value, sizes(view)))
    low, high, a = view.low.tolist(), view.high.tolist(), view.matrix
    whole = list(zip(a.indices.tolist(), a.data.tolist(), strict=True))
    entries = [*(whole[p:q] for p, q in itertools.pairwise(a.indptr.tolist())), []]
    left = [list(range(p, q)) for p, q in itertools.pairwise(view.start.tolist())]
    chosen, use = [-1] * view.J, [0.0] * view.R
    heap: list[tuple[float, int, int]] = []

    def change(j: int, column: int) -> dict[int, float]:
        """Return how much more the rows use when group j changes to the column."""
        more = dict(entries[column])
        for r, x in entries[chosen[j]]:
            more[r] = more.get(r, 0.0) - x
        return more

    def fits(j: int, column: int) -> bool:
        """Return whether no row violates its bounds more than it did before."""
        return all(
            not (d > 0 and use[r] + d > high[r]) and not (d < 0 and use[r] + d < low[r])
            for r, d in change(j, column).items()
        )

    def take(j: int, column: int) -> None:
        for r, d in change(j, column).items():
            use[r] += d
        chosen[j] = column

    def push(j: int) -> None:
        """Push the best next step of group j, if any step gains."""
        now = chosen[j]
        steps = [
            ((value[now] - value[c]) / max(size[c] - size[now], 1e-3), j, c)
            for c in left[j]
            if value[c] - value[now] > 1e-12
        ]
        if steps:
            heapq.heappush(heap, min(steps))

    for j in np.flatnonzero(view.mandatory).tolist():
        if not left[j]:
            return None
        take(j, max(left[j], key=value.__getitem__))
    for c in _columns_of_lower_bounds(view):
        j = int(view.group[c])
        is_short = any(x > 0 and use[r] < low[r] for r, x in entries[c])
        if is_short and chosen[j] < 0 and fits(j, c):
            take(j, c)
    for j in range(view.J):
        push(j)
    for step in itertools.count(1):
        if not heap or (step % 1000 == 0 and time.monotonic() >= deadline):
            break
        _, j, column = heapq.heappop(heap)
        if fits(j, column):
            take(j, column)
        else:
            left[j].remove(column)
        push(j)
    choice = np.array(chosen, dtype=np.int64)
    return choice if view.feasible(choice) else None


def sizes(view: Choices) -> Floats:
    """Return the size of every column, shape (n,).

    It is the column's use of rows of kind capacity (GPUs), or 1 if it uses none.
    """
    size = view.matrix @ np.where(view.model.rows_of(CAPACITY)[view.rows], 1, 0)
    return np.where(size > 0, size, 1.0)


def _columns_of_lower_bounds(view: Choices) -> list[int]:
    """Return the columns in rows with a lower bound, best value per GPU first."""
    wanted = np.flatnonzero(abs(view.matrix) @ np.where(view.low > 0, 1, 0) > 0)
    density = view.value[wanted] / sizes(view)[wanted]
    return list(wanted[np.argsort(-density, kind="stable")].tolist())


SHORT: Mapping[str, Backend] = {"auto": auto, "marginal": marginal, "greedy": greedy}
"""The engines besides the back ends."""
