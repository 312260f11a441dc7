"""`allocator explain`: why one job got what it got, and what would change it."""

from __future__ import annotations

import argparse

from allocator.cli.output import print_lines, show_result, warn
from allocator.cli.parsing import (
    POLICY,
    command,
    effort,
    folder_or_queue,
    formats,
    objective,
    option,
    parse_integer,
    settings,
)

EXAMPLES = """
allocator explain data/snapshots/demo llm-tune
allocator explain my-cluster bert-3 --objective flow --budget 40 --time-limit 2
allocator explain cluster.db bert-3
"""


@command(
    "explain",
    "why a job got what it got, and what would change it",
    "The reason, the numbers behind it, the price to beat, the smallest changes that would"
    " admit the job, and who would lose. Each change was verified: with these values in the"
    " files, the same options give the job what is said. Each decision made on the way has"
    " the given time limit.",
    EXAMPLES,
    folder_or_queue("SNAPSHOT", "snapshot folder"),
    option("job", "JOB", "job_id of the job"),
    POLICY,
    objective(),
    *settings("config.toml's", "budget", "horizon"),
    option(
        "--tries",
        "N",
        "decisions that the search for changes may make (default: 3 to 60, fewer in larger rounds)",
        parse_integer(0),
    ),
    formats("text", "json"),
    effort(),
)
def call(args: argparse.Namespace) -> int:
    from allocator import validate
    from allocator.cli.models.sources import read_source
    from allocator.engine.explain import explain
    from allocator.solvers.base import SolveLimits

    snapshot = read_source(args.folder_or_queue)
    warn(validate(snapshot).warnings)
    limits = SolveLimits(args.time_limit_s, args.gap, args.threads, args.seed)
    told = explain(
        snapshot,
        args.job,
        policy=args.policy,
        objective=args.objective,
        budget=args.budget,
        horizon=args.horizon,
        solver=args.solver,
        limits=limits,
        tries=args.tries,
    )
    show_result(args.format, told.to_dict(), lambda: print_lines(told.lines()))
    return 0
