"""Rounds: seconds to decide, and proven gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocator.report.chart import INK, Axis, Chart, Mark, Panel
from allocator.report.charts.series import Floats, begin_of
from allocator.report.measures import duration
from allocator.report.runs import SimulationRun, Study
from allocator.report.theme import colour

FLOOR = 1e-6  # relative gap: smaller gaps are drawn here
LEAST_S = 1e-5  # seconds to decide: shorter ones are drawn here
MOST = 2700  # points of a panel, of all policies together
SECONDS = Axis(kind="log", label=duration)
GAP = Axis(kind="log", low=FLOOR, label=lambda at: "0" if at <= FLOOR else f"{100 * at:g} %")


def decisions(study: Study, runs: Sequence[SimulationRun], length: float) -> Chart:
    """Draw seconds over time, seconds over jobs, and gap over time.

    The runs have one workload, load and seed, and one policy each.
    """
    over_time, over_jobs, gap = (list[Mark]() for _ in range(3))
    most = max(150, MOST // max(1, len(runs)))
    for run in runs:
        frame = study.frame(run, "rounds")
        at = frame["at_s"].to_numpy() - begin_of(study, run)
        took, active, far = (frame[c].to_numpy() for c in ("decision_s", "active", "gap"))
        for marks, x, y, least in (
            (over_time, at, took, LEAST_S),
            (over_jobs, active, took, LEAST_S),
            (gap, at, far, FLOOR),
        ):
            some = thin_points(y, most)
            high = np.maximum(y[some], least)
            marks.append(Mark("dots", x[some], high, run.policy, colour(run.policy), is_faint=True))
        fell = frame["fallback"].notna().to_numpy()
        if fell.any():
            y = np.maximum(took[fell], LEAST_S)
            over_time.append(Mark("dots", at[fell], y, "fell back", INK))
    since = Axis("since the first submission", "time", high=length)
    panels = [
        Panel("Seconds to decide, by time", over_time, since, SECONDS),
        Panel("Seconds to decide, by jobs", over_jobs, Axis("jobs", "whole"), SECONDS),
        Panel("Proven gap", gap, since, GAP),
    ]
    return Chart("decisions of every round", panels, 3)


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
