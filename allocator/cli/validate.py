"""`allocator validate`: every fault of a snapshot or a workload at once."""

from __future__ import annotations

import argparse
import sys
from typing import Any

EXAMPLES = """
allocator validate data/snapshots/demo
allocator validate my-cluster 2> faults.txt
allocator validate my-workload                   a folder with workload.csv
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("validate", examples=EXAMPLES, help="every fault of the input at once",
                                 description="Check a snapshot or workload folder. Faults go to standard error, exit "
                                             "code 3.")
    parser.add_argument("snapshot", metavar="FOLDER", help="folder with jobs.csv or workload.csv, pools.csv ...")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator import read_snapshot, validate
    from allocator.files.workloads import is_workload, read_workload

    changes = None
    if is_workload(args.snapshot):
        workload = read_workload(args.snapshot)
        problem, changes = workload.problem, len(workload.changes)
    else:
        problem = validate(read_snapshot(args.snapshot))
    for warning in problem.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    gpus = int(problem.pools.gpus.sum())
    counts = [("jobs", len(problem.jobs)), ("pools", len(problem.pools)), ("GPUs", gpus),
              ("tenants", len(problem.tenants)), ("models", len(problem.models)), ("rates", len(problem.rates.rate))]
    if changes is not None:
        counts.append(("changes", changes))
    print("valid: " + ", ".join(f"{n} {name[:-1] if n == 1 else name}" for name, n in counts))
    return 0
