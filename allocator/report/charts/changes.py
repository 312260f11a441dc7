"""The main picture: changes of all policies against the baseline, with intervals, per load."""

from __future__ import annotations

import math

import numpy as np

from allocator.report.chart import BAD, GOOD, INK, Axis, Chart, Mark, Panel
from allocator.report.measures import BY_KEY, HEADLINE, interval, percent
from allocator.report.runs import POOLED, MetricChange, Study
from allocator.report.theme import colour

TICKS = (-95, -90, -80, -65, -50, -35, -20, -10, 0, 10, 25, 50, 100, 200, 400, 900, 1900, 4900)
MOST_TICKS = 6
LEAST = 0.01  # ratio; -99 %: smaller ratios are drawn here
Line = tuple[str, str]


def changes(study: Study, workload: str) -> Chart | None:
    """Draw a panel per main metric, with a line per load and policy; None without a comparison."""
    found = {
        (c.load, c.policy, c.metric): c
        for c in study.changes
        if c.workload == workload and math.isfinite(c.percent)
    }
    loads = [POOLED, *study.loads(workload)]
    lines: list[Line] = []
    for load in loads:
        here = [p for p in study.policies(workload) if (load, p, HEADLINE[0]) in found]
        title = study.together(workload) if load == POOLED else f"load {load}" if load else ""
        lines += [(title, "")] if here and title else []
        lines += [(load, policy) for policy in here]
    if not lines:
        return None
    panels = [_panel(study, key, lines, found) for key in HEADLINE]
    return Chart(f"change against {study.baseline}", panels, 3)


def _panel(
    study: Study,
    key: str,
    lines: list[Line],
    found: dict[tuple[str, str, str], MetricChange],
) -> Panel:
    """Draw one metric; half and double are equally far from "no change"."""
    here = {
        level: found[load, policy, key]
        for level, (load, policy) in enumerate(reversed(lines))
        if policy and (load, policy, key) in found
    }
    ends = [v for c in here.values() for v in (c.percent, c.low, c.high) if math.isfinite(v)]
    low, high = (_ratio(v) for v in (min([-10.0, *ends]), max([10.0, *ends])))
    low, high = low / 1.04, high * 1.04
    better = BY_KEY[key].better
    floor, top = [-0.6] * 2, [len(lines) - 0.4] * 2
    marks = [
        Mark("area", [low, 1.0], top, low=floor, colour=GOOD if better < 0 else BAD),
        Mark("area", [1.0, high], top, low=floor, colour=BAD if better < 0 else GOOD),
        Mark("line", [1.0, 1.0], [floor[0], top[0]], colour=INK),
    ]
    for level, change in here.items():
        shade = colour(change.policy)
        span = [change.low, change.high] if math.isfinite(change.low) else [0.0, change.percent]
        is_open = change.verdict == "open" and not study.single
        words = f"{change.policy}: {percent(change.percent)} % {interval(change.low, change.high)}"
        tip = words.strip() + (", undecided" if is_open else "")
        marks += [
            Mark("line", list(map(_ratio, span)), [level, level], colour=shade, is_faint=is_open),
            Mark("dots", [_ratio(change.percent)], [level], colour=shade, tips=[tip]),
        ]
    ticks = [t for t in TICKS if low <= _ratio(t) <= high]
    keep = set(ticks[:: -(-len(ticks) // MOST_TICKS)]) | {0}
    labels = {_ratio(t): f"{percent(t)} %" if t else "0" for t in ticks if t in keep}
    names = {float(k): policy or load for k, (load, policy) in enumerate(reversed(lines))}
    side = "less is better" if better < 0 else "more is better"
    return Panel(
        f"{BY_KEY[key].title}: {side}",
        marks,
        Axis(kind="log", low=low, high=high, ticks=labels),
        Axis(low=floor[0], high=top[0], ticks=names),
        height=50 + 24 * len(lines),
        left=130,
    )


def _ratio(change: float) -> float:
    return float(np.maximum(LEAST, 1.0 + change / 100.0))
