"""`allocator solve`: one decision per snapshot folder."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allocator.cli.output import tell_details, warn
from allocator.cli.parsing import (
    command,
    effort,
    flag,
    formats,
    group,
    objective,
    option,
    parse_integer,
    settings,
    take,
)
from allocator.cli.progress import Progress
from allocator.cli.request import Request, decide_folder
from allocator.errors import UsageError

EXAMPLES = """
allocator solve data/snapshots/demo
allocator solve data/snapshots/demo --solver highs --time-limit 1 --out plans --format json
allocator solve snapshots/* --jobs 2 --out plans          a batch: plans/NAME/plan.json, a line each
"""
OBJECTS = 100_000  # new objects that may be in cycles after which these are searched for
ABOUT = """\
Decide which job gets what. Several folders are a batch: a summary line each (JSON lines with
--format json), one failure does not stop the others, and the exit code is the gravest: 1, then 2,
3, 4, 5, 0."""


@command(
    "solve",
    "one decision per snapshot folder",
    ABOUT,
    EXAMPLES,
    option("snapshots", "SNAPSHOT", "folder with jobs.csv, pools.csv, rates.csv ...", nargs="+"),
    option(
        "--policy",
        "NAME",
        "mip (default), horizon, marginal, greedy, las, sia ...; an unknown name lists all",
        default="mip",
    ),
    objective(),
    *settings("config.toml's", "budget", "horizon"),
    effort(),
    group(
        "output",
        option("--out", "DIR", "write plan.json and plan.csv there; a batch into DIR/NAME/"),
        formats("table", "json", "csv"),
        flag("--reasons", "on a terminal: all jobs, and why each gets less than it could use"),
        option("--jobs", "N", "snapshots at the same time (default: 1)", parse_integer(1, 1024), 1),
        option(
            "--log",
            "FILE",
            "write there what was done: prices, steps and log of "
            "the solver, bound (one snapshot only)",
        ),
        option(
            "--write-model",
            "FILE",
            "write the round's model too, as .mps, .lp or .npz (one snapshot only)",
        ),
    ),
)
def call(args: argparse.Namespace) -> int:
    request = take(Request, args)
    request.check()
    if args.write_model:
        from allocator.io.performance_models import check_format

        check_format(args.write_model)
    if len(args.snapshots) == 1:
        with _rare_collections():
            return _one(args, request)
    from allocator.cli.plan.batch import batch

    for name, given in (("--log", args.log), ("--write-model", args.write_model)):
        if given:
            raise UsageError(f"{name} takes one snapshot, this is a batch")
    return batch(args.snapshots, request, args.out, args.format, args.jobs)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Search for cycles among objects rarely: every search visits all cells of a snapshot.

    A decision makes hardly any cycles, and the process ends soon.
    """
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _one(args: argparse.Namespace, request: Request) -> int:
    from allocator.cli.plan.plan_show import log_lines, show_plan
    from allocator.io import plans

    if args.write_model:
        _write_model(args.snapshots[0], request, args.write_model)
    progress = Progress(is_valued=request.policy == "mip")
    with progress.shown("solve"):
        result = decide_folder(args.snapshots[0], request, progress, log=bool(args.log))
    warn(result.warnings)
    tell_details(*log_lines(result, progress.notes))
    if args.out:
        plans.write_plan(result, args.out)
    if args.log:
        path = Path(args.log)
        plans.write_files(
            path.parent, {path.name: "\n".join(log_lines(result, progress.notes)) + "\n"}
        )
    if args.format == "json":
        sys.stdout.write(plans.to_json(result))
    elif args.format == "csv":
        sys.stdout.write(plans.to_csv(result))
    else:
        show_plan(result, args.reasons)
    return 0


def _write_model(folder: str, request: Request, path: str) -> None:
    """Write the model that `solve` would give to a solver; raises the errors of reading it."""
    from allocator import read_snapshot, validate
    from allocator.engine.decision import override_settings
    from allocator.io.performance_models import write_model
    from allocator.options.instance_building import compile_round

    problem = override_settings(validate(read_snapshot(folder)), request.objective, request.budget)
    write_model(compile_round(problem).model, path)
