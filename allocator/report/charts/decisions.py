"""Rounds: how long each decision took, and how far its plan may be from the best possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocator.report.charts.series import Floats, begin_of
from allocator.report.charts.style import colour, figure, legend, mark, show_nothing, time_axis
from allocator.report.measures import duration
from allocator.report.runs import SimulationRun, Study

FLOOR = 1e-6  # relative gap: smaller gaps are drawn here
MOST = 2700  # points of a panel, of all policies together


def decisions(study: Study, runs: Sequence[SimulationRun], length: float) -> Any:
    """Draw seconds over time, seconds over jobs, and gap over time.

    The runs have one workload, load and seed, and one policy each.
    """
    from matplotlib.ticker import LogLocator

    drawn = figure(11.5, 3.9)
    over_time, over_jobs, gap = panels = drawn.subplots(1, 3)
    size, unit = time_axis(length)
    below = f"{unit} since {study.origin}"
    any_round = False
    for run in runs:
        frame = study.frame(run, "rounds")
        at = (frame["at_s"].to_numpy() - begin_of(study, run)) / size
        took, active, far = (frame[c].to_numpy() for c in ("decision_s", "active", "gap"))
        how = {
            "color": colour(run.policy),
            "marker": mark(run.policy),
            "markersize": 3,
            "linestyle": "none",
            "alpha": 0.55,
            "markeredgewidth": 0,
            "label": run.policy,
        }
        any_round = any_round or len(frame) > 0
        for panel, x, y, least in (
            (over_time, at, took, 1e-5),
            (over_jobs, active, took, 1e-5),
            (gap, at, far, FLOOR),
        ):
            some = thin_points(y, max(150, MOST // len(runs)))
            panel.plot(x[some], np.maximum(y[some], least), **how)
        fell = frame["fallback"].notna().to_numpy()
        if fell.any():
            over_time.plot(
                at[fell],
                np.maximum(took[fell], 1e-5),
                "x",
                color="black",
                markersize=5,
                label="fell back",
            )
    for panel, title, axis in (
        (over_time, "Seconds to decide, per round", below),
        (over_jobs, "Seconds to decide, by jobs present", "jobs running or waiting"),
        (gap, "Proven gap, per round", below),
    ):
        panel.set_title(title)
        panel.set_xlabel(axis)
        if not any_round:
            show_nothing(panel, "no round")
            continue
        panel.set_yscale("log")
        panel.grid(True)
        low, high = panel.get_ylim()
        if high < 200 * low:
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(lambda seconds, _: duration(seconds))
    over_jobs.set_xlim(left=0)
    for panel in (over_time, gap):
        panel.set_xlim(-0.01 * length / size, 1.01 * length / size)
    if any_round:
        high = gap.get_ylim()[1]
        gap.set_ylim(FLOOR / 1.6, max(high, 1e-2))
        ticks = [FLOOR * 10.0**k for k in range(0, 9, 2) if FLOOR * 10.0**k <= gap.get_ylim()[1]]
        gap.set_yticks(ticks, ["0" if t == FLOOR else f"{100 * t:g} %" for t in ticks])
    legend(drawn, panels, markerscale=2)
    return drawn


def thin_points(y: Floats, most: int) -> Any:
    """Select which of many points to draw.

    They are the highest of every stretch, so that no slow round is lost, and one next to it.
    """
    known = np.flatnonzero(np.isfinite(y))
    if len(known) <= most:
        return known
    parts = np.array_split(known, most // 2)
    return np.unique(
        [k for part in parts for k in (part[np.argmax(y[part])], part[len(part) // 2])]
    )
