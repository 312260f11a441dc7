"""`allocator spot servers` and `spot hazards`: tables of a cluster from other measurements."""

from __future__ import annotations

import argparse

from allocator.cli.output import show_result
from allocator.cli.parsing import command, formats, many, option, parse_integer
from allocator.cli.tables import Table, show
from allocator.errors import UsageError

SERVERS_EXAMPLES = """
allocator spot servers data/examples/servers/measured.csv
allocator spot servers data/examples/servers/measured.csv --sizes 2,4,8 --format csv
"""
HAZARDS_EXAMPLES = """
allocator spot hazards data/examples/regions/hazards.csv --pools data/examples/regions/pools.csv
"""
COLUMNS = ("model", "gpu_type", "gpus", "work_per_s", "variant")


@command(
    "servers",
    "speeds with one or more parameter servers, as rows of rates.csv",
    "Fit the speed of each measured number of parameter servers (columns model, gpu_type,"
    " servers, workers, work_per_s) and write a row of rates.csv for each size: servers"
    " and workers have a GPU each. A round then takes the fastest row of each size.",
    SERVERS_EXAMPLES,
    option("file", "FILE.csv", "the measurements"),
    option(
        "--sizes",
        "K,K",
        "numbers of GPUs, servers included (default: powers of two, as far as measured)",
        many(parse_integer(1)),
        (),
    ),
    formats("table", "json", "csv", about="csv is rates.csv"),
)
def servers(args: argparse.Namespace) -> int:
    from allocator.domain.schema.spot_columns import SERVER_SPEEDS
    from allocator.io.tables.csv_table import csv_text
    from allocator.io.tables.one_table import read_table, require_sound
    from allocator.performance.fit.servers import fit_servers, list_rates

    table = require_sound(*read_table(args.file, SERVER_SPEEDS))
    columns = ("model", "gpu_type", "servers", "workers", "work_per_s")
    try:
        fits = fit_servers(*(table[name] for name in columns))
    except ValueError as why:
        raise UsageError(f"{args.file}: {why}") from None
    rows = list_rates(fits, args.sizes)
    fitted = [
        {
            "model": f.model,
            "gpu_type": f.gpu_type,
            "servers": f.servers,
            "one_worker": f.cap.single,
            "cap": f.cap.cap,
            "error": f.cap.error,
            "most_workers": int(f.workers[-1]),
        }
        for f in fits
    ]

    def tell() -> None:
        names = list(fitted[0])
        title = f"fitted to {args.file}"
        what = (*names[:2], *(f">{name}" for name in names[2:]))
        rates = ("model", "gpu_type", ">gpus", ">work_per_s", "variant")
        show(
            [
                Table(title, what, [row.values() for row in fitted]),
                Table("rows of rates.csv", rates, rows),
            ]
        )

    document = {"fit": fitted, "rates": [dict(zip(COLUMNS, r, strict=True)) for r in rows]}
    show_result(args.format, document, tell, lambda: csv_text(COLUMNS, rows))
    return 0


@command(
    "hazards",
    "pools.csv with the revocations of a table by region, type and age",
    "Write pools.csv with hazard_by_age of all spot pools whose region and GPU type the"
    " table has (columns region, gpu_type, from_h, per_hour, as `spot fit hazard` writes"
    " them; an empty cell holds for all).",
    HAZARDS_EXAMPLES,
    option("file", "FILE.csv", "the table of hazards"),
    option("--pools", "POOLS.csv", "the pools", required=True),
    formats("csv", "json", about="csv is pools.csv"),
)
def hazards(args: argparse.Namespace) -> int:
    from allocator.domain.schema.columns import TABLES
    from allocator.domain.schema.spot_columns import HAZARDS
    from allocator.io.tables.csv_table import csv_text
    from allocator.io.tables.one_table import read_rows, read_table, require_sound
    from allocator.market.hazards import choose_hazards, read_hazards

    table, found = read_table(args.file, HAZARDS)
    known = read_hazards(table, found)
    require_sound(table, found)
    pools = require_sound(*read_table(args.pools, TABLES["pools.csv"]))
    rows = read_rows(args.pools)
    for i, hazard in choose_hazards(known, pools).items():
        if "revocations_per_gpu_hour" in rows[i]:
            rows[i]["revocations_per_gpu_hour"] = ""
        rows[i]["hazard_by_age"] = hazard
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[row.get(name, "") for name in columns] for row in rows]
    show_result(args.format, {"pools": rows}, str, lambda: csv_text(columns, lines))
    return 0
