"""The cluster over time: waiting jobs, GPUs in use and available, dollars per hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from allocator.report.chart import INK, Axis, Chart, Mark, Panel, steps
from allocator.report.charts.series import BINS, Floats, RunSeries, series, spread
from allocator.report.runs import Study
from allocator.report.theme import colour

WHOLE = Axis(kind="whole")
BANDS = 5  # policies; with more, bands would cover each other
Found = Mapping[str, list[RunSeries]]


class Quantity(NamedTuple):
    """What a panel shows: its title, the values, and what there is at most."""

    title: str
    value: Callable[[RunSeries], Floats]
    limit: Callable[[RunSeries], Floats] | None = None
    axis: Axis = WHOLE


def collect(study: Study, workload: str, load: str, length_s: float) -> dict[str, list[RunSeries]]:
    """Return the series of every policy and seed over one common grid."""
    return {
        p: [series(study, r, length_s) for r in study.of(workload, load, p)]
        for p in study.policies(workload)
    }


def priced(found: Mapping[str, Found]) -> bool:
    """Return whether any GPU has a price, or memory on it."""
    every = (s for policies in found.values() for runs in policies.values() for s in runs)
    return any(s.cost_of_all.any() or s.paid.any() for s in every)


def queue(study: Study, found: Mapping[str, Found]) -> Chart:
    """Draw the jobs before their first start and the paused jobs over time; found: by load."""
    kinds = (
        Quantity("Jobs that never started", lambda s: s.waiting),
        Quantity("Jobs paused", lambda s: s.paused),
    )
    return _draw(study, found, kinds, "jobs that wait")


def use(study: Study, found: Mapping[str, Found]) -> Chart:
    """Draw the GPUs held over time, and dollars per hour if GPUs have prices."""
    kinds = [Quantity("GPUs held", lambda s: s.all_held, lambda s: s.all_capacity)]
    if priced(found):
        paid = Quantity("Dollars per hour", lambda s: s.paid, lambda s: s.cost_of_all, Axis())
        kinds.append(paid)
    return _draw(study, found, kinds, "GPUs in use")


def _draw(study: Study, found: Mapping[str, Found], kinds: Sequence[Quantity], words: str) -> Chart:
    """Draw a panel per load and kind; the time when queues are empty is left out."""
    panels = []
    for load, policies in found.items():
        shown = BINS if kinds[0].limit else _busy(policies, kinds)
        for kind in kinds:
            title = (f"Load {load}: " if load else "") + kind.title
            panels.append(_panel(study, policies, kind, title, shown))
    return Chart(words, panels, len(kinds))


def _busy(policies: Found, kinds: Sequence[Quantity]) -> int:
    """Return how many bins reach a little beyond the last mean above 1 % of the highest."""
    means = [spread([k.value(s) for s in runs])[0] for runs in policies.values() for k in kinds]
    top = np.max(means, axis=0, initial=0.0) if means else np.zeros(1)
    over = np.flatnonzero(top > 0.01 * top.max(initial=0.0))
    return min(BINS, int(1.06 * over[-1]) + 3) if len(over) else BINS


def _panel(study: Study, policies: Found, kind: Quantity, title: str, bins: int) -> Panel:
    marks = []
    edges = next((s.edges for runs in policies.values() for s in runs), np.zeros(1))[: bins + 1]
    for policy, runs in policies.items():
        middle, low, high = (part[:bins] for part in spread([kind.value(s) for s in runs]))
        if len(runs) > 1 and len(policies) <= BANDS:
            x, top = steps(edges, high)
            bottom = steps(edges, low)[1]
            marks.append(Mark("area", x, top, low=bottom, colour=colour(policy), is_faint=True))
        marks.append(Mark("line", *steps(edges, middle), policy, colour(policy)))
    if kind.limit is not None:
        top, *_ = spread([kind.limit(s) for runs in policies.values() for s in runs])
        whole = steps(edges, top[:bins])
        marks.append(Mark("line", *whole, "all there is", INK, is_dashed=True))
    begin = Axis("since the first submission", "time", high=float(edges[-1]))
    return Panel(title, marks, begin, kind.axis)
