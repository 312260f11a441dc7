"""Write fitted speed models as files.

models.csv is ready for a snapshot. fit.csv says how good each fit is.
"""

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

from allocator.domain.schema.columns import CURVE_PARAMETERS, LEAST_NUMBER, MOST_NUMBER, ColumnKind
from allocator.io.tables.csv_table import csv_text
from allocator.objects import Json
from allocator.performance.fit.choose import ORDER, SpeedFit
from allocator.performance.fit.similar import GuessedCurve

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
