"""`allocator import spot-...`: import published spot markets.

They become capacity.csv and prices.csv, or replace those of a workload.
"""

from __future__ import annotations

import argparse
from typing import Any

from allocator.cli.output import note, print_json, warn
from allocator.cli.parsing import HOUR_S, duration, number, parse_integer
from allocator.io.formats import FormatEntry
from allocator.io.markets.registry import MARKETS


def add(formats: Any) -> None:
    """Add a command for each format."""
    for name, entry in MARKETS.items():
        _format(formats, name, entry)


def _format(formats: Any, name: str, entry: FormatEntry) -> None:
    parser = formats.add_parser(
        name,
        help=entry.help,
        description=f"{entry.help}.",
        examples=(
            f"allocator import {name} {entry.source} --out DIR\nallocator import {name}"
            f" {entry.source} --onto WORKLOAD --pool ZONE=a100-spot --hours 48 --out DIR"
        ),
    )
    parser.add_argument("source", metavar=entry.source, nargs="+", help="files, plain or gzip")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--onto",
        metavar="WORKLOAD",
        help=(
            "write this workload with the market's changes for the pools "
            "named by --pool; without it pools.csv, capacity.csv and prices.csv alone"
        ),
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="ZONE=POOL",
        help="the market's pool ZONE becomes the workload's POOL; may be given more than once",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=duration(),
        default=0.0,
        metavar="TIME",
        help="begin of the window, seconds after the first moment of the sources (default: 0)",
    )
    parser.add_argument(
        "--hours",
        type=duration(1e-6, unit_s=HOUR_S),
        metavar="TIME",
        help="length of the window in hours, or as 90min (default: to the end)",
    )
    parser.add_argument(
        "--gpus", type=parse_integer(1, 10_000), metavar="N", help="GPUs of one machine"
    )
    parser.add_argument(
        "--on-demand",
        type=number(1e-9),
        metavar="USD",
        help="price on demand per GPU-hour that spot prices should be below",
    )
    parser.set_defaults(call=call, format_name=name)


def call(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError
    from allocator.io.markets.base import MarketOptions
    from allocator.io.markets.run import TimeWindow, import_markets, onto, write_market

    names = dict(_pair(text) for text in args.pool)
    if bool(args.onto) != bool(names):
        raise UsageError("--onto WORKLOAD and --pool ZONE=POOL go together")
    market = import_markets(
        args.format_name,
        args.source,
        MarketOptions(args.gpus, args.on_demand),
        TimeWindow(args.start, args.hours),
    )
    note(*market.notes)
    warn(market.warnings)
    if args.onto:
        from allocator.io.workloads import read_workload, write_workload

        folder = write_workload(args.out, onto(read_workload(args.onto), market, names))
    else:
        folder = write_market(market, args.out)
    pools = ", ".join(s.pool for s in market.series[:8]) + (
        " ..." if len(market.series) > 8 else ""
    )
    note(f"pools: {pools}; written to {folder}")
    if args.format == "json":
        print_json({"folder": str(folder), "pools": [s.pool for s in market.series]})
    return 0


def _pair(text: str) -> tuple[str, str]:
    from allocator.errors import UsageError

    zone, equals, pool = text.partition("=")
    if not (equals and zone and pool):
        raise UsageError(f"--pool {text}: write ZONE=POOL")
    return zone, pool
