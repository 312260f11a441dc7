"""SCIP as an engine of the solver benchmark; needs the extra `bench`, which has pyscipopt.

    allocator bench solvers --out results \\
        --engines decomposition,scripts.benchmarks.solving.scip_engine

SCIP gets the whole model, and the plan of the round before as a start where there is one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.scaling import round_values, row_scale, value_scale
from formulations.model.linear import LinearModel

ENDED = {"optimal": Termination.GAP, "gaplimit": Termination.GAP}
TOLERANCE = 1e-9


def version() -> str:
    """Return the version of SCIP."""
    import pyscipopt

    return str(pyscipopt.Model().version())


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve by branch and cut; see base.Backend."""
    import pyscipopt

    scale, rows = value_scale(model, 10), row_scale(model)
    engine: Any = pyscipopt.Model()
    engine.hideOutput(not limits.log)
    engine.setParams(_parameters(limits))
    x = [
        engine.addVar(vtype="I" if whole else "C", lb=low, ub=high, obj=scale * value)
        for whole, low, high, value in zip(
            model.integer.tolist(),
            model.col_lower.tolist(),
            model.col_upper.tolist(),
            model.value.tolist(),
            strict=True,
        )
    ]
    first, column, coef = model.by_row()
    for r in range(model.m):
        mine = slice(first[r], first[r + 1])
        terms = zip(column[mine].tolist(), (coef[mine] * rows[r]).tolist(), strict=True)
        use = pyscipopt.quicksum(a * x[c] for c, a in terms)
        lower, upper = float(model.lower[r] * rows[r]), float(model.upper[r] * rows[r])
        if math.isfinite(upper):
            engine.addCons(use <= upper)
        if math.isfinite(lower):
            engine.addCons(use >= lower)
    engine.setMaximize()
    if hint.values is not None and len(hint.values) == model.n:
        start = engine.createSol()
        for variable, value in zip(x, hint.values.tolist(), strict=True):
            engine.setSolVal(start, variable, value)
        engine.addSol(start)  # SCIP drops a start that breaks a row

    def values_of(solution: Any) -> Any:
        return round_values(model, np.array([engine.getSolVal(solution, v) for v in x]))

    class Improved(pyscipopt.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            self.model.catchEvent(pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND, self)

        def eventexec(self, event: Any) -> None:
            report(values_of(self.model.getBestSol()), self.model.getDualbound() / scale)

    engine.includeEventhdlr(Improved(), "improved", "reports better plans")
    engine.optimize()
    status = str(engine.getStatus())
    if status == "infeasible":
        return SolverResult(Termination.INFEASIBLE, bound=-math.inf)
    bound = engine.getDualbound() / scale
    termination = ENDED.get(status, Termination.TIME_LIMIT)
    if not engine.getNSols():
        return SolverResult(termination, bound=bound, detail=f"SCIP: {status}")
    values = values_of(engine.getBestSol())
    return SolverResult(
        termination, values, float(model.value @ values), bound, detail=f"SCIP: {status}"
    )


def _parameters(limits: SolveLimits) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "limits/gap": min(max(limits.gap, 0.0), 1e20),
        "numerics/feastol": TOLERANCE,
        "randomization/randomseedshift": limits.seed % 2**31,
        "parallel/maxnthreads": max(1, limits.threads),
    }
    if math.isfinite(limits.time_s):
        parameters["limits/time"] = max(0.0, limits.time_s)
    return parameters
