"""Charts of the pages as numbers; templates/parts.html draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from allocator.queue.costs import DailyCost
from allocator.server.views.cluster import UseOverTime
from allocator.server.views.rounds import Round


@dataclass(frozen=True)
class Chart:
    """Numbers that are stacked at each place of the horizontal axis.

    Attributes
    ----------
    words : str
        What the chart shows, for those who do not see it.
    labels : sequence of str
        Of the places.
    series : dict of str to list
        Where the numbers of a name begin and end, (from, to) at each place.
    ticks : dict of float to str
        Labels of the vertical axis by value; the largest is its end.
    limit : float or None
        A tick that is drawn as a limit.
    is_filled : bool
        The series are areas, not bars.
    """

    words: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[tuple[float, float]]]
    ticks: Mapping[float, str]
    limit: float | None
    is_filled: bool


def draw_spending(
    days: Sequence[str], daily: Sequence[DailyCost], budget_per_hour: float | None
) -> Chart | None:
    """Return dollars by day, stacked by tenant, with a line at the budget of a day."""
    spent = {(cost.day, cost.tenant): cost.dollars for cost in daily}
    numbers = {
        tenant: [spent.get((day, tenant), 0.0) for day in days]
        for tenant in sorted({cost.tenant for cost in daily})
    }
    if not numbers:
        return None
    today = sum(one[-1] for one in numbers.values())
    words = f"US dollars by day and tenant; today {today:,.2f}"
    budget = None if budget_per_hour is None else 24 * budget_per_hour
    if budget is not None:
        words += f"; budget {budget:,.0f} a day for all GPUs"
    return _stack(words, [day[5:] for day in days], numbers, budget, "${}")


def draw_use(use: UseOverTime) -> Chart | None:
    """Return GPUs in use over time, stacked by pool, with a line at all GPUs."""
    if not use.by_pool:
        return None
    used = sum(gpus[-1] for gpus in use.by_pool.values())
    words = f"GPUs in use over the last 24 hours; now {used} of {use.gpus}"
    labels = [datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in use.at_s]
    return _stack(words, labels, use.by_pool, use.gpus or None, "{} GPUs", is_filled=True)


def draw_rounds(rows: Sequence[Round]) -> Chart:
    """Return the changes of the latest rounds, the oldest first."""
    ordered = list(rows)[::-1]
    numbers = {"jobs started or stopped": [row.changes for row in ordered]}
    return _stack("Jobs started or stopped by round", [str(row.number) for row in ordered], numbers)


def _stack(
    words: str,
    labels: Sequence[str],
    numbers: Mapping[str, Sequence[float]],
    limit: float | None = None,
    unit: str = "{}",
    is_filled: bool = False,
) -> Chart:
    ends = np.cumsum(list(numbers.values()), axis=0)
    top = max(1.0, limit or 0.0, *ends[-1].tolist()) / 4
    size = 10.0 ** math.floor(math.log10(top)) if top >= 1 else 1.0
    # the next number that is 1, 2, 2.5 or 5 times a power of ten
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= top - 1e-9)
    ticks = {step * k: f"{step * k:,g}" for k in range(5)}
    if limit is not None:
        ticks = {at: label for at, label in ticks.items() if abs(at - limit) > 0.4 * step}
        ticks[limit] = unit.format(f"{limit:,.0f}")
    series = {
        name: list(zip((end - np.array(values)).tolist(), end.tolist(), strict=True))
        for (name, values), end in zip(numbers.items(), ends, strict=True)
    }
    return Chart(words, labels, series, ticks, limit, is_filled)
