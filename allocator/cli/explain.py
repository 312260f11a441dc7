"""`allocator explain`: why one job got what it got, and what would change it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from allocator.cli.parsing import add_effort

EXAMPLES = """
allocator explain data/snapshots/demo bert-3
allocator explain my-cluster bert-3 --time-limit 2
allocator explain my-cluster bert-3 --format json
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "explain", examples=EXAMPLES, help="why a job got what it got, and what would change it",
        description="The reason, the numbers behind it, the price to beat, the nearest change that would admit the "
                    "job, and who would lose. Each decision made on the way has the given time limit.")
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="snapshot folder")
    parser.add_argument("job", metavar="JOB", help="job_id of the job")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    add_effort(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator import read_snapshot, validate
    from allocator.explain import explain
    from allocator.files.plans import dumps
    from allocator.solvers.base import Limits

    problem = validate(read_snapshot(args.snapshot))
    for warning in problem.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    limits = Limits(args.time_limit, args.gap, args.threads, args.seed)
    told = explain(problem, args.job, limits=limits, solver=args.solver)
    print(dumps(told.to_dict()) if args.format == "json" else "\n".join(told.lines()))
    return 0
