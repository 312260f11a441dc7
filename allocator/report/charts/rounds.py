"""Rounds of a journal over time: value of plans, bound, changes, and how long each part took."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from allocator.report.charts.decisions import FLOOR, MOST, thin_points
from allocator.report.charts.series import Floats
from allocator.report.charts.style import figure, legend, show_nothing, time_axis, whole_ticks
from allocator.report.journal import Journal, measure_carried_out
from allocator.report.measures import duration

VALUE, BOUND, FAILED = "#0072b2", "#8c8c8c", "#d55e00"
MARGIN = 0.02  # of the time shown, on both sides, so that a round at the very end is drawn
FEW = 30  # up to so many rounds are marked, since a single one has no line
PARTS = (
    ("decide", "to decide", "o", "#0072b2"),
    ("stop", "until the last stop was confirmed", "s", "#d55e00"),
    ("start", "until the last start ran", "^", "#009e73"),
)


def rounds(journal: Journal) -> Any:
    """Draw four panels; failed rounds are marked at the bottom of each."""
    drawn = figure(11.5, 5.6)
    panels = drawn.subplots(2, 2, sharex=True)
    length = journal.end_s - journal.begin_s
    size, unit = time_axis(length)
    entries = journal.rounds
    done = measure_carried_out(journal)
    at = (np.array([r.at_s for r in entries]) - journal.begin_s) / size
    failed = np.array([r.outcome == "failed" for r in entries], dtype=bool)
    (plan_value, changes), (gap, seconds) = panels
    for panel, title in (
        (plan_value, "Value of the plan, and the most it could be"),
        (gap, "Proven gap"),
        (changes, "Jobs started or stopped"),
        (seconds, "Seconds of a round, by part"),
    ):
        panel.set_title(title)
        panel.grid(True)
        if not len(at):
            show_nothing(panel, "no round")
    if len(at):
        _line(plan_value, at, _column([r.bound for r in entries]), "bound", BOUND, 3.5)
        _line(plan_value, at, _column([r.value for r in entries]), "value", VALUE, 1.5)
        plan_value.set_ylim(bottom=min(0.0, plan_value.get_ylim()[0]))
        _dots(gap, at, _column([r.gap for r in entries]), FLOOR, "o", VALUE, "")
        gap.set_yscale("log")
        top = max(1e-2, gap.get_ylim()[1])
        gap.minorticks_off()
        gap.set_ylim(FLOOR / 1.6, top)
        ticks = [FLOOR * 10.0**k for k in range(0, 9, 2) if FLOOR * 10.0**k <= top]
        gap.set_yticks(ticks, ["0" if t == FLOOR else f"{100 * t:g} %" for t in ticks])
        changes.vlines(
            at, 0, [c.changes for c in done], color=VALUE, linewidth=1.6 if len(at) < 200 else 0.6
        )
        changes.set_ylim(bottom=0)
        whole_ticks(changes)
        took = {
            "decide": [r.seconds.get("decide") for r in entries],
            "stop": [c.stop_s for c in done],
            "start": [c.start_s for c in done],
        }
        for name, words, mark, colour in PARTS:
            _dots(seconds, at, _column(took[name]), 1e-3, mark, colour, words)
        seconds.set_yscale("log")
        seconds.minorticks_off()
        low, high = np.log10(np.maximum(seconds.get_ylim(), 1e-9))
        # at least a tick at both ends
        seconds.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
        seconds.yaxis.set_major_formatter(lambda s, _: duration(s))
        for panel in panels.flat if failed.any() else ():
            panel.plot(
                at[failed],
                np.zeros(int(failed.sum())),
                "x",
                color=FAILED,
                markersize=6,
                clip_on=False,
                transform=panel.get_xaxis_transform(),
                label="round failed",
            )
    for panel in panels[1]:
        panel.set_xlabel(f"{unit} since {journal.origin}")
        panel.set_xlim(-MARGIN * length / size, (1 + MARGIN) * length / size)
    legend(drawn, list(panels.flat))
    return drawn


def _column(values: Any) -> Floats:
    return np.array([math.nan if v is None else float(v) for v in values])


def _line(panel: Any, at: Floats, y: Floats, label: str, colour: str, width: float) -> None:
    known = np.isfinite(y)
    panel.step(
        at[known],
        y[known],
        where="post",
        color=colour,
        linewidth=width,
        label=label,
        marker="o" if known.sum() <= FEW else "",
        markersize=2.5 * width,
    )


def _dots(
    panel: Any, at: Floats, y: Floats, least: float, mark: str, colour: str, label: str
) -> None:
    some = thin_points(y, MOST // 3)
    panel.plot(
        at[some],
        np.maximum(y[some], least),
        mark,
        color=colour,
        markersize=3.5,
        alpha=0.7,
        markeredgewidth=0,
        label=label or "_",
    )
