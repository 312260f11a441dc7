"""The options of a `solve` command, and how one snapshot folder is decided."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.errors import AllocatorError
from allocator.solvers.effort import GAP, TIME_LIMIT_S

if TYPE_CHECKING:
    from allocator.domain.plan import Plan
    from allocator.solvers.base import ProgressWatcher


@dataclass(frozen=True)
class Request:
    """The options of `solve` as plain values, which can be sent to a process as JSON."""

    policy: str = "mip"
    objective: str | None = None
    solver: str = "auto"
    time_limit_s: float = TIME_LIMIT_S
    gap: float = GAP
    budget: float | None = None
    horizon: int | None = None
    seed: int = 0
    threads: int = 1

    def check(self) -> None:
        """Raise UsageError for an unknown policy or solver, before anything is read."""
        from allocator.policies import registry as policies
        from allocator.solvers import registry as solvers

        policies.policy(self.policy)
        if self.solver != "auto":
            solvers.get(self.solver)


@dataclass(frozen=True)
class DecisionSummary:
    """One snapshot of a batch as a line: what was decided, or why not."""

    snapshot: str
    exit_code: int
    status: str
    objective_value: float | None = None
    bound: float | None = None
    gap: float | None = None
    solver: str | None = None
    termination: str | None = None
    fallback: str | None = None
    seconds: float = 0.0
    plan: str | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


def decide_folder(
    folder: str, request: Request, watch: ProgressWatcher | None = None, log: bool = False
) -> Plan:
    """Read, validate and decide one snapshot folder.

    `watch` is told about progress, and `log` keeps the log of the solver. Neither changes the
    decision.
    """
    from allocator import read_snapshot, validate
    from allocator.engine.decision import decide
    from allocator.solvers.base import SolveLimits

    begin = time.monotonic()
    snapshot = read_snapshot(folder)
    read = time.monotonic()
    problem = validate(snapshot)
    seconds = {"read": read - begin, "validate": time.monotonic() - read}
    limits = SolveLimits(
        max(0.0, request.time_limit_s - seconds["validate"]),
        request.gap,
        request.threads,
        request.seed,
        log,
        watch,
    )
    return decide(
        problem,
        policy=request.policy,
        solver=request.solver,
        limits=limits,
        objective=request.objective,
        budget=request.budget,
        horizon=request.horizon,
        seconds=seconds,
    )


def summarise(folder: str, request: Request, out: str | None) -> DecisionSummary:
    """Decide one snapshot of a batch and write its plan to `out`.

    Every fault becomes a DecisionSummary.
    """
    from allocator.io.plans import write_plan

    begin = time.monotonic()
    name = snapshot_name(folder)
    try:
        result = decide_folder(folder, request)
        plan = None if out is None else str(write_plan(result, Path(out) / name)[0])
    except AllocatorError as error:
        status = {3: "invalid", 4: "infeasible", 5: "no plan"}.get(error.exit_code, "error")
        return DecisionSummary(
            name,
            error.exit_code,
            status,
            seconds=time.monotonic() - begin,
            error=str(error),
            warnings=error.warnings,
        )
    except Exception as error:
        return DecisionSummary(
            name,
            1,
            "error",
            seconds=time.monotonic() - begin,
            error=f"internal error: {type(error).__name__}: {error}",
        )
    return DecisionSummary(
        name,
        0,
        result.status,
        result.objective_value,
        result.bound,
        result.gap,
        result.solver,
        result.termination,
        result.fallback,
        time.monotonic() - begin,
        plan,
        None,
        result.warnings,
    )


def snapshot_name(folder: str) -> str:
    """Return the name of a snapshot in a batch: that of its folder."""
    return os.path.basename(os.path.abspath(folder)) or "snapshot"
