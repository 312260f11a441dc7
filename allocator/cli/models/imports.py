"""`allocator import`: published traces as workloads for `simulate`, and published spot markets.

A market becomes capacity.csv and prices.csv, or replaces those of a workload.
"""

from argparse import Namespace

from allocator import UsageError, read_workload, write_workload
from allocator.cli.output import Answer, Values, note, warn
from allocator.cli.parsing import take
from allocator.io.markets.base import MarketOptions
from allocator.io.markets.run import TimeWindow, import_markets, onto, write_market
from allocator.io.traces.base import TraceOptions
from allocator.io.traces.run import import_trace, write_tables


def import_jobs(args: Namespace) -> Answer:
    given = {name: getattr(args, f"extra_{name}") for name in args.extras}
    more: Values = {"extra": {name: tuple(values) for name, values in given.items() if values}}
    if isinstance(args.gpus, dict):
        more |= {"gpus_by_type": args.gpus, "gpus": None}
    options = take(TraceOptions, args, **more)
    tables, summary = import_trace(args.format_name, args.source, options)
    folder = write_tables(tables, args.out)
    note(*summary.lines(), f"written to {folder}")
    return Answer({"folder": str(folder), **vars(summary)})


def import_market(args: Namespace) -> Answer:
    names = dict(args.pool)
    if bool(args.onto) != bool(names):
        raise UsageError("--onto WORKLOAD and --pool ZONE=POOL go together")
    market = import_markets(
        args.format_name,
        args.source,
        take(MarketOptions, args),
        TimeWindow(args.start, args.hours),
    )
    note(*market.notes)
    warn(market.warnings)
    folder = (
        write_workload(args.out, onto(read_workload(args.onto), market, names))
        if args.onto
        else write_market(market, args.out)
    )
    pools = [s.pool for s in market.series]
    listed = ", ".join(pools[:8]) + (" ..." if len(pools) > 8 else "")
    note(f"pools: {listed}; written to {folder}")
    return Answer({"folder": str(folder), "pools": pools})
