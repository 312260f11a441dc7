"""`allocator spot fit`: rows of a table for each kind of fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from allocator.domain.schema.spot_columns import LIFETIMES, POINTS, SPEEDS
from allocator.io.tables.one_table import read_numbers, read_table, require_sound
from allocator.performance.fit.transient import fit_cap, fit_hazard_of_places, fit_line, fit_phases

Rows = list[dict[str, Any]]
PLACE = ("region", "gpu_type")


def _line(path: str, _ages: Sequence[float]) -> Rows:
    table = require_sound(*read_table(path, POINTS))
    line = fit_line(table["x"], table["y"])
    more = {k: v for k, v in asdict(line).items() if k not in ("intercept", "slope", "errors")}
    return [
        {
            "intercept": line.intercept,
            "slope": line.slope,
            "intercept_error": line.errors[0],
            "slope_error": line.errors[1],
            **more,
        }
    ]


def _hazard(path: str, ages: Sequence[float]) -> Rows:
    """Return a row for each piece, and where the file has places, for each of them."""
    table = require_sound(*read_table(path, LIFETIMES))
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


def _startup(path: str, _ages: Sequence[float]) -> Rows:
    table = require_sound(*read_numbers(path))
    return [
        {
            "phase": p.name,
            "starts": p.samples,
            "mean_s": p.mean,
            "sd_s": p.sd,
            "p5_s": p.quantiles[0],
            "p50_s": p.quantiles[1],
            "p95_s": p.quantiles[2],
        }
        for p in fit_phases({c.name: table[c.name] for c in table.schema.columns})
    ]


def _cap(path: str, _ages: Sequence[float]) -> Rows:
    table = require_sound(*read_table(path, SPEEDS))
    return [asdict(fit_cap(table["workers"], table["work_per_s"]))]


KINDS: Mapping[str, Callable[[str, Sequence[float]], Rows]] = {
    "line": _line,
    "hazard": _hazard,
    "startup": _startup,
    "cap": _cap,
}
"""The rows of each kind of fit; ValueError if nothing can be fitted."""
