"""The engines that the solver benchmarks compare.

They are the back ends, two heuristics without a solver, and back ends of users.
"""

import importlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from allocator.bench.solvers.plain_greedy import plain_greedy
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
from formulations.model.choices import NotChoices, choices
from formulations.model.linear import LinearModel
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


SHORT: Mapping[str, Backend] = {"auto": auto, "marginal": marginal, "greedy": greedy}
"""The engines besides the back ends."""
