"""How `allocator solve` decides one snapshot folder, also as a line of a batch."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from allocator import AllocatorError, Plan, read_snapshot, validate
from allocator.cli.output import Values, pick
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decision import decide
from allocator.io.plans import write_plan

OF_PLAN = ("objective_value", "bound", "gap", "solver", "termination", "fallback")
FIELDS = ("snapshot", "exit_code", "status", *OF_PLAN, "seconds", "plan", "error")
"""What the line of a snapshot has: what was decided, or why not."""


def decide_folder(folder: str, command: SolveCommand) -> Plan:
    """Read, validate and decide one snapshot folder."""
    begin = time.monotonic()
    snapshot = read_snapshot(folder)
    read = time.monotonic()
    problem = validate(snapshot)
    seconds = {"read": read - begin, "validate": time.monotonic() - read}
    left = max(0.0, command.limits.time_s - seconds["validate"])
    how = vars(command) | {"limits": replace(command.limits, time_s=left)}
    return decide(problem, **how, seconds=seconds)


def summarise(folder: str, command: SolveCommand, out: str | None) -> Values:
    """Decide one snapshot of a batch, write its plan to `out`, and return its line.

    A fault is a line, too.
    """
    begin = time.monotonic()
    try:
        result = decide_folder(folder, command)
        written = None if out is None else write_plan(result, Path(out) / snapshot_name(folder))
    except AllocatorError as error:
        status = {3: "invalid", 4: "infeasible", 5: "no plan"}.get(error.exit_code, "error")
        found = describe_fault(folder, str(error), error.exit_code, status, error.warnings)
    except Exception as error:
        found = describe_fault(folder, f"internal error: {type(error).__name__}: {error}")
    else:
        found = {
            **describe_fault(folder, None, 0, result.status, result.warnings),
            **pick(result, *OF_PLAN),
            "plan": None if written is None else str(written[0]),
        }
    return found | {"seconds": time.monotonic() - begin}


def describe_fault(
    folder: str,
    error: str | None,
    exit_code: int = 1,
    status: str = "error",
    warnings: Sequence[str] = (),
) -> Values:
    """Return the line of a snapshot that was not decided."""
    return dict.fromkeys(FIELDS) | {
        "snapshot": snapshot_name(folder),
        "exit_code": exit_code,
        "status": status,
        "seconds": 0.0,
        "error": error,
        "warnings": warnings,
    }


def snapshot_name(folder: str) -> str:
    """Return the name of a snapshot in a batch: that of its folder."""
    return os.path.basename(os.path.abspath(folder)) or "snapshot"


def solve(order: tuple[str, SolveCommand, str | None], *_: object) -> Values:
    """Return the line of a snapshot; what a worker process of a batch calls."""
    return summarise(*order)
