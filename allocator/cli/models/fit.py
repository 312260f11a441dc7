"""`allocator fit`: speed models from observed speeds.

models.csv is ready for a snapshot. fit.csv says how good each fit is.
"""

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from allocator import UsageError
from allocator.cli.output import Answer, Table, pick
from allocator.domain.findings import did_you_mean
from allocator.domain.schema.columns import CURVE_PARAMETERS, LEAST_NUMBER, MOST_NUMBER, ColumnKind
from allocator.io.observations import read_observations
from allocator.io.tables.csv_table import csv_text
from allocator.objects import Json
from allocator.performance.fit.choose import FREE, ORDER, SpeedFit, extend_range, fit as fit_curves
from allocator.performance.fit.similar import GuessedCurve, guess_curves
from allocator.report.charts.choices import draw_fits

DIGITS = 7
REPORT = (
    "model",
    "gpu_type",
    "kind",
    "form",
    "rows",
    "sizes",
    "mean_error",
    "median_error",
    "rms_error",
    "error_on_its_rows",
    "parameters",
    "deviation",
    *(f"error_{f.replace(' ', '_')}" for f in ORDER),
)


def fit(args: Namespace) -> Answer:
    for form in args.forms:
        if form not in ORDER:
            raise UsageError(
                f"--forms {form}: one of {', '.join(ORDER)}{did_you_mean(form, ORDER)}"
            )
    seen = read_observations(args.source, args.form)
    fitted = [extend_range(f, args.reach) for f in fit_curves(seen, args.forms or ORDER)]
    if not fitted:
        raise UsageError(
            f"{args.source}: none of the forms {', '.join(args.forms)} can be fitted to these rows"
        )
    guessed = guess_curves(seen) if args.fill else []
    models = models_csv(fitted, guessed)
    document = {
        "models": [fit_record(f) for f in fitted],
        "guesses": [
            {
                **pick(g, "model", "gpu_type"),
                "kind": "power",
                "parameters": parameters("power", g.parameters),
            }
            for g in guessed
        ],
    }
    return Answer(
        document,
        _tables(fitted, guessed),
        models,
        files={
            "models.csv": models,
            "fit.csv": report_csv(fitted),
            "fit.svg": partial(draw_fits, fitted),
        },
    )


def _tables(fitted: Sequence[SpeedFit], guessed: Sequence[GuessedCurve]) -> list[Table]:
    def percent(share: float) -> str:
        return f"{100 * share:.1f} %"

    rows = [
        (
            f.model,
            f.gpu_type,
            f.form,
            f"{f.sizes[0]} to {f.parameters['max_gpus']:g}",
            len(f.seen),
            percent(f.mean) if len(f.sizes) > 1 else "-",
            percent(f.inside),
            _format_parameters(f),
        )
        for f in fitted
    ]
    what = ("model", "GPU type", "form", "GPUs", ">rows", ">error", ">on its rows", "parameters")
    tables = [Table("fitted (error: predicting a size from the other sizes)", what, rows)]
    if guessed:
        guesses = [
            (
                g.model,
                g.gpu_type,
                g.parameters["rate_1"],
                g.parameters["exponent"],
                percent(g.parameters["error"]),
            )
            for g in guessed
        ]
        numbers = (">rate_1", ">exponent", ">error")
        tables.append(Table("guessed from the others", ("model", "GPU type", *numbers), guesses))
    return tables


def _format_parameters(f: SpeedFit) -> str:
    """Return fitted parameters with their standard deviations as text."""
    said = []
    for name in FREE[f.kind]:
        if f.parameters.get(name):
            spread = f.deviation.get(name)
            said.append(
                f"{name} {f.parameters[name]:.3g}" + ("" if spread is None else f" +- {spread:.1g}")
            )
    if f.parameters.get("noise_scale"):
        said.append(f"noise_scale {f.parameters['noise_scale']:.3g}")
    return ", ".join(said)


def parameters(kind: str, values: dict[str, float]) -> dict[str, float | int]:
    """Return the parameters of a kind of curve in the order of the schema.

    They are rounded to DIGITS and kept within the bounds of the schema.
    """
    out: dict[str, float | int] = {}
    for column in CURVE_PARAMETERS[kind]:
        if column.name in values:
            value = min(
                max(values[column.name], column.low, -MOST_NUMBER), column.high, MOST_NUMBER
            )
            if abs(value) < LEAST_NUMBER:
                value = LEAST_NUMBER if column.above == 0 else 0.0
            out[column.name] = (
                round(value) if column.kind is ColumnKind.INTEGER else float(f"{value:.{DIGITS}g}")
            )
    return out


def models_csv(fitted: Iterable[SpeedFit], guessed: Iterable[GuessedCurve]) -> str:
    """Return models.csv with one row per fitted group and one per guessed curve."""
    curves = [(f, f.kind) for f in fitted], [(g, "power") for g in guessed]
    rows = (
        (curve.model, curve.gpu_type, kind, json.dumps(parameters(kind, curve.parameters)))
        for curve, kind in chain[tuple[SpeedFit | GuessedCurve, str]](*curves)
    )
    return csv_text(("model", "gpu_type", "kind", "parameters"), rows)


def fit_record(f: SpeedFit) -> Json:
    """Return a row of fit.csv with the fields of REPORT; errors are relative."""
    known = (f.model, f.gpu_type, f.kind, f.form, len(f.seen), list(f.sizes))
    errors = (f.mean, f.median, f.rms, f.inside)
    deviation = {n: float(f"{v:.3g}") for n, v in f.deviation.items()}
    tried = (f.tried.get(form) for form in ORDER)
    cells = (*known, *errors, parameters(f.kind, f.parameters), deviation, *tried)
    return dict(zip(REPORT, cells, strict=True))


def report_csv(fitted: Iterable[SpeedFit]) -> str:
    """Return fit.csv."""

    def cell(value: Any) -> Any:
        if isinstance(value, dict):
            return json.dumps(value)
        if isinstance(value, list):
            return "|".join(map(str, value))
        return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value

    return csv_text(REPORT, [[cell(v) for v in fit_record(f).values()] for f in fitted])
