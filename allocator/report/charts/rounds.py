"""Rounds: how long each took, how far its plan may be from the best, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from allocator.report.charts.series import Floats, begin_of
from allocator.report.charts.style import (
    colour,
    figure,
    legend,
    look,
    show_nothing,
    time_axis,
    whole_ticks,
)
from allocator.report.journal import Journal, measure_carried_out
from allocator.report.measures import duration
from allocator.report.runs import SimulationRun, Study

FLOOR = 1e-6  # relative gap: smaller gaps are drawn here
LEAST_S = 1e-5  # seconds to decide: shorter ones are drawn here
MOST = 2700  # points of a panel, of all policies together
VALUE, BOUND, FAILED = "#0072b2", "#8c8c8c", "#d55e00"
MARGIN = 0.02  # of the time shown, on both sides, so that a round at the very end is drawn
FEW = 30  # up to so many rounds are marked, since a single one has no line


def decisions(study: Study, runs: Sequence[SimulationRun], length: float) -> Any:
    """Draw seconds over time, seconds over jobs, and gap over time.

    The runs have one workload, load and seed, and one policy each.
    """
    drawn = figure(11.5, 3.9)
    over_time, over_jobs, gap = panels = drawn.subplots(1, 3)
    size, unit = time_axis(length)
    any_round = False
    for run in runs:
        frame = study.frame(run, "rounds")
        at = (frame["at_s"].to_numpy() - begin_of(study, run)) / size
        took, active, far = (frame[c].to_numpy() for c in ("decision_s", "active", "gap"))
        any_round = any_round or len(frame) > 0
        how = {"color": colour(run.policy), "alpha": 0.55, "label": run.policy, "markersize": 3}
        most = max(150, MOST // len(runs))
        for panel, x, y, least in (
            (over_time, at, took, LEAST_S),
            (over_jobs, active, took, LEAST_S),
            (gap, at, far, FLOOR),
        ):
            _dots(panel, x, y, least, look(run.policy).mark, most, **how)
        fell = frame["fallback"].notna().to_numpy()
        if fell.any():
            y = np.maximum(took[fell], LEAST_S)
            over_time.plot(at[fell], y, "x", color="black", markersize=5, label="fell back")
    below = f"{unit} since {study.origin}"
    for panel, title, axis, scale in (
        (over_time, "Seconds to decide, per round", below, _seconds_axis),
        (over_jobs, "Seconds to decide, by jobs present", "jobs running or waiting", _seconds_axis),
        (gap, "Proven gap, per round", below, _gap_axis),
    ):
        panel.set(title=title, xlabel=axis)
        if any_round:
            scale(panel)
            panel.grid(True)
        else:
            show_nothing(panel, "no round")
    over_jobs.set_xlim(left=0)
    for panel in (over_time, gap):
        panel.set_xlim(-0.01 * length / size, 1.01 * length / size)
    legend(drawn, panels, markerscale=2)
    return drawn


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
    for panel, title, draw in (
        (plan_value, "Value of the plan, and the most it could be", _draw_values),
        (gap, "Proven gap", _draw_gaps),
        (changes, "Jobs started or stopped", _draw_changes),
        (seconds, "Seconds of a round, by part", _draw_seconds),
    ):
        panel.set_title(title)
        panel.grid(True)
        if not len(at):
            show_nothing(panel, "no round")
            continue
        draw(panel, at, entries, done)
        if failed.any():
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


def _draw_values(panel: Any, at: Floats, entries: Any, _done: Any) -> None:
    for label, shade, width in (("bound", BOUND, 3.5), ("value", VALUE, 1.5)):
        y = _column(getattr(r, label) for r in entries)
        known = np.isfinite(y)
        shape = {"marker": "o" if known.sum() <= FEW else "", "markersize": 2.5 * width}
        panel.step(
            at[known], y[known], where="post", color=shade, linewidth=width, label=label, **shape
        )
    panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]))


def _draw_gaps(panel: Any, at: Floats, entries: Any, _done: Any) -> None:
    _dots(panel, at, _column(r.gap for r in entries), FLOOR, "o", color=VALUE)
    _gap_axis(panel)


def _draw_changes(panel: Any, at: Floats, _entries: Any, done: Any) -> None:
    width = 1.6 if len(at) < 200 else 0.6
    panel.vlines(at, 0, [c.changes for c in done], color=VALUE, linewidth=width)
    panel.set_ylim(bottom=0)
    whole_ticks(panel)


def _draw_seconds(panel: Any, at: Floats, entries: Any, done: Any) -> None:
    for words, sign, shade, took in (
        ("to decide", "o", VALUE, (r.seconds.get("decide") for r in entries)),
        ("until the last stop was confirmed", "s", FAILED, (c.stop_s for c in done)),
        ("until the last start ran", "^", "#009e73", (c.start_s for c in done)),
    ):
        _dots(panel, at, _column(took), 1e-3, sign, color=shade, label=words)
    _seconds_axis(panel)


def _gap_axis(panel: Any) -> None:
    """Give relative gaps a logarithmic axis, on which FLOOR is no gap."""
    panel.set_yscale("log")
    panel.minorticks_off()
    top = max(1e-2, panel.get_ylim()[1])
    panel.set_ylim(FLOOR / 1.6, top)
    ticks = [FLOOR * 10.0**k for k in range(0, 9, 2) if FLOOR * 10.0**k <= top]
    panel.set_yticks(ticks, ["0" if t == FLOOR else f"{100 * t:g} %" for t in ticks])


def _seconds_axis(panel: Any) -> None:
    """Give seconds a logarithmic axis with a tick at least at both ends."""
    panel.set_yscale("log")
    panel.minorticks_off()
    low, high = np.log10(np.maximum(panel.get_ylim(), 1e-9))
    panel.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
    panel.yaxis.set_major_formatter(lambda s, _: duration(s))


def _column(values: Iterable[Any]) -> Floats:
    return np.array([math.nan if v is None else float(v) for v in values])


def _dots(
    panel: Any,
    x: Floats,
    y: Floats,
    least: float,
    sign: str,
    most: int = MOST // 3,
    **how: Any,
) -> None:
    some = thin_points(y, most)
    shape = {"markersize": 3.5, "alpha": 0.7, "markeredgewidth": 0}
    panel.plot(x[some], np.maximum(y[some], least), sign, **(shape | how))


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
