"""Solve models by OR-Tools CP-SAT.

The model is written in whole numbers (integers.py), and passed to CP-SAT's protocol buffer in bulk.
The bound is that of the integer model, plus the proven error of the scaling.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.integers import FREE, IntegerModel, NotInteger, integer_model
from formulations.model.linear import Floats, LinearModel

INT64 = 2**63 - 1


def version() -> str:
    """Return the version of OR-Tools; this loads the library."""
    import ortools
    from ortools.sat.python import cp_model  # noqa: F401 - loading it now is the point

    return str(getattr(ortools, "__version__", ""))


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve by CP-SAT, see base.Backend; FAILED if a column is continuous or unbounded.

    In rare cases a plan of the integer model breaks a row by less than rounding. Then the model
    that is rounded inwards is solved as well. The answer has the plan of that model and the bound
    of the first.
    """
    begin = time.monotonic()
    try:
        answer = _solve(model, integer_model(model), limits, hint, report)
        if answer.values is None or model.feasible(answer.values):
            return answer
        left = replace(limits, time_s=max(0.0, limits.time_s - (time.monotonic() - begin)))
        inner = _solve(
            model,
            integer_model(model, relaxed=False),
            left,
            hint,
            lambda values, _: report(values, math.inf),
        )
    except NotInteger as error:
        return SolverResult(Termination.FAILED, detail=str(error))
    ended = (
        Termination.GAP
        if inner.termination is answer.termination is Termination.GAP
        else Termination.TIME_LIMIT
    )
    return replace(inner, termination=ended, bound=answer.bound, log=answer.log + inner.log)


def _solve(
    model: LinearModel,
    whole: IntegerModel,
    limits: SolveLimits,
    hint: WarmStart,
    report: ReportProgress,
) -> SolverResult:
    from ortools.sat.python import cp_model

    begin = time.monotonic()
    if (whole.lower > whole.upper).any():
        return SolverResult(Termination.INFEASIBLE, bound=-math.inf)
    program = cp_model.CpModel()
    _fill(program.proto, whole, hint)
    solver = cp_model.CpSolver()
    log: list[str] = []
    _set(solver, replace(limits, time_s=limits.time_s - (time.monotonic() - begin)), log)
    proven = [math.inf]
    listener, stream = _listener(cp_model, whole, report, proven)
    solver.best_bound_callback = stream
    status = solver.solve(program, listener)
    bound = whole.bound(solver.best_objective_bound)
    text = "\n".join(log)
    if status == cp_model.INFEASIBLE:
        return SolverResult(Termination.INFEASIBLE, bound=-math.inf, log=text)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        values = np.array(solver.response_proto.solution, dtype=np.float64)
        ended = Termination.GAP if status == cp_model.OPTIMAL else Termination.TIME_LIMIT
        return SolverResult(ended, values, float(model.value @ values), bound, log=text)
    # if CP-SAT stops before the end of presolve, its bound is 0: only announced bounds count
    if status == cp_model.UNKNOWN:
        return SolverResult(Termination.TIME_LIMIT, bound=min(proven), log=text)
    return SolverResult(
        Termination.FAILED,
        log=text,
        detail=f"CP-SAT ended with {solver.status_name()}: {program.validate()[:500]}",
    )


def _void(whole: IntegerModel) -> float:
    """Return a value above every bound that CP-SAT can prove: the bound before it has one."""
    return INT64 / 2 / whole.scale


def _fill(proto: Any, whole: IntegerModel, hint: WarmStart) -> None:
    """Fill in variables, rows, objective and start.

    CP-SAT minimises, so the objective is the negative of the value.
    """
    for pair in np.stack([whole.lower, whole.upper], axis=1).tolist():
        proto.variables.add().domain.extend(pair)
    for columns, exactly in whole.groups:
        row = proto.constraints.add()
        (row.exactly_one if exactly else row.at_most_one).literals.extend(columns.tolist())
    for linear in whole.rows:
        row = proto.constraints.add().linear
        row.vars.extend(linear.column.tolist())
        row.coeffs.extend(linear.coef.tolist())
        row.domain.extend(
            [
                -INT64 - 1 if linear.lower <= -FREE else linear.lower,
                INT64 if linear.upper >= FREE else linear.upper,
            ]
        )
    valued = np.flatnonzero(whole.value)
    proto.objective.vars.extend(valued.tolist())
    proto.objective.coeffs.extend((-whole.value[valued]).tolist())
    proto.objective.scaling_factor = -1.0
    if (
        hint.values is not None
        and hint.values.shape == whole.value.shape
        and np.isfinite(hint.values).all()
    ):
        start = np.clip(np.rint(hint.values), whole.lower, whole.upper).astype(np.int64)
        proto.solution_hint.vars.extend(range(len(start)))
        proto.solution_hint.values.extend(start.tolist())


def _set(solver: Any, limits: SolveLimits, log: list[str]) -> None:
    p = solver.parameters
    p.num_workers = max(1, limits.threads)
    p.random_seed = limits.seed % 2**31
    p.relative_gap_limit = min(max(0.0, limits.gap), 1e9)
    p.absolute_gap_limit = 0.0
    if math.isfinite(limits.time_s):
        p.max_time_in_seconds = max(0.0, limits.time_s)
    # google/or-tools issue 5293: this presolve step can certify a wrong optimum when large sums
    # overflow
    p.presolve_inclusion_work_limit = 0
    if limits.log:
        p.log_search_progress = True
        p.log_to_stdout = False
        solver.log_callback = log.append


def _listener(
    cp_model: Any, whole: IntegerModel, report: ReportProgress, proven: list[float]
) -> tuple[Any, Any]:
    """Return a callback for solutions and one for bounds, which CP-SAT calls from its own threads.

    Bounds are added to `proven`.
    """
    lock = threading.Lock()

    def send(values: Floats | None, bound: float) -> None:
        with lock:
            report(values, bound)

    class Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            values = np.array(self.Response().solution, dtype=np.float64)
            send(values, whole.bound(self.best_objective_bound))

    def stream(bound: float) -> None:
        if whole.bound(bound) < _void(whole):
            proven.append(whole.bound(bound))
            send(None, whole.bound(bound))

    return Listener(), stream
