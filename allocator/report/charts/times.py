"""Completion and queueing times: the share of jobs that were done, or had started, after a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.report.charts.cluster import BANDS
from allocator.report.charts.series import Floats, share_done
from allocator.report.charts.style import colour, figure, legend, line, show_nothing
from allocator.report.runs import SimulationRun, Study

POINTS = 300  # number of points of each line
# marks of the time axis: seconds and text
MOMENTS = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (36_000.0, "10 h"),
    (86_400.0, "1 d"),
    (864_000.0, "10 d"),
    (8_640_000.0, "100 d"),
)
# more marks, for an axis that is short enough to have space for them
BETWEEN = (
    (3.0, "3 s"),
    (30.0, "30 s"),
    (120.0, "2 min"),
    (300.0, "5 min"),
    (1200.0, "20 min"),
    (7200.0, "2 h"),
    (18_000.0, "5 h"),
    (172_800.0, "2 d"),
    (432_000.0, "5 d"),
    (2_592_000.0, "30 d"),
)
# column of jobs.csv, title of its panel, name of the vertical axis
KINDS = (
    ("jct_s", "completion time: submission to completion", "share of jobs done"),
    ("queue_s", "queueing: submission to first start", "share of jobs started"),
)


def times(study: Study, workload: str) -> Any:
    """Draw the distributions of completion and queueing times, a row of panels for each load.

    A panel has a line for each policy. If there are several seeds, a band around the line shows the
    range from the 10th to the 90th percentile of the seeds.
    """
    loads = study.loads(workload)
    drawn = figure(11.5, 0.7 + 2.9 * len(loads))
    grid = drawn.subplots(len(loads), 2, squeeze=False, sharey=True)
    for row, load in zip(grid, loads, strict=True):
        for panel, (column, title, axis) in zip(row, KINDS, strict=True):
            _panel(panel, study, workload, load, column)
            panel.set_title(f"load {load}: {title}" if load else title[0].upper() + title[1:])
            panel.set_ylabel(axis)
    legend(drawn, list(grid.flat))
    return drawn


def _panel(panel: Any, study: Study, workload: str, load: str, column: str) -> None:
    """Draw one panel: the distribution of a column of jobs.csv, with a line for each policy."""
    found = {
        p: [_values(study, r, column) for r in study.of(workload, load, p)]
        for p in study.policies(workload)
    }
    known = np.concatenate(
        [v[np.isfinite(v)] for runs in found.values() for v in runs] or [np.zeros(0)]
    )
    if not len(known):
        show_nothing(panel, "no job got that far")
        return
    low, high = _limits(known, 10.0 if column == "jct_s" else 1.0)
    x = np.geomspace(low, high, POINTS)
    for policy, runs in found.items():
        if not runs:
            continue
        shares = np.array([share_done(v, len(v), x) for v in runs])
        if len(runs) > 1 and len(found) <= BANDS:
            panel.fill_between(
                x,
                *np.percentile(shares, (10.0, 90.0), axis=0),
                color=colour(policy),
                alpha=0.13,
                linewidth=0,
            )
        every = np.concatenate(runs)
        panel.plot(x, share_done(every, len(every), x), **line(policy))
    panel.set_xscale("log")
    panel.set_xlim(low, high)
    panel.set_ylim(0, 1.02)
    panel.set_yticks([0, 0.25, 0.5, 0.75, 0.9, 1.0], ["0", "25 %", "50 %", "75 %", "90 %", "all"])
    moments = MOMENTS if high > 300 * low else sorted(MOMENTS + BETWEEN)
    ticks = [(at, text) for at, text in moments if low <= at <= high]
    panel.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    panel.minorticks_off()
    panel.grid(True)


def _values(study: Study, run: SimulationRun, column: str) -> Floats:
    """Return a column of the jobs of a run, in seconds; nan where it has no value."""
    return np.asarray(study.frame(run, "jobs")[column].to_numpy(), dtype=np.float64)


def _limits(known: Floats, least: float) -> tuple[float, float]:
    """Return the first and the last second of the time axis for the known times (n,).

    The last one is at least ten times the first one, and at least twice `least`.
    """
    high = 1.1 * max(float(known.max()), 2 * least)
    low = max(least, 0.8 * float(np.percentile(known, 0.5)))
    return min(low, high / 10), high
