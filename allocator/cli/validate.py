"""`allocator validate`: every fault of a snapshot at once."""

from __future__ import annotations

import argparse
import sys
from typing import Any

EXAMPLES = """
allocator validate data/snapshots/demo
allocator validate my-cluster 2> faults.txt
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("validate", examples=EXAMPLES, help="every fault of the input at once",
                                 description="Check a snapshot folder. Faults go to standard error, exit code 3.")
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="folder with jobs.csv, pools.csv, rates.csv ...")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator import read_snapshot, validate

    problem = validate(read_snapshot(args.snapshot))
    for warning in problem.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    gpus = int(problem.pools.gpus.sum())
    counts = (("jobs", len(problem.jobs)), ("pools", len(problem.pools)), ("GPUs", gpus),
              ("tenants", len(problem.tenants)), ("models", len(problem.models)), ("rates", len(problem.rates.rate)))
    print("valid: " + ", ".join(f"{n} {name[:-1] if n == 1 else name}" for name, n in counts))
    return 0
