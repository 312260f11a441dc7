"""`allocator spot`: one job on clusters whose servers may be revoked, and models of these."""

import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import numpy as np

from allocator import UsageError
from allocator.cli.output import Answer, Columns, Table, Values, format_csv, pick, text, warn
from allocator.domain.schema.columns import TABLES
from allocator.domain.schema.spot_columns import (
    CLUSTERS,
    FEATURE,
    FEATURES,
    HAZARDS,
    LIFETIMES,
    POINTS,
    SERVER_SPEEDS,
    SPEEDS,
)
from allocator.io.tables.csv_table import csv_text
from allocator.io.tables.one_table import read_numbers, read_rows, read_table, require_sound
from allocator.market.clusters import clusters
from allocator.market.hazards import choose_hazards, read_hazards
from allocator.market.spot import choose_clusters, forecast_run, undominated_clusters
from allocator.performance.fit.features import fit_features
from allocator.performance.fit.servers import fit_servers, list_rates
from allocator.performance.fit.transient import fit_cap, fit_hazard_of_places, fit_line, fit_phases
from allocator.report.charts.choices import draw_spot

Fitted = TypeVar("Fitted")
Rows = list[Values]
PLACE = ("region", "gpu_type")
RATES = ("model", "gpu_type", "gpus", "work_per_s", "variant")
BOTTLENECK = "bottleneck: more workers do not help"


def plan(args: Namespace) -> Answer:
    table = read_table(args.clusters, CLUSTERS)
    known = clusters(table)
    require_sound(table)
    warn(table.findings.warnings)
    seen = [forecast_run(c, args.work) for c in known]
    choice = choose_clusters(seen, args.cost, args.deadline, args.quality)
    chosen = {name.replace("_", " "): at for name, at in vars(choice).items()}
    front = undominated_clusters(seen)
    rows: Rows = [
        {
            "cluster": o.cluster.name,
            "work_per_s": o.speed,
            "dollars_per_hour": o.cluster.dollars_per_hour,
            **pick(o, "seconds", "dollars", "revocations"),
            "useful_share": o.useful,
            "dollars_per_work": o.dollars_per_work,
            "checkpoint_every_s": o.every_s,
            "quality": o.cluster.quality,
            "bottleneck": o.bound,
            "frontier": i in front,
            "best": [rule for rule, at in chosen.items() if at == i],
        }
        for i, o in enumerate(seen)
    ]
    document = {
        "work": args.work,
        "cost": args.cost,
        "deadline_s": args.deadline,
        "quality": args.quality,
        "choice": {r: None if i is None else rows[i]["cluster"] for r, i in chosen.items()},
        "clusters": rows,
    }
    columns: Columns = {
        "cluster": "cluster",
        ">work/s": "work_per_s",
        ">$/h": "dollars_per_hour",
        ">seconds": lambda row: row["seconds"] if row["seconds"] < math.inf else "never",
        ">dollars": "dollars",
        ">lost": lambda row: text(row["revocations"], 3),
        ">useful": lambda row: f"{100 * row['useful_share']:.2f} %",
        ">$ per 1000 work": lambda row: 1000 * row["dollars_per_work"],
        "": lambda row: ", ".join(row["best"] + [BOTTLENECK] * row["bottleneck"]),
    }
    title = f"{args.work:g} units of work"
    return Answer(
        document,
        [Table.of(title, rows, columns)],
        rows,
        files={
            "plan.csv": format_csv(rows),
            "plan.json": document,
            "time-against-cost.svg": partial(
                draw_spot, seen, front, [row["best"] for row in rows], args.cost
            ),
        },
    )


def fit(args: Namespace) -> Answer:
    rows = _try_fit(args.file, _fit, args.file, args.kind, args.ages)
    table = Table.of(f"{args.kind} fitted to {args.file}", rows)
    return Answer({"kind": args.kind, "fit": rows}, [table], rows)


def _try_fit(path: str, fit: Callable[..., Fitted], *given: Any) -> Fitted:
    """Return what is fitted. Raises UsageError if nothing can be fitted."""
    try:
        return fit(*given)
    except ValueError as why:
        raise UsageError(f"{path}: {why}") from None


