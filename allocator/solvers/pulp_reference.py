"""The readable reference: a model written variable by variable with PuLP, solved by CBC.

If CBC is not available, another solver that PuLP finds is used. PuLP calls a plan "Optimal" even if
CBC only found it before its time was over, and it gives no bound. So both are read from CBC's log.
Without a log that can be read there is no bound.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.scaling import round_values, row_scale, value_scale
from formulations.model.linear import AT_MOST_ONE, LinearModel

SIZE = 17  # values are scaled to 2^17, because CBC prints its bound with three decimals
DECIMALS = 0.5e-3
PREFERRED = ("PULP_CBC_CMD", "COIN_CMD")
INFEASIBLE = re.compile(
    r"^(Pre-processing says infeasible|Problem is infeasible|Result - Problem proven infeasible"
    r"|Result - Linear relaxation infeasible)",
    re.MULTILINE,
)
# out of time, CBC sometimes calls feasible problems infeasible: only earlier claims count
TIME_LEFT = 0.9
NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"


def version() -> str:
    """Return the version of PuLP; this loads the library."""
    import pulp

    return str(pulp.__version__)


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve by CBC, or by another solver that PuLP finds; see base.Backend. Nothing is reported."""
    begin = time.monotonic()
    if not model.n:
        keeps = model.feasible(np.zeros(0))
        return (
            SolverResult(Termination.GAP, np.zeros(0), 0.0, 0.0)
            if keeps
            else SolverResult(Termination.INFEASIBLE, bound=-math.inf)
        )
    with tempfile.TemporaryDirectory(prefix="pulp-") as folder:
        problem, x, scale = build_pulp_problem(model, hint)
        left = replace(limits, time_s=max(0.01, limits.time_s - (time.monotonic() - begin)))
        engine, log_file = _engine(left, folder, hint.values is not None)
        if engine is None:
            return SolverResult(Termination.FAILED, detail="PuLP finds no solver")
        problem.solve(engine)
        log = log_file.read_text(errors="replace") if log_file.exists() else ""
    in_time = time.monotonic() - begin < TIME_LEFT * limits.time_s
    answer = _answer(model, problem, x, scale, log, in_time, limits.gap)
    return replace(answer, log=log) if limits.log else answer


def build_pulp_problem(model: LinearModel, hint: WarmStart) -> tuple[Any, list[Any], float]:
    """Return the problem in PuLP, its variables in the order of the columns, and its scale.

    The problem minimises the scaled loss. Rows of dollars are scaled as well (scaling.py).
    """
    import pulp

    scale = value_scale(model, SIZE)
    rows = row_scale(model)
    start = hint.values if hint.values is not None and len(hint.values) == model.n else None
    x = []
    for c, name in enumerate(_column_names(model)):
        low, up = (
            None if math.isinf(b) else float(b) for b in (model.col_lower[c], model.col_upper[c])
        )
        x.append(
            pulp.LpVariable(
                name, low, up, pulp.LpInteger if model.integer[c] else pulp.LpContinuous
            )
        )
        if start is not None and math.isfinite(start[c]):
            x[c].setInitialValue(float(start[c]), check=False)
    problem = pulp.LpProblem("allocation", pulp.LpMinimize)
    problem += pulp.LpAffineExpression(zip(x, (-scale * model.value).tolist(), strict=True))
    first, column, coef = model.by_row()
    for r in range(model.m):
        entries = slice(first[r], first[r + 1])
        sides = _sides(float(model.lower[r] * rows[r]), float(model.upper[r] * rows[r]))
        terms = [
            (x[c], a * rows[r])
            for c, a in zip(column[entries].tolist(), coef[entries].tolist(), strict=True)
        ]
        for sense, bound in sides:
            relation = "le" if sense < 0 else "ge" if sense > 0 else "eq"
            name = f"{_clean(model.row_name(r))}_{r}_{relation}"
            problem += pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, name, bound)
    return problem, x, scale


def _sides(lower: float, upper: float) -> list[tuple[int, float]]:
    """Return PuLP's sense and the right-hand side of each finite side of a row."""
    if lower == upper:
        return [(0, lower)]
    return [(sense, bound) for sense, bound in ((1, lower), (-1, upper)) if math.isfinite(bound)]


