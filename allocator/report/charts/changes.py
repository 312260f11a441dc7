"""The main picture: changes of all policies against the baseline, with intervals, per load."""

import math
from collections.abc import Sequence

from allocator.report.chart import BAD, GOOD, INK, Axis, Chart, Mark, Panel
from allocator.report.measures import BY_KEY, HEADLINE, percent
from allocator.report.runs import POOLED, Study
from allocator.report.theme import colour

TICKS = (-95, -90, -80, -65, -50, -35, -20, -10, 0, 10, 25, 50, 100, 200, 400, 900, 1900, 4900)
MOST_TICKS = 5
LEAST = 0.01  # ratio; -99 %: smaller ratios are drawn here


def draw_changes(work: Study) -> Chart | None:
    """Draw a panel per main metric, with a line per load and policy; None without a comparison."""
    lines: list[tuple[str, str]] = []
    for load in (POOLED, *work.loads):
        here = [p for p in work.policies if work.change(load, p, HEADLINE[0])]
        title = work.together if load == POOLED else f"load {load}" if load else ""
        lines += [(title, "")] if here and title else []
        lines += [(load, policy) for policy in here]
    if not lines:
        return None
    panels = [_draw_metric(work, key, lines[::-1]) for key in HEADLINE]
    return Chart(f"change against {work.baseline}", panels, 3)


def _draw_metric(work: Study, key: str, lines: Sequence[tuple[str, str]]) -> Panel:
    """Draw one metric; half and double are equally far from "no change"."""
    here = {level: work.change(*line, key) for level, line in enumerate(lines)}
    known = {level: change for level, change in here.items() if change is not None}
    ends = [v for c in known.values() for v in (c.percent, c.low, c.high) if math.isfinite(v)]
    low, high = _ratio(min([-10.0, *ends])) / 1.04, _ratio(max([10.0, *ends])) * 1.04
    sides = (GOOD, BAD) if BY_KEY[key].better < 0 else (BAD, GOOD)
    floor, top = -0.6, len(lines) - 0.4
    marks = [
        Mark("area", ends, [top] * 2, low=[floor] * 2, colour=side)
        for ends, side in zip(([low, 1.0], [1.0, high]), sides, strict=True)
    ]
    marks.append(Mark("line", [1.0, 1.0], [floor, top], colour=INK))
    for level, change in known.items():
        shade = colour(change.policy)
        span = (change.low, change.high) if math.isfinite(change.low) else (0.0, change.percent)
        is_open = change.verdict == "open" and not work.single
        tip = f"{change.policy}: {change.words}" + ", undecided" * is_open
        marks += [
            Mark("line", list(map(_ratio, span)), [level, level], colour=shade, is_faint=is_open),
            Mark("dots", [_ratio(change.percent)], [level], colour=shade, tips=[tip]),
        ]
    labels: dict[float, str] = {}
    for t in sorted(TICKS, key=abs):  # "0" first; a label stays away from those nearer to it
        at = _ratio(t)
        gap = math.log(high / low) / MOST_TICKS
        if low <= at <= high and all(abs(math.log(at / other)) >= gap for other in labels):
            labels[at] = f"{percent(t)} %" if t else "0"
    names = {float(k): policy or load for k, (load, policy) in enumerate(lines)}
    side = "less is better" if BY_KEY[key].better < 0 else "more is better"
    return Panel(
        f"{BY_KEY[key].title}: {side}",
        marks,
        Axis(kind="log", low=low, high=high, ticks=labels),
        Axis(low=floor, high=top, ticks=names),
        height=50 + 24 * len(lines),
        left=130,
    )


def _ratio(change: float) -> float:
    return max(LEAST, 1.0 + change / 100.0)
