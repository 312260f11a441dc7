"""A first-order method for the bound, as an engine of the solver benchmark: PDLP of HiGHS.

    allocator bench solvers --out results \\
        --engines decomposition,scripts.benchmarks.solving.pdlp_engine

PDLP solves the linear relaxation to a tolerance. Its row prices give a Lagrangian bound that is
valid for any prices, and a plan by rounding and filling. It takes no start: what it would need are
values and prices of the round before, which HiGHS does not pass to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from allocator.solvers import highs
from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.scaling import row_scale, value_scale
from formulations.bounds.lagrangian import evaluate
from formulations.model.choices import choices
from formulations.model.linear import LinearModel
from formulations.primal.rounding import round_dual

TOLERANCE = 1e-5
version = highs.version


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Return the bound at the prices of PDLP, and the plan that they suggest; see base.Backend."""
    import highspy

    new: Any = highspy.Highs
    new.resetGlobalScheduler(True)
    engine, scale, rows = new(), value_scale(model, 10), row_scale(model)
    pdlp = {"solver": "pdlp", "pdlp_optimality_tolerance": TOLERANCE}
    for name, setting in (highs.engine_options(limits, is_mip=False) | pdlp).items():
        engine.setOptionValue(name, setting)
    relaxed = replace(model, integer=np.zeros(model.n, dtype=bool))
    highs.pass_model(highspy, engine, relaxed, scale, rows)
    engine.run()
    status = str(engine.modelStatusToString(engine.getModelStatus()))
    prices = -np.array(engine.getSolution().row_dual, dtype=np.float64) * rows / scale
    view = choices(model)
    if len(prices) != model.m:
        return SolverResult(Termination.FAILED, detail=f"PDLP: {status}")
    dual = evaluate(view, prices)
    report(None, dual.bound)
    plan = round_dual(view, dual)
    if plan is None:
        return SolverResult(Termination.TIME_LIMIT, bound=dual.bound, prices=dual.prices)
    value = view.value_of(plan)
    is_proven = dual.bound - value <= limits.gap * max(abs(value), 1e-9)
    return SolverResult(
        Termination.GAP if is_proven else Termination.TIME_LIMIT,
        view.to_x(plan),
        value,
        dual.bound,
        dual.prices,
        detail=f"PDLP: {status}",
    )
