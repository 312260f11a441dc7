"""The Python calls of contract section 6."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from allocator.decision import decide
from allocator.domain.validate import validate
from allocator.errors import UsageError
from allocator.solvers.base import Limits, Solver
from allocator.solvers.effort import GAP

if TYPE_CHECKING:
    from allocator.domain.result import Result
    from allocator.domain.snapshot import Snapshot


def solve(
    snapshot: Snapshot,
    *,
    policy: str = "mip",
    objective: str | None = None,
    solver: str | Solver = "auto",
    time_limit_s: float = math.inf,
    gap: float = GAP,
    budget: float | None = None,
    horizon: int | None = None,
    seed: int = 0,
    threads: int = 1,
    read_s: float = 0.0,
) -> Result:
    """One audited decision for a snapshot. Nothing is printed, nothing is changed.

    objective, budget (US dollars per hour), horizon (intervals that the policy `horizon` plans):
    override config.toml. time_limit_s: seconds for the whole decision; a plan is there by then plus
    one second. gap: relative proof to stop at, (bound - value) / max(|value|, 1e-9); its default is
    that of the commands (solvers/effort.py), which have a time limit by default, too. seed,
    threads: handed to the solver. read_s: seconds spent reading, for the report of timings. Raises
    InvalidInput, Infeasible, NoPlanInTime, UsageError (allocator/errors.py).
    """
    if not (time_limit_s >= 0 and gap >= 0 and threads >= 1):
        raise UsageError(
            f"time_limit_s {time_limit_s}, gap {gap} must not be negative, threads {threads} at"
            " least 1"
        )
    begin = time.monotonic()
    problem = validate(snapshot)
    validate_s = time.monotonic() - begin
    seconds = {"read": read_s, "validate": validate_s}
    limits = Limits(max(0.0, time_limit_s - validate_s), gap, threads, seed)
    return decide(
        problem,
        policy=policy,
        solver=solver,
        limits=limits,
        objective=objective,
        budget=budget,
        horizon=horizon,
        seconds=seconds,
    )
