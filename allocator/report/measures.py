"""The metrics of simulations as reports show them: names, units, better side, numbers as text."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A metric.

    Attributes
    ----------
    kind : "time" (seconds), "share" (0 to 1), "ratio", "count", "money" (US dollars) or "hours"
    (GPU-hours).
    better : -1 if less is better, +1 if more is better, 0 if neither is.
    """

    key: str
    title: str
    kind: str
    better: int


MEASURES = (
    Measure("finished", "jobs finished", "count", 0),
    Measure("jct_s_mean", "completion time", "time", -1),
    Measure("jct_s_median", "median completion", "time", -1),
    Measure("jct_s_p99", "p99 completion", "time", -1),
    Measure("queue_s_mean", "queueing", "time", -1),
    Measure("queue_s_p99", "p99 queueing", "time", -1),
    # run time as its user asked for / time from first start to completion, mean over jobs
    Measure("efficiency_mean", "training efficiency", "ratio", 1),
    Measure("makespan_s", "makespan", "time", -1),
    # largest completion time / completion time alone on an equal share of the cluster
    Measure("ftf_max", "worst unfairness", "ratio", -1),
    Measure("utilisation", "utilisation", "share", 0),
    Measure("gpu_hours", "GPU-hours", "hours", 0),
    Measure("dollars", "dollars", "money", -1),
    Measure("restarts", "restarts", "count", -1),
    Measure("decision_s_mean", "time to decide", "time", 0),
    # mean over rounds of (bound - value) / value: no plan of a round is better by more
    Measure("gap_mean", "mean gap", "share", 0),
)
BY_KEY = {m.key: m for m in MEASURES}
HEADLINE = ("jct_s_mean", "queue_s_mean", "efficiency_mean")
SENTENCE = (*HEADLINE, "jct_s_p99", "makespan_s", "dollars", "ftf_max", "restarts")
OF_FINISHED = (
    "jct_s_mean",
    "jct_s_median",
    "jct_s_p99",
    "efficiency_mean",
    "ftf_max",
    "makespan_s",
)
"""Metrics that look good when a policy leaves jobs unfinished."""
UNITS = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
"""Seconds of the units of time, the longest first."""


def time_unit(values: Iterable[float]) -> tuple[str, float]:
    """Return (name, seconds) of the unit in which most values have one to three digits."""
    known = sorted(abs(v) for v in values if math.isfinite(v))
    top = known[len(known) // 2] if known else 0.0
    if 0 < top < 1:
        return "ms", 1e-3
    return next((unit for unit in UNITS.items() if top >= 2 * unit[1]), ("s", 1.0))


def unit_of(measure: Measure, values: Iterable[float]) -> tuple[str, float]:
    """Return (name, size) of the unit of a column of this metric."""
    if measure.kind == "time":
        return time_unit(values)
    return {"share": ("%", 0.01), "money": ("$", 1.0), "hours": ("h", 1.0)}.get(
        measure.kind, ("", 1.0)
    )


def number(value: float, digits: int = 3) -> str:
    """Return at least `digits` significant digits, with thousands marked; "–" for no number."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    after = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    if abs(value) < 1e-6:
        return f"{value:.0e}"
    text = f"{value:,.{min(after, 8)}f}"
    return text.rstrip("0").rstrip(".") if "." in text and float(value).is_integer() else text


def percent(value: float) -> str:
    """Return a change in percent: one decimal below 10, none above, a real minus sign."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    text = f"{size:.1f}" if size < 9.95 else f"{size:,.0f}"
    mark = ("−" if value < 0 else "+") if float(text.replace(",", "")) else ""
    return mark + text


def interval(low: float, high: float) -> str:
    """Return [low, high]; empty if there is none."""
    return (
        f"[{percent(low)}, {percent(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    )


def duration(seconds: float) -> str:
    """Return seconds as people write them: 42 s, 3.5 h."""
    name, size = time_unit([seconds])
    return f"{number(seconds / size, 2)} {name}"
