"""Rounds: seconds to decide, and proven gap."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocator.report.chart import INK, Axis, Chart, Mark, Panel
from allocator.report.charts.series import Floats
from allocator.report.measures import duration
from allocator.report.runs import SimulationRun
from allocator.report.theme import colour

FLOOR = 1e-6  # relative gap: smaller gaps are drawn here
LEAST_S = 1e-5  # seconds to decide: shorter ones are drawn here
MOST = 2700  # points of a panel, of all policies together
SECONDS = Axis(kind="log", label=duration)
GAP = Axis(kind="log", low=FLOOR, label=lambda at: "0" if at <= FLOOR else f"{100 * at:g} %")
# columns of rounds.csv across and up
PANELS = (("at_s", "decision_s"), ("active", "decision_s"), ("at_s", "gap"))


def draw_decisions(runs: Sequence[SimulationRun], length: float) -> Chart:
    """Draw seconds over time, seconds over jobs, and gap over time.

    The runs have one workload, load and seed, and one policy each.
    """
    marks: list[list[Mark]] = [[] for _ in PANELS]
    most = max(150, MOST // max(1, len(runs)))
    for run in runs:
        frame = run.frame("rounds")
        frame["decision_s"] = frame["decision_s"].clip(lower=LEAST_S)
        frame["gap"] = frame["gap"].clip(lower=FLOOR)
        for dots, (x, y) in zip(marks, PANELS, strict=True):
            at, high = frame[[x, y]].to_numpy()[thin_points(frame[y].to_numpy(), most)].T
            dots.append(Mark("dots", at, high, run.policy, colour(run.policy), is_faint=True))
        fell = frame[frame["fallback"].notna()]
        if len(fell):
            marks[0].append(Mark("dots", fell["at_s"], fell["decision_s"], "fell back", INK))
    since = Axis("since the first submission", "time", high=length)
    panels = [
        Panel("Seconds to decide, by time", marks[0], since, SECONDS),
        Panel("Seconds to decide, by jobs", marks[1], Axis("jobs", "whole"), SECONDS),
        Panel("Proven gap", marks[2], since, GAP),
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
