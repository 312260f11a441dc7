"""`allocator spot`: time and cost of one job on clusters whose servers may be revoked.

It also fits models from measurements.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.models.spot_features import add_features
from allocator.cli.models.spot_rates import add_hazards, add_servers
from allocator.cli.output import SCHEMA_VERSION, show_result, warn
from allocator.cli.parsing import add_format, duration, number

if TYPE_CHECKING:
    from allocator.market.spot import ClusterChoice, RunForecast

EXAMPLES = """
allocator spot plan data/spot/resnet32.csv --work 64000 --cost 1.2    time and cost per cluster, \
and which to take
allocator spot fit hazard data/examples/lifetimes.csv --ages 0,6      what measurements say
"""
PLAN_EXAMPLES = """
allocator spot plan data/spot/resnet32.csv --work 64000 --cost 1.2 --deadline 3600
allocator spot plan data/spot/resnet32.csv --work 64000 --quality 0.91 --out chosen
"""
FIT_EXAMPLES = """
allocator spot fit line data/examples/checkpoints.csv                 x size in MB, y seconds
allocator spot fit hazard data/examples/lifetimes.csv --ages 0,6      hours, revoked
allocator spot fit startup data/examples/starts.csv                   a column of seconds per phase
"""
ABOUT = """\
One job on each of several clusters: expected time, dollars, servers lost and share of useful time,
and which cluster is cheapest, fastest, fastest for at most --cost dollars, cheapest within
--deadline seconds (docs/spot-and-rental.md)."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "spot",
        examples=EXAMPLES,
        description=ABOUT,
        help="one job on servers that may be taken back: time, cost, choice",
    )
    verbs = parser.add_subparsers(
        title="verbs", metavar="VERB", parser_class=type(parser), required=True
    )
    plan = verbs.add_parser(
        "plan",
        examples=PLAN_EXAMPLES,
        description=ABOUT,
        help="expected time and cost per cluster, and which to take",
    )
    plan.add_argument(
        "clusters",
        metavar="CLUSTERS.csv",
        help="a row per cluster and sort of server; its columns: docs/spot-and-rental.md",
    )
    plan.add_argument(
        "--work",
        type=number(1e-9),
        required=True,
        metavar="W",
        help="work of the job, as in work_per_s",
    )
    plan.add_argument(
        "--cost", type=number(), metavar="USD", help="name the fastest for at most so many dollars"
    )
    plan.add_argument(
        "--deadline",
        type=duration(),
        metavar="TIME",
        help="name the cheapest within so many seconds",
    )
    plan.add_argument(
        "--quality",
        type=number(),
        metavar="Q",
        help="only clusters whose `quality` is at least this",
    )
    plan.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write plan.json, plan.csv and time-against-cost.svg",
    )
    add_format(plan, "table", "json", "csv")
    plan.set_defaults(call=call_plan)
    fit = verbs.add_parser(
        "fit",
        examples=FIT_EXAMPLES,
        help="lines, hazards, start-up times, caps from measurements",
        description=(
            "Fit one of: line (columns x, y), hazard (hours, revoked; region, gpu_type), startup"
            " (seconds per phase, any names), cap (workers, work_per_s)."
        ),
    )
    fit.add_argument("kind", choices=("line", "hazard", "startup", "cap"))
    fit.add_argument("file", metavar="FILE.csv", help="the measurements")
    fit.add_argument(
        "--ages",
        type=_ages,
        default=(0.0,),
        metavar="H,H",
        help="hours at which pieces of the hazard begin (default: 0, one piece)",
    )
    add_format(fit, "table", "json", "csv")
    fit.set_defaults(call=call_fit)
    add_servers(verbs)
    add_hazards(verbs)
    add_features(verbs)


def _ages(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is not hours with commas, such as 0,1,6"
        ) from None


