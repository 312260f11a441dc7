"""A table of simulations: a column per policy, a row per metric, and which policy is better."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allocator.cli.tables import Table
    from allocator.simulator import Simulation

LESS, MORE, NEITHER = -1, 1, 0  # which values are better
NOTABLE = 0.01  # smaller relative differences are not mentioned


class MetricRow(NamedTuple):
    """A metric of results.json as people read it: divided by `unit`."""

    name: str
    key: str
    unit: float
    better: int


ROWS = (
    MetricRow("jobs done", "finished", 1.0, MORE),
    MetricRow("mean completion, min", "jct_s_mean", 60.0, LESS),
    MetricRow("p99 completion, min", "jct_s_p99", 60.0, LESS),
    MetricRow("mean queueing, min", "queue_s_mean", 60.0, LESS),
    MetricRow("p99 queueing, min", "queue_s_p99", 60.0, LESS),
    MetricRow("makespan, h", "makespan_s", 3600.0, LESS),
    MetricRow("training efficiency", "efficiency_mean", 1.0, MORE),
    MetricRow("worst finish-time fairness", "ftf_max", 1.0, LESS),
    MetricRow("utilisation", "utilisation", 1.0, MORE),
    MetricRow("GPU-hours", "gpu_hours", 1.0, LESS),
    MetricRow("deadlines met", "deadlines_met", 1.0, MORE),
    MetricRow("US dollars", "dollars", 1.0, LESS),
    MetricRow("bill, US dollars", "bill_dollars", 1.0, LESS),
    MetricRow("GPUs revoked", "revocations", 1.0, LESS),
    MetricRow("restarts", "restarts", 1.0, LESS),
    MetricRow("node failures", "node_failures", 1.0, NEITHER),
    MetricRow("moves to other nodes", "moves", 1.0, LESS),
    MetricRow("unusable GPU-hours", "unusable_gpu_hours", 1.0, LESS),
    MetricRow("rounds", "rounds", 1.0, NEITHER),
    MetricRow("ms to decide", "decision_s_mean", 1e-3, LESS),
    MetricRow("mean gap", "gap_mean", 1.0, LESS),
)

# rows that are shown only if some value is not 0
WHERE_ANY = (
    "bill_dollars",
    "revocations",
    "deadlines_met",
    "node_failures",
    "moves",
    "unusable_gpu_hours",
)


def comparison(
    done: Sequence[Simulation], keys: Collection[str] = (), title: str = "policies"
) -> Table:
    """Return the table.

    With two policies, a last column has the difference of the first from the second. `keys` are
    those of the rows to show; all rows if it is empty.
    """
    from allocator.cli.tables import Table, text

    rows: list[list[str]] = []
    for row in ROWS:
        if keys and row.key not in keys:
            continue
        values = [s.metrics.get(row.key) for s in done]
        if row.key in WHERE_ANY and not any(values):
            continue
        cells = [text(v if v is None or row.unit == 1.0 else v / row.unit, 3) for v in values]
        rows.append([row.name, *cells, *([_percent(change(row, *done))] if len(done) == 2 else [])])
    columns = (
        "",
        *(s.policy for s in done),
        *([f"{done[0].policy} vs {done[1].policy}"] if len(done) == 2 else []),
    )
    return Table(title, columns, rows, frozenset(columns[1:]))


def change(row: MetricRow, one: Simulation, other: Simulation) -> float | None:
    """Return how much larger a metric is under `one`, relative to `other`; None if undefined."""
    a = one.metrics.get(row.key)
    b = other.metrics.get(row.key)
    return None if a is None or b is None or b == 0 or row.key == "gap_mean" else float(a / b - 1.0)


def compare_metrics(
    one: Simulation, other: Simulation, keys: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the metrics in which `one` is better and those in which it is worse.

    Each has its relative difference.
    """
    sides: tuple[list[str], list[str]] = [], []
    for row in ROWS:
        differs = change(row, one, other) if row.key in keys else None
        if differs is not None and abs(differs) >= NOTABLE and row.better != NEITHER:
            sides[differs * row.better < 0].append(
                f"{row.name.partition(',')[0]} ({_percent(differs)})"
            )
    return sides


def _percent(change: float | None) -> str:
    if change is None:
        return ""
    if change > 9:
        return f"{change + 1:.0f} times"
    return "=" if abs(change) < 5e-4 else f"{100 * change:+.{0 if abs(change) > 0.1 else 1}f} %"
