"""`allocator import`: published traces as workloads for `simulate`."""

from __future__ import annotations

import argparse
from typing import Any

from allocator.cli.models import import_market
from allocator.cli.output import note, print_json
from allocator.cli.parsing import HOUR_S, duration, number, parse_integer, show_help_alone
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


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "import", examples=EXAMPLES, help="a published trace as a workload", description=ABOUT
    )
    show_help_alone(parser)
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", parser_class=type(parser))
    _format(formats, "auto", FormatEntry("", "FILE", "whichever of the formats below the file is"))
    for name, entry in FORMATS.items():
        _format(formats, name, entry)
    import_market.add(formats)


def _format(formats: Any, name: str, entry: FormatEntry) -> None:
    parser = formats.add_parser(
        name,
        help=entry.help,
        description=f"{entry.help}.",
        examples=(
            f"allocator import {name} {entry.source} --out DIR\n"
            f"allocator import {name} {entry.source} --hours 24 --load 1.2 --seed 7 --out DIR"
        ),
    )
    parser.add_argument("source", metavar=entry.source, help="file of the trace, plain or gzip")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.set_defaults(call=call, format_name=name, extras=tuple(e.name for e in entry.extras))
    if entry.extras:
        own = parser.add_argument_group("this format")
        for extra in entry.extras:
            own.add_argument(
                f"--{extra.name}",
                metavar=extra.metavar,
                help=extra.help,
                action="append",
                dest=f"extra_{extra.name}",
            )
    group = parser.add_argument_group("which jobs")
    group.add_argument(
        "--from",
        dest="start",
        metavar="T",
        help=(
            "begin of the window: seconds on the trace's clock, or a date (default: its first"
            " second)"
        ),
    )
    group.add_argument(
        "--hours",
        type=duration(1e-6, unit_s=HOUR_S),
        metavar="TIME",
        help="length of the window in hours, or as 90min (default: to the end)",
    )
    group.add_argument(
        "--max-hours",
        type=duration(1e-6, infinite=True, unit_s=HOUR_S),
        metavar="TIME",
        help="cut longer jobs to these hours, or to 90min (default: none; philly: 168; inf = none)",
    )
    group.add_argument(
        "--jobs", type=parse_integer(1), metavar="N", help="only the first N jobs of the window"
    )
    group.add_argument(
        "--load",
        type=number(1e-9),
        metavar="X",
        help="thin or clone jobs at random until GPU-seconds asked for = X times those there are",
    )
    group.add_argument(
        "--seed",
        type=parse_integer(0),
        default=0,
        metavar="N",
        help="of everything drawn (default: 0)",
    )
    group = parser.add_argument_group("cluster and sizes")
    group.add_argument(
        "--gpus",
        type=_gpus,
        metavar="N",
        help="GPUs of the cluster (default: the format's own); slurm: also a100=128,v100=64",
    )
    group.add_argument(
        "--gpus-per-node",
        type=parse_integer(1, 10_000),
        metavar="N",
        help="default: 8, or the format's own",
    )
    group.add_argument(
        "--max-factor",
        type=number(1, infinite=True),
        metavar="F",
        help=(
            "max_gpus = F times the GPUs asked for, min_gpus = 1 (default: 4 for gavel, inf for"
            " sia; the other formats say nothing of other sizes, and jobs run as asked for)"
        ),
    )
    group.add_argument(
        "--max-gpus",
        type=parse_integer(1, 10_000_000),
        default=64,
        metavar="N",
        help="no job grows beyond N GPUs unless it asks for more (default: 64)",
    )
    group.add_argument(
        "--rigid", action="store_true", help="every job runs at the size asked for, or not at all"
    )
    group.add_argument(
        "--rule-sizes",
        action="store_true",
        help="only powers of two in a node and whole nodes, even if a job asks for another size",
    )
    group.add_argument(
        "--curves",
        type=_numbers,
        metavar="C,C",
        help=(
            "overheads per further GPU to draw from, for traces without speeds and --max-factor "
            "(default: 0.005,0.01,0.02,0.04,0.08,0.15)"
        ),
    )


def _gpus(text: str) -> int | dict[str, int]:
    whole = parse_integer(1, 10_000_000)
    if "=" not in text:
        return whole(text)
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): whole(n) for name, _, n in pairs}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(number()(part) for part in text.split(","))


def call(args: argparse.Namespace) -> int:
    from allocator.io.traces.base import CURVES, TraceOptions
    from allocator.io.traces.run import import_trace, write_tables

    given = {name: getattr(args, f"extra_{name}") for name in args.extras}
    by_type = args.gpus if isinstance(args.gpus, dict) else {}
    options = TraceOptions(
        start=args.start,
        hours=args.hours,
        max_hours=args.max_hours,
        jobs=args.jobs,
        load=args.load,
        gpus=None if by_type else args.gpus,
        gpus_by_type=by_type,
        gpus_per_node=args.gpus_per_node,
        max_factor=args.max_factor,
        most_gpus=args.max_gpus,
        rigid=args.rigid,
        rule_sizes=args.rule_sizes,
        curves=args.curves or CURVES,
        seed=args.seed,
        extra={k: tuple(v) for k, v in given.items() if v},
    )
    tables, summary = import_trace(args.format_name, args.source, options)
    folder = write_tables(tables, args.out)
    note(*summary.lines(), f"written to {folder}")
    if args.format == "json":
        print_json({"folder": str(folder), **vars(summary)})
    return 0
