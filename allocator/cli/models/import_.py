"""`allocator import`: published traces as workloads for `simulate`."""

from __future__ import annotations

import argparse

from allocator.cli.models.import_market import MARKET_COMMANDS, OUT
from allocator.cli.output import note, show_result
from allocator.cli.parsing import (
    HOUR_S,
    Command,
    CommandGroup,
    duration,
    flag,
    group,
    many,
    number,
    option,
    parse_integer,
    repeated,
    take,
)
from allocator.io.formats import FormatEntry
from allocator.io.traces.registry import FORMATS

EXAMPLES = """
allocator import philly philly.csv.gz --gpus 1000 --from 2017-10-09 --hours 24 --load 1.0 --out day
allocator import sia workloads/philly/workload-1.csv --out sia-1
allocator import slurm history.txt --gpus a100=128,v100=64 --out mine
allocator import csv jobs.csv --map submitted_s=submit_time --map gpus=gpu_num --gpus 64 --out mine
"""
ABOUT = """\
Turn a published trace into a workload folder (workload.csv, pools.csv, rates.csv). `auto`
recognises the format. What was read, dropped and why goes to standard error. docs/traces.md
describes every format."""


def _gpus(text: str) -> int | dict[str, int]:
    whole = parse_integer(1, 10_000_000)
    if "=" not in text:
        return whole(text)
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): whole(n) for name, _, n in pairs}


def import_jobs(args: argparse.Namespace) -> int:
    from allocator.io.traces.base import TraceOptions
    from allocator.io.traces.run import import_trace, write_tables

    given = {name: getattr(args, f"extra_{name}") for name in args.extras}
    by_type = args.gpus if isinstance(args.gpus, dict) else {}
    extra = {name: tuple(values) for name, values in given.items() if values}
    if by_type:
        args.gpus = None
    options = take(TraceOptions, args, gpus_by_type=by_type, extra=extra)
    tables, summary = import_trace(args.format_name, args.source, options)
    folder = write_tables(tables, args.out)
    note(*summary.lines(), f"written to {folder}")
    show_result(args.format, {"folder": str(folder), **vars(summary)})
    return 0


JOBS = (
    group(
        "which jobs",
        option(
            "--from",
            "T",
            "begin of the window: seconds on the trace's clock, or a date (default: its first"
            " second)",
            dest="start",
        ),
        option(
            "--hours",
            "TIME",
            "length of the window in hours, or as 90min (default: to the end)",
            duration(1e-6, unit_s=HOUR_S),
        ),
        option(
            "--max-hours",
            "TIME",
            "cut longer jobs to these hours, or to 90min (default: none; philly: 168; inf = none)",
            duration(1e-6, infinite=True, unit_s=HOUR_S),
        ),
        option("--jobs", "N", "only the first N jobs of the window", parse_integer(1)),
        option(
            "--load",
            "X",
            "thin or clone jobs at random until GPU-seconds asked for = X times those there are",
            number(1e-9),
        ),
        option("--seed", "N", "of everything drawn (default: 0)", parse_integer(0), 0),
    ),
    group(
        "cluster and sizes",
        option(
            "--gpus",
            "N",
            "GPUs of the cluster (default: the format's own); slurm: also a100=128,v100=64",
            _gpus,
        ),
        option(
            "--gpus-per-node",
            "N",
            "default: 8, or the format's own",
            parse_integer(1, 10_000),
        ),
        option(
            "--max-factor",
            "F",
            "max_gpus = F times the GPUs asked for, min_gpus = 1 (default: 4 for gavel, inf for"
            " sia; the other formats say nothing of other sizes, and jobs run as asked for)",
            number(1, infinite=True),
        ),
        option(
            "--max-gpus",
            "N",
            "no job grows beyond N GPUs unless it asks for more (default: 64)",
            parse_integer(1, 10_000_000),
            64,
            dest="most_gpus",
        ),
        flag("--rigid", "every job runs at the size asked for, or not at all"),
        flag(
            "--rule-sizes",
            "only powers of two in a node and whole nodes, even if a job asks for another size",
        ),
        option(
            "--curves",
            "C,C",
            "overheads per further GPU to draw from, for traces without speeds and --max-factor"
            " (default: 0.005,0.01,0.02,0.04,0.08,0.15)",
            many(number()),
        ),
    ),
)


def _format(name: str, entry: FormatEntry) -> Command:
    extras = [
        repeated(f"--{e.name}", e.metavar, e.help, dest=f"extra_{e.name}") for e in entry.extras
    ]
    return Command(
        name,
        entry.help,
        f"{entry.help}.",
        f"allocator import {name} {entry.source} --out DIR\n"
        f"allocator import {name} {entry.source} --hours 24 --load 1.2 --seed 7 --out DIR",
        (
            option("source", entry.source, "file of the trace, plain or gzip"),
            OUT,
            *([group("this format", *extras)] if extras else []),
            *JOBS,
        ),
        import_jobs,
        defaults={"format_name": name, "extras": [e.name for e in entry.extras]},
    )


ANY = FormatEntry("", "FILE", "whichever of the formats below the file is")
call = CommandGroup(
    "import",
    "a published trace as a workload",
    ABOUT,
    EXAMPLES,
    (
        *(_format(name, entry) for name, entry in {"auto": ANY, **FORMATS}.items()),
        *MARKET_COMMANDS,
    ),
    title="formats",
    metavar="FORMAT",
)
