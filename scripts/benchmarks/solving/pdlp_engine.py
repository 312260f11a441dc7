"""A first-order method for the bound, as an engine of the solver benchmark: PDLP of HiGHS.

    allocator bench solvers --out results \\
        --engines decomposition,scripts.benchmarks.solving.pdlp_engine

PDLP solves the linear relaxation to a tolerance. Its row prices give a Lagrangian bound that is
valid for any prices, and a plan by rounding and filling. It takes no start: what it would need are
values and prices of the round before, which HiGHS does not pass to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.scaling import row_scale, value_scale
from formulations.bounds.lagrangian import evaluate
from formulations.model.choices import choices
from formulations.model.linear import LinearModel
from formulations.primal.rounding import round_dual

TOLERANCE = 1e-5


def version() -> str:
    """Return the version of HiGHS."""
    import highspy

    engine: Any = highspy.Highs
    return str(engine().version())


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Return the bound at the prices of PDLP, and the plan that they suggest; see base.Backend."""
    import highspy

    new: Any = highspy.Highs
    new.resetGlobalScheduler(True)
    engine, scale, rows = new(), value_scale(model, 10), row_scale(model)
    engine.setOptionValue("output_flag", limits.log)
    engine.setOptionValue("threads", max(1, limits.threads))
    engine.setOptionValue("solver", "pdlp")
    engine.setOptionValue("pdlp_optimality_tolerance", TOLERANCE)
    if math.isfinite(limits.time_s):
        engine.setOptionValue("time_limit", max(0.0, limits.time_s))
    engine.passModel(
        model.n,
        model.m,
        len(model.coef),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        -scale * model.value,
        model.col_lower,
        model.col_upper,
        model.lower * rows,
        model.upper * rows,
        model.start.astype(np.int32),
        model.index.astype(np.int32),
        model.coef * rows[model.index],
        np.zeros(model.n, dtype=np.int32),
    )
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
