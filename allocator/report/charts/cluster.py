"""The cluster over time: waiting jobs, GPUs in use and available, dollars per hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from allocator.report.charts.series import BINS, Floats, RunSeries, series, spread
from allocator.report.charts.style import (
    LIMIT,
    colour,
    figure,
    legend,
    line,
    show_nothing,
    time_axis,
    whole_ticks,
)
from allocator.report.runs import Study

BANDS = 5  # policies; with more, bands would cover each other
Found = Mapping[str, list[RunSeries]]


def collect(study: Study, workload: str, load: str, length_s: float) -> dict[str, list[RunSeries]]:
    """Return the series of every policy and seed over one common grid."""
    return {
        p: [series(study, r, length_s) for r in study.of(workload, load, p)]
        for p in study.policies(workload)
    }


def priced(found: Mapping[str, Found]) -> bool:
    """Return whether any GPU has a price, or memory on it."""
    return any(
        s.cost_of_all.any() or s.paid.any()
        for policies in found.values()
        for runs in policies.values()
        for s in runs
    )


def queue(study: Study, found: Mapping[str, Found]) -> Any:
    """Draw the jobs before their first start and the paused jobs over time; found: by load."""
    return _rows(
        study,
        found,
        Quantity("jobs waiting for their first start", lambda s: s.waiting),
        Quantity("jobs paused: started, but without GPUs now", lambda s: s.paused),
        queues=True,
    )


def use(study: Study, found: Mapping[str, Found], budget_per_hour: float | None = None) -> Any:
    """Draw the GPUs held over time, and dollars per hour with their budget if GPUs have prices."""
    kinds = [Quantity("GPUs held", lambda s: s.all_held, lambda s: s.all_capacity)]
    if priced(found):
        dollars = Quantity(
            "dollars per hour", lambda s: s.paid, lambda s: s.cost_of_all, budget_per_hour
        )
        kinds.append(dollars)
    return _rows(study, found, *kinds)


class Quantity(NamedTuple):
    """What a panel shows: its title, the values, what there is at most, and a budget."""

    title: str
    value: Callable[[RunSeries], Floats]
    limit: Callable[[RunSeries], Floats] | None = None
    budget: float | None = None


def _rows(study: Study, found: Mapping[str, Found], *kinds: Quantity, queues: bool = False) -> Any:
    """Draw a panel per load and kind; with several loads the kinds stand in columns.

    `queues`: the kinds have one scale, and the time when all of them are empty is left out.
    """
    drawn = figure(11.5, 0.7 + 2.4 * len(found) * (1 if len(found) > 1 else len(kinds)))
    across = len(kinds) if len(found) > 1 else 1
    how = "none" if not queues else "row" if across > 1 else "all"
    grid = drawn.subplots(len(found) * len(kinds) // across, across, squeeze=False, sharey=how)
    places = iter(grid.flat)
    for load, policies in found.items():
        busy = _busy(policies, kinds) if queues else BINS
        for kind in kinds:
            panel = next(places)
            _panel(panel, policies, kind, busy, study.origin)
            title = kind.title
            panel.set_title(f"load {load}: {title}" if load else title[0].upper() + title[1:])
    legend(drawn, list(grid.flat))
    return drawn


def _busy(policies: Found, kinds: Sequence[Quantity]) -> int:
    """Return the number of bins to show.

    They reach a little beyond the last mean above a hundredth of the highest.
    """
    means = [
        spread([kind.value(s) for s in runs])[0]
        for runs in policies.values()
        if runs
        for kind in kinds
    ]
    top = np.max(means, axis=0, initial=0.0) if means else np.zeros(1)
    over = np.flatnonzero(top > 0.01 * top.max(initial=0.0))
    return min(BINS, int(1.06 * over[-1]) + 3) if len(over) else BINS


def _panel(panel: Any, policies: Found, kind: Quantity, bins: int, origin: str) -> None:
    _, value, limit, budget = kind
    first = next((s for runs in policies.values() for s in runs), None)
    if first is None:
        show_nothing(panel, "nothing was simulated")
        return
    size, unit = time_axis(float(first.edges[-1]))
    x = first.edges / size
    for policy, runs in policies.items():
        if not runs:
            continue
        middle, low, high = spread([value(s) for s in runs])
        if len(runs) > 1 and len(policies) <= BANDS:
            panel.stairs(high, x, baseline=low, fill=True, color=colour(policy), alpha=0.13)
        panel.stairs(middle, x, baseline=None, **{**line(policy), "linewidth": 1.3})
    if limit is not None:
        top, *_ = spread([limit(s) for runs in policies.values() for s in runs])
        panel.stairs(top, x, baseline=None, color="black", linewidth=1.1, label="all there is")
    if budget is not None:
        panel.axhline(budget, color=LIMIT, linewidth=1.3, linestyle="--", label="budget")
    panel.set_xlim(0, x[min(bins, len(x) - 1)])
    panel.set_ylim(bottom=0, top=None if panel.get_ylim()[1] > 1e-9 else 1)
    whole_ticks(panel)
    panel.set_xlabel(f"{unit} since {origin}")
    panel.grid(True)
