"""`allocator import spot-...`: import published spot markets.

They become capacity.csv and prices.csv, or replace those of a workload.
"""

from __future__ import annotations

import argparse

from allocator.cli.output import note, show_result, warn
from allocator.cli.parsing import (
    HOUR_S,
    Command,
    duration,
    number,
    option,
    pair,
    parse_integer,
    repeated,
)
from allocator.io.markets.registry import MARKETS


def import_market(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError
    from allocator.io.markets.base import MarketOptions
    from allocator.io.markets.run import TimeWindow, import_markets, onto, write_market

    names = dict(args.pool)
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
    show_result(args.format, {"folder": str(folder), "pools": [s.pool for s in market.series]})
    return 0


OUT = option("--out", "DIR", "folder to write", required=True)
MARKET_COMMANDS = [
    Command(
        name,
        entry.help,
        f"{entry.help}.",
        f"allocator import {name} {entry.source} --out DIR\nallocator import {name}"
        f" {entry.source} --onto WORKLOAD --pool ZONE=a100-spot --hours 48 --out DIR",
        (
            option("source", entry.source, "files, plain or gzip", nargs="+"),
            OUT,
            option(
                "--onto",
                "WORKLOAD",
                "write this workload with the market's changes for the pools named by --pool;"
                " without it pools.csv, capacity.csv and prices.csv alone",
            ),
            repeated(
                "--pool",
                "ZONE=POOL",
                "the market's pool ZONE becomes the workload's POOL; may be given more than once",
                type=pair("ZONE=POOL"),
            ),
            option(
                "--from",
                "TIME",
                "begin of the window, seconds after the first moment of the sources (default: 0)",
                duration(),
                0.0,
                dest="start",
            ),
            option(
                "--hours",
                "TIME",
                "length of the window in hours, or as 90min (default: to the end)",
                duration(1e-6, unit_s=HOUR_S),
            ),
            option("--gpus", "N", "GPUs of one machine", parse_integer(1, 10_000)),
            option(
                "--on-demand",
                "USD",
                "price on demand per GPU-hour that spot prices should be below",
                number(1e-9),
            ),
        ),
        import_market,
        defaults={"format_name": name},
    )
    for name, entry in MARKETS.items()
]