def _fit(path: str, kind: str, ages: Sequence[float]) -> Rows:
    """Return the rows of a kind of fit. Raises ValueError if nothing can be fitted."""
    match kind:
        case "line":
            table = require_sound(read_table(path, POINTS))
            line = asdict(fit_line(table["x"], table["y"]))
            errors = dict(zip(("intercept_error", "slope_error"), line.pop("errors"), strict=True))
            return [{name: line.pop(name) for name in ("intercept", "slope")} | errors | line]
        case "startup":
            table = require_sound(read_numbers(path))
            return [
                {"phase": p.name, "starts": p.samples, "mean_s": p.mean, "sd_s": p.sd}
                | dict(zip(("p5_s", "p50_s", "p95_s"), p.quantiles, strict=True))
                for p in fit_phases({c.name: table[c.name] for c in table.schema.columns})
            ]
        case "cap":
            table = require_sound(read_table(path, SPEEDS))
            return [asdict(fit_cap(table["workers"], table["work_per_s"]))]
    return _hazard(path, ages)


def _hazard(path: str, ages: Sequence[float]) -> Rows:
    """Return a row for each piece, and where the file has places, for each of them."""
    table = require_sound(read_table(path, LIFETIMES))
    places = list(zip(table["region"], table["gpu_type"], strict=True))
    fits = fit_hazard_of_places(table["hours"], table["revoked"], places, ages)
    names = [name for i, name in enumerate(PLACE) if any(p[i] for p in places)]
    return [
        {name: text for name, text in zip(PLACE, place, strict=True) if name in names}
        | {
            "from_h": float(a),
            "per_hour": float(h),
            "error": float(e),
            "revoked": int(d),
            "server_hours": float(t),
        }
        for place, fit in fits.items()
        for a, h, e, d, t in zip(
            fit.hazard.start_h, fit.hazard.per_hour, fit.errors, fit.seen, fit.hours, strict=True
        )
    ]


def servers(args: Namespace) -> Answer:
    table = require_sound(read_table(args.file, SERVER_SPEEDS))
    columns = ("model", "gpu_type", "servers", "workers", "work_per_s")
    fits = _try_fit(args.file, fit_servers, *(table[name] for name in columns))
    rates = [dict(zip(RATES, row, strict=True)) for row in list_rates(fits, args.sizes)]
    fitted = [
        {
            **pick(f, "model", "gpu_type", "servers"),
            "one_worker": f.cap.single,
            "cap": f.cap.cap,
            "error": f.cap.error,
            "most_workers": int(f.workers[-1]),
        }
        for f in fits
    ]
    return Answer(
        {"fit": fitted, "rates": rates},
        [Table.of(f"fitted to {args.file}", fitted), Table.of("rows of rates.csv", rates)],
        rates,
    )


def hazards(args: Namespace) -> Answer:
    table = read_table(args.file, HAZARDS)
    known = read_hazards(table)
    require_sound(table)
    pools = require_sound(read_table(args.pools, TABLES["pools.csv"]))
    rows = read_rows(args.pools)
    for i, hazard in choose_hazards(known, pools).items():
        if "revocations_per_gpu_hour" in rows[i]:
            rows[i]["revocations_per_gpu_hour"] = ""
        rows[i]["hazard_by_age"] = hazard
    return Answer({"pools": rows}, csv=rows)


def features(args: Namespace) -> Answer:
    if args.sure > 1:
        raise UsageError(f"--sure {args.sure:g}: a probability is at most 1")
    table = require_sound(read_table(args.file, FEATURES, FEATURE))
    names = [c.name for c in table.schema.columns[len(FEATURES.columns) :]]
    if len(set(table["gpus"].tolist())) > 1:
        names.append("gpus")
    x = np.array([table[name] for name in names], dtype=np.float64).T.reshape(len(table), -1)
    known = table.given("work_per_s")
    fit = _try_fit(args.file, fit_features, x[known], table["work_per_s"][known])
    new = np.flatnonzero(~known)
    margin = fit.margin(args.sure)
    rows = [
        {
            "model": table["model"][i],
            "gpu_type": table["gpu_type"][i],
            "gpus": int(table["gpus"][i]),
            "work_per_s": float(speed) / margin,
            "predicted": float(speed),
            "in_range": bool(inside),
        }
        for i, speed, inside in zip(new.tolist(), fit.at(x[new]), fit.holds(x[new]), strict=True)
    ]
    measured = int(known.sum())
    title = (
        f"from {measured} measured rows by {', '.join(names)}; error of rows left"
        f" out: {100 * fit.error:.1f} % ({100 * fit.straight_error:.1f} % of a power law)"
    )
    columns = RATES[:4]
    return Answer(
        {
            "measured": measured,
            "features": names,
            "error": fit.error,
            "error_s": fit.error_s,
            "power_law_error": fit.straight_error,
            "margin": margin,
            "rates": rows,
        },
        [Table.of(title, rows)],
        csv_text(columns, ([r[name] for name in columns] for r in rows if r["in_range"])),
    )