def call_plan(args: argparse.Namespace) -> int:
    from allocator.domain.schema.spot_columns import CLUSTERS
    from allocator.io.plans import dumps, write_files
    from allocator.io.tables.one_table import read_table, require_sound
    from allocator.market.clusters import clusters
    from allocator.market.spot import choose_clusters, forecast_run

    table, found = read_table(args.clusters, CLUSTERS)
    known = clusters(table, found)
    require_sound(table, found)
    warn(found.warnings)
    seen = [forecast_run(c, args.work) for c in known]
    choice = choose_clusters(seen, args.cost, args.deadline, args.quality)
    rows = _rows(seen, choice)
    named = {
        rule: None if i is None else seen[i].cluster.name
        for rule, i in _choice_name(choice).items()
    }
    whole = {
        "schema_version": SCHEMA_VERSION,
        "work": args.work,
        "cost": args.cost,
        "deadline_s": args.deadline,
        "quality": args.quality,
        "choice": named,
        "clusters": rows,
    }
    if args.out is not None:
        from allocator.report.charts.spot import picture

        write_files(
            args.out,
            {
                "plan.csv": _csv(rows),
                "time-against-cost.svg": picture(seen, choice, args.cost),
                "plan.json": dumps(whole) + "\n",
            },
        )
    show_result(args.format, whole, lambda: _show(rows, args.work), lambda: _csv(rows))
    return 0


def _choice_name(choice: ClusterChoice) -> dict[str, int | None]:
    return {
        "cheapest": choice.cheapest,
        "fastest": choice.fastest,
        "fastest within cost": choice.fastest_within_cost,
        "cheapest by deadline": choice.cheapest_by_deadline,
    }


def _rows(seen: list[RunForecast], choice: ClusterChoice) -> list[dict[str, Any]]:
    from allocator.market.spot import undominated_clusters

    front = set(undominated_clusters(seen))
    return [
        {
            "cluster": o.cluster.name,
            "work_per_s": o.speed,
            "dollars_per_hour": o.cluster.dollars_per_hour,
            "seconds": o.seconds,
            "dollars": o.dollars,
            "revocations": o.revocations,
            "useful_share": o.useful,
            "dollars_per_work": o.dollars_per_work,
            "checkpoint_every_s": o.every_s,
            "quality": o.cluster.quality,
            "bottleneck": o.bound,
            "frontier": i in front,
            "best": [rule for rule, at in _choice_name(choice).items() if at == i],
        }
        for i, o in enumerate(seen)
    ]


def _csv(rows: list[dict[str, Any]]) -> str:
    import math

    from allocator.io.tables.csv_table import csv_text

    def cell(value: Any) -> Any:
        if isinstance(value, list):
            return "|".join(value)
        if isinstance(value, bool):
            return str(value).lower()
        return "" if isinstance(value, float) and not math.isfinite(value) else value

    return csv_text(rows[0], (map(cell, row.values()) for row in rows))


def _show(rows: list[dict[str, Any]], work: float) -> None:
    from allocator.cli.tables import Table, show, text

    def says(row: dict[str, Any]) -> str:
        return ", ".join(
            [*row["best"], *(["bottleneck: more workers do not help"] if row["bottleneck"] else [])]
        )

    cells = [
        [
            row["cluster"],
            text(row["work_per_s"]),
            text(row["dollars_per_hour"]),
            text(row["seconds"]) if row["seconds"] < float("inf") else "never",
            text(row["dollars"]),
            text(row["revocations"], 3),
            f"{100 * row['useful_share']:.2f} %",
            text(1000 * row["dollars_per_work"]),
            says(row),
        ]
        for row in rows
    ]
    columns = (
        "cluster",
        "work/s",
        "$/h",
        "seconds",
        "dollars",
        "lost",
        "useful",
        "$ per 1000 work",
        "",
    )
    show([Table(f"{work:g} units of work", columns, cells, frozenset(columns[1:8]))])


def call_fit(args: argparse.Namespace) -> int:
    from allocator.cli.models.spot_fit import fit_rows
    from allocator.cli.tables import Table, show, text
    from allocator.errors import UsageError

    try:
        rows = fit_rows(args.kind, args.file, args.ages)
    except ValueError as why:
        raise UsageError(f"{args.file}: {why}") from None
    names = tuple(rows[0])
    table = Table(
        f"{args.kind} fitted to {args.file}",
        names,
        [[text(v) for v in row.values()] for row in rows],
        frozenset(n for n in names if not isinstance(rows[0][n], str)),
    )
    document = {"kind": args.kind, "fit": rows}
    show_result(args.format, document, lambda: show([table]), lambda: _csv(rows))
    return 0