def _column_names(model: LinearModel) -> list[str]:
    """Return the names x_<column>_<job>, with the job of the column's "at most one" row."""
    label = [""] * model.n
    for family in model.families:
        if family.kind == AT_MOST_ONE:
            inside = (model.index >= family.first) & (model.index < family.stop)
            for c, r in zip(
                model.entry_column[inside].tolist(), model.index[inside].tolist(), strict=True
            ):
                label[c] = _clean(family.labels[r - family.first])
    return [f"x_{c}_{name}" for c, name in enumerate(label)]


def _clean(name: str) -> str:
    return re.sub(r"\W+", "_", name, flags=re.ASCII)


def _engine(limits: SolveLimits, folder: str, has_start: bool) -> tuple[Any, Path]:
    """Return PuLP's solver object, or None, and the file of its log."""
    import pulp

    log_file = Path(folder) / "log.txt"
    common: dict[str, Any] = {
        "msg": False,
        "gapRel": min(limits.gap / (1.0 + limits.gap), 1.0) if math.isfinite(limits.gap) else 1.0,
    }  # CBC measures the gap relative to the larger of value and bound
    if math.isfinite(limits.time_s):
        common["timeLimit"] = limits.time_s
    seed = limits.seed % (2**31 - 2) + 1  # 0 would mean the time of day
    cbc = [
        f"randomSeed {seed}",
        f"randomCbcSeed {seed}",
        "primalTolerance 1e-9",
        "integerTolerance 1e-9",
    ]
    for name in PREFERRED:
        engine = pulp.getSolver(
            name,
            **common,
            options=cbc,
            warmStart=has_start,
            logPath=str(log_file),
            threads=limits.threads if limits.threads > 1 else None,
        )
        if engine.available():
            engine.tmpDir = folder
            return engine, log_file
    for name in pulp.listSolvers(onlyAvailable=True):
        engine = pulp.getSolver(name, **common)
        if hasattr(engine, "tmpDir"):
            engine.tmpDir = folder
        return engine, log_file
    return None, log_file


def _answer(
    model: LinearModel,
    problem: Any,
    x: list[Any],
    scale: float,
    log: str,
    in_time: bool,
    gap: float,
) -> SolverResult:
    import pulp

    values = None
    objective = -math.inf
    if problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        values = round_values(model, np.array([v.value() or 0.0 for v in x]))
        objective = float(model.value @ values)
    claims_infeasible = problem.sol_status == pulp.LpSolutionInfeasible or INFEASIBLE.search(log)
    if values is None and claims_infeasible:
        return (
            SolverResult(Termination.INFEASIBLE, bound=-math.inf)
            if in_time
            else SolverResult(Termination.TIME_LIMIT)
        )
    by_log = read_log(log)
    # without a line "Lower bound" CBC has cut off plans within the asked gap, and calls that
    # search complete
    unseen = 0.0 if "Lower bound:" in log or values is None else gap * max(abs(objective), 1e-9)
    bound = max(-by_log[1] / scale + unseen, objective) if by_log else math.inf
    if values is not None and problem.sol_status == pulp.LpSolutionOptimal and by_log and by_log[0]:
        return SolverResult(Termination.GAP, values, objective, bound)
    if not log and problem.sol_status == pulp.LpSolutionOptimal:
        return SolverResult(Termination.GAP, values, objective, bound)
    if by_log or problem.sol_status in (
        pulp.LpSolutionIntegerFeasible,
        pulp.LpSolutionNoSolutionFound,
    ):
        return SolverResult(Termination.TIME_LIMIT, values, objective, bound)
    return SolverResult(
        Termination.FAILED,
        values,
        objective,
        bound,
        detail=f"PuLP: {pulp.LpStatus[problem.status]}, {pulp.LpSolution[problem.sol_status]}",
    )


def read_log(log: str) -> tuple[bool, float] | None:
    """Return from CBC's log whether the asked gap was proven, and the lower bound of the minimum.

    The result is None if the log has neither.
    """
    proven = (
        re.search(r"^Result - Optimal solution found|^Optimal - objective value", log, re.MULTILINE)
        is not None
    )
    if bounds := re.findall(rf"^Lower bound:\s+{NUMBER}", log, re.MULTILINE):
        return proven, float(bounds[-1]) - DECIMALS
    if proven and (
        bounds := re.findall(
            rf"^(?:Objective value:|Optimal - objective value)\s+{NUMBER}", log, re.MULTILINE
        )
    ):
        return proven, float(bounds[-1])
    return None
