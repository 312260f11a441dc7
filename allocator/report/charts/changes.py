"""The main picture: changes of all policies against the baseline, with intervals, per load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from allocator.report.charts.style import BAD, GOOD, INK, colour, figure, look, write_at
from allocator.report.measures import BY_KEY, HEADLINE, duration, interval, number, percent
from allocator.report.runs import POOLED, MetricChange, Study

TICKS = (
    -99,
    -95,
    -90,
    -80,
    -65,
    -50,
    -35,
    -25,
    -15,
    -10,
    -5,
    0,
    5,
    10,
    20,
    35,
    50,
    75,
    100,
    150,
    200,
    300,
    500,
    900,
    1900,
    4900,
    9900,
)
GREY = "#555555"
LEAST = 0.01  # ratio; -99 %: smaller ratios are drawn here


def changes(study: Study, workload: str) -> Any:
    """Draw a panel per main metric, with a line per load and policy.

    Returns None if there is nothing to compare.
    """
    loads = [
        x
        for x in [POOLED, *study.loads(workload)]
        if any(c.workload == workload and c.load == x for c in study.changes)
    ]
    policies = _best_first(study, workload, loads)
    lines = _lines(study, workload, loads, policies)
    if not lines:
        return None
    drawn = figure(11.5, 0.9 + 0.29 * len(lines) + 0.1 * len(loads))
    panels = drawn.subplots(1, len(HEADLINE), sharey=True)
    for panel, key in zip(panels, HEADLINE, strict=True):
        _panel(panel, study, workload, key, lines)
    panels[0].set_ylim(len(lines) - 0.4, -0.6)
    panels[0].set_yticks(
        range(len(lines)), [p or _load(load, study, workload) for load, p in lines]
    )
    for text, (_, policy) in zip(panels[0].get_yticklabels(), lines, strict=True):
        text.set_color(colour(policy) if policy else INK)
        text.set_fontweight("bold")
    return drawn


def _best_first(study: Study, workload: str, loads: Sequence[str]) -> list[str]:
    """Return the policies in order of their change of the first metric in the first group."""

    def rank(policy: str) -> float:
        c = study.change(workload, loads[0], policy, HEADLINE[0]) if loads else None
        return c.percent if c is not None and math.isfinite(c.percent) else math.inf

    return sorted((p for p in study.policies(workload) if p != study.baseline), key=rank)


def _lines(
    study: Study, workload: str, loads: Sequence[str], policies: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (load, policy) from top to bottom; a line with policy "" is the heading of a load."""
    lines: list[tuple[str, str]] = []
    for load in loads:
        here = [
            p
            for p in policies
            if any(_has_change(study.change(workload, load, p, key)) for key in HEADLINE)
        ]
        if here and (load or len(loads) > 1):
            lines.append((load, ""))
        lines += [(load, p) for p in here]
    return lines


def _has_change(change: MetricChange | None) -> bool:
    return change is not None and math.isfinite(change.percent)


def _load(load: str, study: Study, workload: str) -> str:
    return study.together(workload) if load == POOLED else f"load {load}"


def _panel(
    panel: Any, study: Study, workload: str, key: str, lines: Sequence[tuple[str, str]]
) -> None:
    """Draw one metric.

    Positions are logarithms of ratios, so that half and double are equally far from "no change".
    """
    better = BY_KEY[key].better
    found = [
        (y, policy, c)
        for y, (load, policy) in enumerate(lines)
        for c in (study.change(workload, load, policy, key),)
        if policy and c is not None and _has_change(c)
    ]
    low, high = _limits(
        [v for _, _, c in found for v in (c.percent, c.low, c.high) if math.isfinite(v)]
    )
    panel.set_xlim(low, high)
    panel.axvspan(low, 0.0, color=GOOD if better < 0 else BAD, zorder=0)
    panel.axvspan(0.0, high, color=BAD if better < 0 else GOOD, zorder=0)
    panel.axvline(0.0, color=GREY, linewidth=1)
    for y, policy, c in found:
        hollow = c.verdict == "open" and not study.single
        if math.isfinite(c.low) and math.isfinite(c.high):
            panel.plot(
                [_x(c.low), _x(c.high)],
                [y, y],
                color=colour(policy),
                linewidth=2.4,
                solid_capstyle="butt",
            )
        if study.single:
            panel.plot([0.0, _x(c.percent)], [y, y], color=colour(policy), linewidth=2.4)
        panel.plot(
            _x(c.percent),
            y,
            look(policy).mark,
            color=colour(policy),
            markersize=7.5,
            markeredgewidth=1.6,
            markerfacecolor="white" if hollow else colour(policy),
            clip_on=False,
        )
        weight = "normal" if hollow else "bold"
        _annotate(panel, y, 4, f"{percent(c.percent)} %", fontsize=9, fontweight=weight)
        _annotate(panel, y, 50, interval(c.low, c.high), color=GREY)
    for y, (load, policy) in enumerate(lines):
        if not policy:
            words = _baseline_mean(study, workload, load, key)
            _annotate(panel, y, 4, words, color=GREY, style="italic")
            panel.axhline(y - 0.5, color="#bbbbbb", linewidth=0.8)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    _ticks(panel, low, high)
    panel.set_title(BY_KEY[key].title, loc="left", pad=16)
    for x, words in zip(
        (low / 2, high / 2),
        ("← better", "worse →") if better < 0 else ("← worse", "better →"),
        strict=True,
    ):
        place = {"xycoords": panel.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        write_at(panel, words, (x, 1), (0, 3), color=GREY, **place)


def _annotate(panel: Any, y: float, points: float, words: str, **how: Any) -> None:
    """Write words to the right of the panel."""
    place = {"xycoords": panel.get_yaxis_transform(), "va": "center", "ha": "left"}
    write_at(panel, words, (1, y), (points, 0), **(place | how))


def _baseline_mean(study: Study, workload: str, load: str, key: str) -> str:
    """Return the mean of the baseline over its seeds, as text."""
    if load == POOLED:
        return "against " + study.baseline
    value = study.mean(workload, load, study.baseline, key)
    if math.isnan(value):
        return ""
    return f"{study.baseline}: {duration(value) if BY_KEY[key].kind == 'time' else number(value)}"


def _x(change: float) -> float:
    return math.log(max(LEAST, 1.0 + change / 100.0))


def _limits(changes: Sequence[float]) -> tuple[float, float]:
    """Return limits that include all changes and at least ten percent on either side."""
    low = min([-10.0, *changes])
    high = max([10.0, *changes])
    return 1.08 * _x(low) - 0.02, 1.08 * _x(high) + 0.02


def _ticks(panel: Any, low: float, high: float) -> None:
    """Set round percentages as ticks, so far apart that their labels do not overlap."""
    step = (high - low) / 4.2
    chosen = [0.0]
    for side in (-1, 1):
        last = 0.0
        for tick in sorted((t for t in TICKS if t * side > 0), key=abs):
            at = _x(tick)
            if abs(at - last) >= step and low <= at <= high:
                chosen.append(float(tick))
                last = at
    panel.set_xticks(
        [_x(t) for t in chosen], [f"{percent(t)} %" if t else "0" for t in chosen], fontsize=8
    )
