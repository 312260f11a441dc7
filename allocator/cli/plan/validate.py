"""`allocator validate`: report every fault of a snapshot or a workload at once."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from allocator.cli.output import describe_fault, print_json, warn
from allocator.cli.parsing import command, formats, option

if TYPE_CHECKING:
    from allocator.domain.problem import Problem

EXAMPLES = """
allocator validate data/snapshots/demo
allocator validate my-workload                   a folder with workload.csv
allocator validate my-cluster --format json      every fault by itself, for programs
"""
ABOUT = """\
Check a snapshot or workload folder. Faults go to standard error, exit code 3; many that differ only
in their line and job are one line with their number. With --format json standard output has every
fault and every warning."""


@command(
    "validate",
    "every fault of the input at once",
    ABOUT,
    EXAMPLES,
    option("snapshot", "FOLDER", "folder with jobs.csv or workload.csv, pools.csv ..."),
    formats("table", "json"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.errors import InvalidInput

    try:
        problem, changes = _read_and_validate(args.snapshot)
    except InvalidInput as error:
        if args.format == "json":
            _print_findings(map(describe_fault, error.faults), error.warnings)
        raise
    if args.format == "json":
        _print_findings([], problem.warnings)
    warn(problem.warnings)
    gpus = int(problem.pools.gpus.sum())
    counts = [
        ("jobs", len(problem.jobs)),
        ("pools", len(problem.pools)),
        ("GPUs", gpus),
        ("tenants", len(problem.tenants)),
        ("models", len(problem.models)),
        ("rates", len(problem.rates.rate)),
    ]
    if changes is not None:
        counts.append(("changes", changes))
    if args.format != "json":
        print("valid: " + ", ".join(f"{n} {name[:-1] if n == 1 else name}" for name, n in counts))
    return 0


def _read_and_validate(folder: str) -> tuple[Problem, int | None]:
    """Return the Problem of a folder, and how often the machines of a workload change."""
    from allocator import read_snapshot, validate
    from allocator.io.workloads import is_workload, read_workload

    if is_workload(folder):
        workload = read_workload(folder)
        return workload.problem, len(workload.changes)
    return validate(read_snapshot(folder)), None


def _print_findings(faults: Iterable[dict[str, Any]], warnings: Sequence[str]) -> None:
    found = list(faults)
    print_json({"valid": not found, "faults": found, "warnings": list(warnings)})
