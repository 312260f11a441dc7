"""`allocator rent`: the best widths of classes of jobs on a long-run budget, with its price."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import format_csv, show_result, warn
from allocator.cli.parsing import (
    HOUR_S,
    command,
    duration,
    flag,
    formats,
    group,
    number,
    option,
)
from allocator.cli.tables import Table, show, text

if TYPE_CHECKING:
    from allocator.market.classes import RentalClasses
    from allocator.market.rent import RentResult

EXAMPLES = """
allocator rent data/rental/example.csv --budget 2                         2 GPUs in the long-run \
mean
allocator rent data/rental/classes.csv --pools data/rental/pools.csv --budget 50 --dollars --whole \
--out rented
allocator rent --from-workload data/workloads/demo > classes.csv         classes estimated from jobs
"""
RULES = {
    "fractional_widths": "best widths",
    "equal_widths": "equal widths",
    "equal_spend": "equal spending on every class",
}
ABOUT = """\
GPUs are rented when jobs arrive and given back when they end: nobody queues, and every class of
jobs has a width of its own. The widths here give the least mean response time of all policies that
rent as much on average (docs/spot-and-rental.md). CLASSES.csv has a row per class: class_id,
arrivals_per_hour, mean_work_gpu_hours, kind (amdahl, power, table), parameter or points, and
perhaps weight, gpu_type, relative_speed, max_gpus."""


@command(
    "rent",
    "widths and price of GPUs rented on a long-run budget",
    ABOUT,
    EXAMPLES,
    option("classes", "CLASSES.csv", "the classes of jobs", nargs="?"),
    option(
        "--budget",
        "B",
        "GPUs, or dollars per hour, in the long-run mean; "
        "without it, the estimated classes are printed",
        number(),
    ),
    flag("--dollars", "the budget is in US dollars per hour, not in GPUs"),
    option(
        "--pools",
        "POOLS.csv",
        "pool, gpu_type and price_per_gpu_hour of what can be rented; as in a snapshot",
    ),
    flag("--whole", "whole GPUs only: at most one class is split between two options"),
    flag("--curve", "print what other budgets buy, too"),
    group(
        "classes estimated from jobs, one per model",
        option("--from-workload", "FOLDER", "of a workload, instead of CLASSES.csv"),
        option("--from-queue", "QUEUE", "of a queue: its jobs done and under way"),
        option(
            "--hours",
            "TIME",
            "hours in which the jobs were submitted (default: from the gaps between them)",
            duration(1e-9, unit_s=HOUR_S),
        ),
    ),
    group(
        "output",
        option("--out", "DIR", "write rent.json, classes.csv, curve.csv and curve.svg", Path),
        formats(
            "table", "json", "csv", about="csv: a row per class and option, with --curve per budget"
        ),
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError

    sources = [s for s in (args.classes, args.from_workload, args.from_queue) if s is not None]
    if len(sources) != 1:
        raise UsageError(
            "rent needs the classes from one place: CLASSES.csv, --from-workload or --from-queue"
        )
    if args.budget is None and args.classes is not None:
        raise UsageError(
            "rent needs --budget B: GPUs, or with --dollars US dollars per hour, in the long-run"
            " mean"
        )
    if args.dollars and args.pools is None and args.classes is not None:
        raise UsageError("--dollars needs --pools POOLS.csv with price_per_gpu_hour")
    made = _classes(args)
    if args.budget is None:
        return _show_estimated(made, args)
    from allocator.market.rent import rent

    found = rent(
        made,
        args.budget,
        whole=args.whole,
        dollars=args.dollars,
        with_curve=args.curve or args.out is not None,
    )
    warn(
        f'pool "{name}" is free and has {gpus:g} GPUs; the plan keeps {used:.4g} of'
        " them busy on average, so jobs will wait there"
        for name, gpus, used in found.crowded()
    )
    if args.out is not None:
        _write(found, args.out)
    _print(found, args.format, args.curve)
    return 0


def _classes(args: argparse.Namespace) -> RentalClasses:
    from allocator.cli.models import rent_source

    if args.from_workload is not None:
        return rent_source.from_workload(args.from_workload, args.pools, args.dollars, args.hours)
    if args.from_queue is not None:
        return rent_source.from_queue(args.from_queue, args.pools, args.dollars, args.hours)
    return rent_source.from_file(args.classes, args.pools, args.dollars)


def _show_estimated(made: RentalClasses, args: argparse.Namespace) -> int:
    """Print the classes, and write them with --out; nothing else was asked for."""
    from allocator.cli.models.rent_source import text
    from allocator.io.plans import write_files

    content = text(made)
    if args.out is not None:
        write_files(args.out, {"classes.csv": content})
    rows = list(csv.DictReader(io.StringIO(content)))
    show_result(args.format, {"classes": rows}, lambda: print(content, end=""), lambda: content)
    return 0


def _write(found: RentResult, folder: Path) -> None:
    from allocator.cli.models.rent_source import text
    from allocator.io.plans import dumps, write_files
    from allocator.report.charts.choices import draw_rent

    write_files(
        folder,
        {
            "curve.svg": draw_rent(found),
            "curve.csv": format_csv(found.curve_rows()),
            "classes.csv": text(found.classes),
            "rent.json": dumps(found.to_dict()) + "\n",
        },
    )


def _print(found: RentResult, how: str, with_curve: bool) -> None:
    document = found.to_dict()
    if not with_curve:
        document.pop("curve", None)
    rows = (
        found.curve_rows()
        if with_curve
        else [
            {"class_id": row["class_id"], **option}
            for row in found.rows()
            for option in row["options"]
        ]
    )
    show_result(how, document, lambda: _show(found, with_curve), lambda: format_csv(rows))


def _show(found: RentResult, with_curve: bool) -> None:
    p = found.plan
    dollars = found.unit == "dollars_per_hour"
    one, unit, spend = (
        ("dollar per hour", "$/h", "$/h") if dollars else ("GPU", "GPUs", "GPUs paid")
    )
    by_weight = "" if (p.classes.weight == p.classes.weight[0]).all() else " by weight"
    head = [
        (
            f"budget {text(p.budget)} {unit} in the long-run mean, {text(p.spend)} spent; below "
            f"{text(found.least_budget)} no widths are stable"
        ),
        (
            f"mean response time {text(p.response_h)} h; GPUs rented: mean {text(p.gpus)}, standard"
            f" deviation {text(p.sd_gpus)} (Poisson arrivals)"
        ),
        (
            "more budget buys nothing: every class has its largest width"
            if p.mu == 0
            else (
                f"one more {one} saves {text(found.saved_h)} h of mean response time{by_weight};"
                f" price mu = {text(p.mu)} weighted job-hours per"
                f" {'dollar' if dollars else 'GPU-hour'}"
            )
        ),
    ]
    if found.whole and found.wider_share > 0:
        head.append(
            f"the policy `rental` carries it out with dollar_price = {p.mu:.9g} and, in [rental],"
            f" wider_share = {found.wider_share:.9g}"
        )
    numbers = ("mean_response_h", "mean_jobs", "mean_gpus", "spend")
    rows: list[Sequence[Any]] = [
        (row["class_id"], _width(row["options"]), *(row[name] for name in numbers))
        for row in found.rows()
    ]
    what: tuple[str, ...] = ("class", "width", ">response h", ">jobs", ">GPUs", f">{spend}")
    tables = [Table("classes", what, rows)]
    rules = [("this plan", p), *((RULES[name], other) for name, other in found.rules.items())]
    rows = [
        (
            *(name, r.spend, r.response_h, r.weighted_h),
            "-" if r is p else f"{100 * (r.weighted_h / p.weighted_h - 1):+.1f} %",
        )
        for name, r in rules
    ]
    what = ("rule", ">spent", ">response h", ">by weight", ">against this plan")
    tables.append(Table("the same budget by other rules (fractions of GPUs allowed)", what, rows))
    if with_curve:
        curve = found.curve_rows()
        times = (f">budget {unit}", ">response h", ">mu", ">GPUs", ">sd", ">jobs by weight")
        rows = [tuple(row.values()) for row in curve[:: -(-len(curve) // 25)]]
        what = (*times, ">equal widths", ">equal spending")
        tables.append(Table("what other budgets buy", what, rows))
    show(tables, head)


def _width(options: list[dict[str, Any]]) -> str:
    """Return text such as '6', '4 x A100', '95 % 4 x A100, 5 % 5 x A100'."""

    def named(option: dict[str, Any]) -> str:
        where = option["pool"] or option["gpu_type"]
        return text(option["width"]) + (f" x {text(where)}" if where else "")

    if len(options) == 1:
        return named(options[0])
    return ", ".join(f"{100 * option['share']:.3g} % {named(option)}" for option in options)
