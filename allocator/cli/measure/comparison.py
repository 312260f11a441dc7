"""A table of simulations: a column per policy, a row per metric, and which policy is better."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from allocator import Simulation
from allocator.cli.output import Table, text

LESS, MORE, NEITHER = -1, 1, 0  # which values are better
NOTABLE = 0.01  # smaller relative differences are not mentioned


class MetricRow(NamedTuple):
    """A metric of results.json as people read it: divided by `unit`."""

    name: str
    key: str
    better: int
    unit: float = 1.0


ROWS = (
    MetricRow("jobs done", "finished", MORE),
    MetricRow("mean completion, min", "jct_s_mean", LESS, 60.0),
    MetricRow("p99 completion, min", "jct_s_p99", LESS, 60.0),
    MetricRow("mean queueing, min", "queue_s_mean", LESS, 60.0),
    MetricRow("p99 queueing, min", "queue_s_p99", LESS, 60.0),
    MetricRow("makespan, h", "makespan_s", LESS, 3600.0),
    MetricRow("training efficiency", "efficiency_mean", MORE),
    MetricRow("worst finish-time fairness", "ftf_max", LESS),
    MetricRow("utilisation", "utilisation", MORE),
    MetricRow("GPU-hours", "gpu_hours", LESS),
    MetricRow("deadlines met", "deadlines_met", MORE),
    MetricRow("US dollars", "dollars", LESS),
    MetricRow("bill, US dollars", "bill_dollars", LESS),
    MetricRow("GPUs revoked", "revocations", LESS),
    MetricRow("restarts", "restarts", LESS),
    MetricRow("node failures", "node_failures", NEITHER),
    MetricRow("moves to other nodes", "moves", LESS),
    MetricRow("unusable GPU-hours", "unusable_gpu_hours", LESS),
    MetricRow("rounds", "rounds", NEITHER),
    MetricRow("ms to decide", "decision_s_mean", LESS, 1e-3),
    MetricRow("mean gap", "gap_mean", LESS),
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
    is_pair = len(done) == 2
    rows = []
    for row in ROWS:
        values = [s.metrics.get(row.key) for s in done]
        if (keys and row.key not in keys) or (row.key in WHERE_ANY and not any(values)):
            continue
        cells = [text(v if v is None or row.unit == 1.0 else v / row.unit, 3) for v in values]
        rows.append([row.name, *cells, *([_percent(change(row, *done))] if is_pair else [])])
    names = [s.policy for s in done]
    columns = [*names, *([" vs ".join(names)] if is_pair else [])]
    return Table(title, ("", *(f">{name}" for name in columns)), rows)


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
