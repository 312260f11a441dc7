"""Solve models by HiGHS, through its arrays.

A MIP takes a start, and reports incumbents and bounds while it runs. An LP has row prices. HiGHS
compares with absolute tolerances, so models are scaled first (scaling.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.scaling import round_values, row_scale, value_scale
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, LinearModel

TOLERANCE = 1e-9


def version() -> str:
    """Return the version of HiGHS; this loads the library."""
    import highspy

    engine: Any = highspy.Highs
    return str(engine().version())


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve by branch and cut, or as an LP with prices if no column is integer; see base.Backend.

    Presolve is off for MIPs: on models of this shape it costs more than it saves. The search stops
    at the relative gap alone (the absolute gap is 0).
    """
    import highspy

    new: Any = highspy.Highs
    new.resetGlobalScheduler(True)  # else run() fails without a message if `threads` changed
    engine = new()
    is_mip = bool(model.integer.any())
    scale = value_scale(model, 10)
    rows = row_scale(model)
    failed = [
        name
        for name, value in engine_options(limits, is_mip).items()
        if engine.setOptionValue(name, value) == highspy.HighsStatus.kError
    ]
    if failed:
        return SolverResult(
            Termination.FAILED, detail=f"HiGHS refused the options {', '.join(failed)}"
        )
    if pass_model(highspy, engine, model, scale, rows) == highspy.HighsStatus.kError:
        return SolverResult(Termination.FAILED, detail="HiGHS refused the model")
    if is_mip:
        if (
            hint.values is not None
            and len(hint.values) == model.n
            and np.isfinite(hint.values).all()
        ):
            _pass_start(highspy, engine, hint.values)
        _stream(engine, model, scale, report)
    status = engine.run()
    return _answer(highspy, engine, model, status, is_mip, scale, rows)


class LinearRelaxation:
    """The linear relaxation of choices, solved again whenever bounds of its rows have changed.

    A solution begins from the basis of the one before, so it takes few steps of the simplex method.
    """

    def __init__(self, c: Choices) -> None:
        import highspy

        new: Any = highspy.Highs
        new.resetGlobalScheduler(True)  # as in `solve`
        self._engine = new()
        self._optimal = highspy.HighsModelStatus.kOptimal
        for name, value in engine_options(SolveLimits(), is_mip=True).items():
            self._engine.setOptionValue(name, value)
        self._engine.setOptionValue("simplex_scale_strategy", 0)  # rows and values are scaled here
        self._scale, self._unit = value_scale(c.model, 10), row_scale(c.model)
        pass_model(highspy, self._engine, c.model, self._scale, self._unit)
        self._columns = np.arange(c.n, dtype=np.int32)
        none = np.zeros(c.n, dtype=np.uint8)
        self._engine.changeColsIntegrality(c.n, self._columns, none)

    def solve(self, c: Choices, columns: Bools, until: float) -> tuple[Floats, Floats] | None:
        """Return the best solution, (n,), and prices (m,).

        They are None if HiGHS found none `until` then (time.monotonic). c has the same columns and
        rows as before, with other bounds. Only `columns` (n,) are used.
        """
        upper = columns.astype(np.float64)
        self._engine.changeColsBounds(c.n, self._columns, np.zeros(c.n), upper)
        low, high = c.low * self._unit[c.rows], c.high * self._unit[c.rows]
        self._engine.changeRowsBounds(c.R, c.rows.astype(np.int32), low, high)
        end_s = self._engine.getRunTime() + max(0.0, until - time.monotonic())
        self._engine.setOptionValue("time_limit", end_s)
        self._engine.run()
        if self._engine.getModelStatus() != self._optimal:
            return None
        solution = self._engine.getSolution()
        prices = -np.array(solution.row_dual) * self._unit / self._scale
        return np.array(solution.col_value), prices


def engine_options(limits: SolveLimits, is_mip: bool) -> dict[str, Any]:
    """Return the options of HiGHS by name, for these limits."""
    options: dict[str, Any] = {
        "output_flag": limits.log,
        "log_to_console": limits.log,
        "threads": max(1, limits.threads),
        "random_seed": limits.seed % 2**31,
        "primal_feasibility_tolerance": TOLERANCE,
        "mip_abs_gap": 0.0,
        "mip_rel_gap": min(max(limits.gap, 0.0), 1e30),
        "mip_feasibility_tolerance": TOLERANCE,
        "small_matrix_value": 1e-12,
    }
    if is_mip:
        options["presolve"] = "off"
    if math.isfinite(limits.time_s):
        options["time_limit"] = max(0.0, limits.time_s)
    return options


