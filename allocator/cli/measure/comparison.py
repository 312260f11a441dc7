"""A table of simulations: a column per policy, a row per metric, and which policy is better."""

from collections.abc import Collection, Sequence

from allocator import Simulation
from allocator.cli.output import Table, text
from allocator.report.measures import MEASURES, Measure, unit_of

NOTABLE = 0.01  # smaller relative differences are not mentioned
WHERE_ANY = (
    Measure("deadlines_met", "deadlines met", "count", 1),
    Measure("bill_dollars", "bill", "money", -1),
    Measure("revocations", "GPUs revoked", "count", -1),
    Measure("node_failures", "node failures", "count", 0),
    Measure("moves", "moves to other nodes", "count", -1),
    Measure("unusable_gpu_hours", "unusable GPU-hours", "hours", -1),
    Measure("rounds", "rounds", "count", 0),
)
"""Metrics that only this table has, and only if some value is not 0."""


def comparison(
    done: Sequence[Simulation], keys: Collection[str] = (), title: str = "policies"
) -> Table:
    """Return the table.

    With two policies, a last column has the difference of the first from the second. `keys` are
    those of the rows to show; all rows if it is empty.
    """
    is_pair = len(done) == 2
    rows = []
    for measure in (*MEASURES, *WHERE_ANY):
        values = [s.metrics.get(measure.key) for s in done]
        if (keys and measure.key not in keys) or (measure in WHERE_ANY and not any(values)):
            continue
        unit, size = unit_of(measure, filter(None, values))
        cells = [text(v if v is None or size == 1.0 else v / size, 3) for v in values]
        name = measure.title + (f", {unit}" if measure.kind in ("time", "share") else "")
        rows.append([name, *cells, *([_percent(change(measure, *done))] if is_pair else [])])
    names = [s.policy for s in done]
    columns = [*names, *([" vs ".join(names)] if is_pair else [])]
    return Table(title, ("", *(f">{name}" for name in columns)), rows)


def change(measure: Measure, run: Simulation, other: Simulation) -> float | None:
    """Return how much larger a metric is under `run`, relative to `other`; None if undefined."""
    a, b = (s.metrics.get(measure.key) for s in (run, other))
    return None if a is None or not b or measure.key == "gap_mean" else float(a / b - 1.0)


def compare_metrics(
    run: Simulation, other: Simulation, keys: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the metrics in which `run` is better and those in which it is worse.

    Each has its relative difference.
    """
    sides: tuple[list[str], list[str]] = [], []
    for measure in MEASURES:
        differs = change(measure, run, other) if measure.key in keys else None
        if differs is not None and abs(differs) >= NOTABLE and measure.better:
            sides[differs * measure.better < 0].append(f"{measure.title} ({_percent(differs)})")
    return sides


def _percent(change: float | None) -> str:
    if change is None:
        return ""
    if change > 9:
        return f"{change + 1:.0f} times"
    return "=" if abs(change) < 5e-4 else f"{100 * change:+.{0 if abs(change) > 0.1 else 1}f} %"
