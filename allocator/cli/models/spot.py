"""`allocator spot`: time and cost of one job on clusters whose servers may be revoked.

It also fits models from measurements.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.models.spot_features import features
from allocator.cli.models.spot_rates import hazards, servers
from allocator.cli.output import SCHEMA_VERSION, format_csv, show_result, warn
from allocator.cli.parsing import CommandGroup, command, duration, formats, many, number, option
from allocator.cli.tables import Table, show, text
from allocator.errors import UsageError

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

BOTTLENECK = "bottleneck: more workers do not help"


@command(
    "plan",
    "expected time and cost per cluster, and which to take",
    ABOUT,
    PLAN_EXAMPLES,
    option(
        "clusters",
        "CLUSTERS.csv",
        "a row per cluster and sort of server; its columns: docs/spot-and-rental.md",
    ),
    option("--work", "W", "work of the job, as in work_per_s", number(1e-9), required=True),
    option("--cost", "USD", "name the fastest for at most so many dollars", number()),
    option("--deadline", "TIME", "name the cheapest within so many seconds", duration()),
    option("--quality", "Q", "only clusters whose `quality` is at least this", number()),
    option("--out", "DIR", "write plan.json, plan.csv and time-against-cost.svg", Path),
    formats("table", "json", "csv"),
)
def plan(args: argparse.Namespace) -> int:
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
    document = {
        "schema_version": SCHEMA_VERSION,
        "work": args.work,
        "cost": args.cost,
        "deadline_s": args.deadline,
        "quality": args.quality,
        "choice": named,
        "clusters": rows,
    }
    if args.out is not None:
        from allocator.report.charts.choices import draw_spot

        write_files(
            args.out,
            {
                "plan.csv": format_csv(rows),
                "time-against-cost.svg": draw_spot(seen, choice, args.cost),
                "plan.json": dumps(document) + "\n",
            },
        )
    show_result(args.format, document, lambda: _show(rows, args.work), lambda: format_csv(rows))
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


def _show(rows: list[dict[str, Any]], work: float) -> None:
    cells = [
        (
            row["cluster"],
            row["work_per_s"],
            row["dollars_per_hour"],
            row["seconds"] if row["seconds"] < float("inf") else "never",
            row["dollars"],
            text(row["revocations"], 3),
            f"{100 * row['useful_share']:.2f} %",
            1000 * row["dollars_per_work"],
            ", ".join(row["best"] + [BOTTLENECK] * row["bottleneck"]),
        )
        for row in rows
    ]
    what = ("cluster", ">work/s", ">$/h", ">seconds", ">dollars", ">lost", ">useful")
    show([Table(f"{work:g} units of work", (*what, ">$ per 1000 work", ""), cells)])


@command(
    "fit",
    "lines, hazards, start-up times, caps from measurements",
    "Fit one of: line (columns x, y), hazard (hours, revoked; region, gpu_type), startup"
    " (seconds per phase, any names), cap (workers, work_per_s).",
    FIT_EXAMPLES,
    option("kind", None, None, choices=("line", "hazard", "startup", "cap")),
    option("file", "FILE.csv", "the measurements"),
    option(
        "--ages",
        "H,H",
        "hours at which pieces of the hazard begin (default: 0, one piece)",
        many(number()),
        (0.0,),
    ),
    formats("table", "json", "csv"),
)
def fit(args: argparse.Namespace) -> int:
    from allocator.cli.models.spot_fit import KINDS

    try:
        rows = KINDS[args.kind](args.file, args.ages)
    except ValueError as why:
        raise UsageError(f"{args.file}: {why}") from None
    names = (name if isinstance(v, str) else f">{name}" for name, v in rows[0].items())
    title = f"{args.kind} fitted to {args.file}"
    table = Table(title, tuple(names), [row.values() for row in rows])
    document = {"kind": args.kind, "fit": rows}
    show_result(args.format, document, lambda: show([table]), lambda: format_csv(rows))
    return 0


call = CommandGroup(
    "spot",
    "one job on servers that may be taken back: time, cost, choice",
    ABOUT,
    EXAMPLES,
    (plan, fit, servers, hazards, features),
)