def pass_model(highspy: Any, engine: Any, model: LinearModel, scale: float, rows: Floats) -> Any:
    """Pass a model with values times `scale` and rows times `rows`; return the status of HiGHS."""
    return engine.passModel(
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
        model.integer.astype(np.int32),
    )


def write_file(model: LinearModel, path: str, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Write a model as MPS or LP, as the suffix of the path says, with names of columns and rows.

    HiGHS writes 15 digits of each number.
    """
    import highspy

    new: Any = highspy.Highs
    engine = new()
    for name, value in engine_options(SolveLimits(), is_mip=False).items():
        engine.setOptionValue(name, value)
    pass_model(highspy, engine, model, -1.0, np.ones(model.m))  # which negates the values
    engine.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for name_one, names in ((engine.passColName, columns), (engine.passRowName, rows)):
        for i, name in enumerate(names):
            name_one(i, name)
    engine.writeModel(path)


def _pass_start(highspy: Any, engine: Any, values: Floats) -> None:
    """Pass a complete start; HiGHS drops an infeasible one without a message, as intended."""
    start = highspy.HighsSolution()
    start.col_value = values.tolist()
    start.value_valid = True
    engine.setSolution(start)


def _stream(engine: Any, model: LinearModel, scale: float, report: ReportProgress) -> None:
    seen = SimpleNamespace(bound=math.inf)

    def bound_of(event: Any) -> float:
        claimed = -float(event.data_out.mip_dual_bound) / scale
        if math.isfinite(claimed) and claimed < seen.bound:
            seen.bound = claimed
        return float(seen.bound)

    def improving(event: Any) -> None:
        report(
            round_values(model, np.array(event.data_out.mip_solution, dtype=np.float64)),
            bound_of(event),
        )

    def moving(event: Any) -> None:
        before = seen.bound
        if bound_of(event) < before - 1e-9 * abs(before) or (
            before == math.inf and math.isfinite(seen.bound)
        ):
            report(None, seen.bound)

    engine.cbMipImprovingSolution += improving
    engine.cbMipInterrupt += moving


def _answer(
    highspy: Any,
    engine: Any,
    model: LinearModel,
    status: Any,
    is_mip: bool,
    scale: float,
    rows: Floats,
) -> SolverResult:
    """Return what HiGHS found; plans and bounds are read from its numbers."""
    info = engine.getInfo()
    model_status = engine.getModelStatus()
    kinds = highspy.HighsModelStatus
    name = engine.modelStatusToString(model_status)
    if model_status == kinds.kInfeasible:
        return SolverResult(Termination.INFEASIBLE, bound=-math.inf)
    values = None
    prices = None
    solution = engine.getSolution()
    if info.primal_solution_status == highspy.kSolutionStatusFeasible or (
        model_status == kinds.kModelEmpty and not model.n
    ):
        values = round_values(model, np.array(solution.col_value, dtype=np.float64))
    if status == highspy.HighsStatus.kError:
        return SolverResult(
            Termination.FAILED, values, _objective(model, values), detail=f"HiGHS failed: {name}"
        )
    if not is_mip and info.dual_solution_status == highspy.kSolutionStatusFeasible:
        prices = -np.array(solution.row_dual, dtype=np.float64) * rows / scale
    objective = _objective(model, values)
    if model_status in (kinds.kOptimal, kinds.kModelEmpty) and values is not None:
        bound = max(objective, -info.mip_dual_bound / scale) if is_mip else objective
        return SolverResult(
            Termination.GAP, values, objective, bound if math.isfinite(bound) else math.inf, prices
        )
    bound = -info.mip_dual_bound / scale if is_mip else math.inf
    bound = math.inf if not math.isfinite(bound) else bound
    if model_status in (kinds.kTimeLimit, kinds.kInterrupt, kinds.kHighsInterrupt):
        return SolverResult(Termination.TIME_LIMIT, values, objective, bound, prices)
    return SolverResult(
        Termination.FAILED, values, objective, bound, detail=f"HiGHS ended with: {name}"
    )


def _objective(model: LinearModel, values: Floats | None) -> float:
    return -math.inf if values is None else float(model.value @ values)
