"""`allocator spot features`: speeds of models that were not measured, from features."""

from __future__ import annotations

import argparse

from allocator.cli.output import show_result
from allocator.cli.parsing import command, formats, number, option
from allocator.cli.tables import Table, show
from allocator.errors import UsageError

EXAMPLES = """
allocator spot features data/examples/features.csv
allocator spot features data/examples/features.csv --sure 0.95 --format csv
"""
COLUMNS = ("model", "gpu_type", "gpus", "work_per_s")


@command(
    "features",
    "speeds that were not measured, from features of model and GPU",
    "Predict the empty work_per_s of a table from its other rows (columns model, gpu_type,"
    " gpus, work_per_s, and any features above 0, such as the GFLOPs of the model and the"
    " TFLOPS of the GPU). docs/spot-and-rental.md has the regression and its errors.",
    EXAMPLES,
    option("file", "FILE.csv", "the table"),
    option(
        "--sure",
        "P",
        "lower a speed until it is not too high with this probability (default: 0.9)",
        number(0.0),
        0.9,
    ),
    formats("table", "json", "csv", about="csv is rates.csv"),
)
def features(args: argparse.Namespace) -> int:
    import numpy as np

    from allocator.domain.schema.spot_columns import FEATURES
    from allocator.io.tables.csv_table import csv_text
    from allocator.io.tables.one_table import read_measurements, require_sound
    from allocator.performance.fit.features import fit_features

    if args.sure > 1:
        raise UsageError(f"--sure {args.sure:g}: a probability is at most 1")
    table = require_sound(*read_measurements(args.file, FEATURES))
    names = [c.name for c in table.schema.columns[len(FEATURES.columns) :]]
    if len(set(table["gpus"].tolist())) > 1:
        names.append("gpus")
    x = np.array([table[name] for name in names], dtype=np.float64).T.reshape(len(table), -1)
    known = table.given("work_per_s")
    try:
        fit = fit_features(x[known], table["work_per_s"][known])
    except ValueError as why:
        raise UsageError(f"{args.file}: {why}") from None
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
    quality = {
        "measured": int(known.sum()),
        "features": names,
        "error": fit.error,
        "error_s": fit.error_s,
        "power_law_error": fit.straight_error,
        "margin": margin,
    }

    def tell() -> None:
        title = (
            f"from {quality['measured']} measured rows by {', '.join(names)}; error of rows left"
            f" out: {100 * fit.error:.1f} % ({100 * fit.straight_error:.1f} % of a power law)"
        )
        what = (*COLUMNS[:2], *(f">{name}" for name in COLUMNS[2:]), "predicted", "in_range")
        show([Table(title, what, [row.values() for row in rows])])

    lines = [[row[name] for name in COLUMNS] for row in rows if row["in_range"]]
    document = {**quality, "rates": rows}
    show_result(args.format, document, tell, lambda: csv_text(COLUMNS, lines))
    return 0
