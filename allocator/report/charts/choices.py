"""Pictures that commands write: time, speed and value against GPUs and dollars, as SVG files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from allocator.report.chart import COLOURS, INK, Axis, Chart, Mark, Panel, hold, to_svg

if TYPE_CHECKING:
    from allocator.engine.frontier.jobs import JobsFrontier
    from allocator.engine.frontier.rounds import RoundFrontier
    from allocator.market.rent import RentResult
    from allocator.market.spot import RunForecast
    from allocator.options.configure import RunConfigurations
    from allocator.performance.fit.choose import SpeedFit

BLUE, ORANGE, GREEN = COLOURS[0], COLOURS[5], COLOURS[2]
MOST_FITS = 12  # panels
MOST_JOBS = 6  # of which the ways are drawn
HOURS = Axis("hours to the end", "log")


def draw_configurations(ways: RunConfigurations, chosen: Mapping[str, int]) -> bytes:
    """Draw all ways to run one job, the Pareto front, and the chosen ways (label -> way)."""
    marks = []
    for i, pool in enumerate(dict.fromkeys(ways.pool)):
        of_pool = np.flatnonzero([p == pool for p in ways.pool])
        tips = [f"{ways.gpus[k]} x {pool}" for k in of_pool]
        marks.append(
            Mark("dots", ways.cost[of_pool], ways.hours[of_pool], pool, COLOURS[i % 8], tips=tips)
        )
    front = np.flatnonzero(ways.front)
    front = front[np.argsort(ways.cost[front])]
    marks.append(Mark("line", ways.cost[front], ways.hours[front], "front", INK, is_faint=True))
    for way in dict.fromkeys(chosen.values()):
        labels = ", ".join(label for label, other in chosen.items() if other == way)
        batch = f", batch {ways.batch[way]}" if ways.batch[way] else ""
        words = f"{labels}: {ways.gpus[way]} x {ways.pool[way]}{batch}"
        marks.append(Mark("text", [ways.cost[way]], [ways.hours[way]], tips=[words]))
    return _file(Panel(f"job {ways.job}", marks, Axis("dollars to the end", "near"), HOURS))


def draw_round_frontier(frontier: RoundFrontier) -> bytes:
    """Draw the value of plans and its bound over dollars per hour, and what a dollar more adds."""
    curve, (x, upper) = frontier.found, frontier.curve(400)
    lower, points = curve.solves.lower(x), curve.points
    marks = [
        Mark("area", x, upper, low=lower, colour=ORANGE, is_faint=True),
        Mark("line", x, upper, "no plan has a higher value", ORANGE),
        Mark("line", x, lower, colour=BLUE),
        Mark("dots", points.spent, points.value, "plans", BLUE),
    ]
    budget = frontier.problem.budget_per_hour
    if frontier.dollars == "listed" and points.spent[0] <= budget <= points.spent[-1]:
        ends = [budget] * 2, [lower.min(), upper.max()]
        marks.append(Mark("line", *ends, "budget of the snapshot", INK, is_dashed=True))
    paid = points.price > 0
    # a price holds up to its budget
    line = hold(points.budget[paid][::-1], points.price[paid][::-1])
    price = [Mark("line", *line, colour=BLUE)]
    words = "listed prices" if frontier.dollars == "listed" else "added to the bill"
    dollars = Axis(f"dollars per hour, {words}", "near", float(x[0]), float(x[-1]))
    title = f"What a budget buys: value ({frontier.problem.objective}) of {frontier.problem.name}"
    return _file(
        Panel(title, marks, dollars, Axis(kind="near"), height=330),
        Panel("value of 1 $/h more", price, dollars, Axis(kind="log")),
    )


def draw_jobs_frontier(frontier: JobsFrontier) -> bytes:
    """Draw the ways to run each job and, for several jobs, the hours of plans within the limits."""
    words = "listed prices" if frontier.dollars == "listed" else "added to the bill"
    dollars, w, marks = Axis(f"dollars, {words}", "near"), frontier.ways, []
    for j, name in enumerate(w.name[:MOST_JOBS]):
        of_job = np.flatnonzero(w.job == j)
        of_job = of_job[np.argsort(w.dollars[of_job], kind="stable")]
        front, hull = of_job[w.front[of_job]], of_job[w.hull[of_job]]
        tips = [f"{w.gpus[i]} x {frontier.problem.pools.pool[w.pool[i]]}" for i in front]
        at = w.dollars[front], w.hours[front]
        marks += [
            Mark("dots", w.dollars[of_job], w.hours[of_job], colour=COLOURS[j], is_faint=True),
            Mark("dots", *at, colour=COLOURS[j], tips=tips),
            Mark("line", w.dollars[hull], w.hours[hull], name, COLOURS[j]),
        ]
        marks += [Mark("text", *at, tips=tips)] if len(w.name) == 1 else []
    panels = [Panel("ways to the end; line: the lower convex hull", marks, dollars, HOURS)]
    if (limited := frontier.found) is not None:
        points = limited.points
        at = points.spent, -points.value
        sums = [
            Mark("line", frontier.free.dollars, frontier.free.hours, "mixed, without limits", INK),
            Mark("line", *hold(*at), colour=GREEN),
            Mark("dots", *at, "plans within the limits", GREEN),
            Mark("dots", points.budget, -points.bound, "no plan takes less", ORANGE),
        ]
        panels.append(Panel("sum of weighted hours", sums, dollars, Axis(kind="near")))
    return _file(*panels, across=len(panels))


def draw_rent(rent: RentResult) -> bytes:
    """Draw the mean response time over the rental budget, and the chosen budget."""
    rows, plan = rent.curve_rows(), rent.plan
    unit = "dollars per hour" if rent.unit == "dollars_per_hour" else "GPUs"
    budget = [row["budget"] for row in rows]
    marks = [
        Mark("line", budget, [row[key] for row in rows], words, shade, is_dashed=shade != BLUE)
        for key, words, shade in (
            ("equal_widths_h", "equal widths", ORANGE),
            ("equal_spend_h", "equal spending", COLOURS[7]),
            ("mean_response_h", "best whole widths" if rent.whole else "best widths", BLUE),
        )
    ]
    words = f"{plan.spend:.4g} {unit}: {plan.response_h:.4g} h; one more saves {rent.saved_h:.3g} h"
    at = [plan.spend], [plan.response_h]
    marks += [Mark("dots", *at, colour=BLUE, tips=[words]), Mark("text", *at, tips=[words])]
    title = f"What a rental budget buys; below {rent.least_budget:.4g} it is not stable"
    x = Axis(f"long-run budget, {unit}", "near", low=rent.least_budget)
    return _file(Panel(title, marks, x, Axis("mean response time, hours"), height=360))


def draw_spot(
    seen: Sequence[RunForecast],
    front: Sequence[int],
    best: Sequence[Sequence[str]],
    cost: float | None = None,
) -> bytes:
    """Draw forecasts, the front, and the names of those that are the best of something."""
    line = _spent([seen[i] for i in front])
    marks = [Mark("line", *line, "no other is both faster and cheaper", INK)]
    for has_spot, name, shade in ((True, "with spot servers", BLUE), (False, "without", ORANGE)):
        of_kind = [i for i, o in enumerate(seen) if bool(o.cluster.spot.any()) == has_spot]
        of_kind = [i for i in of_kind if math.isfinite(seen[i].seconds)]
        # the best ones have words beside them
        tips = ["" if best[i] else seen[i].cluster.name for i in of_kind]
        marks.append(Mark("dots", *_spent([seen[i] for i in of_kind]), name, shade, tips=tips))
    for o, labels in zip(seen, best, strict=True):
        if labels:
            words = [f"{o.cluster.name}: {', '.join(labels)}"]
            marks.append(Mark("text", *_spent([o]), tips=words))
    limits = [] if cost is None else [(cost, "most that it may cost")]
    dollars = Axis("expected dollars", "log")
    x = Axis("expected hours", "log")
    return _file(Panel("expected time against cost", marks, x, dollars, limits, height=400))


def _spent(runs: Sequence[RunForecast]) -> tuple[list[float], list[float]]:
    return [o.seconds / 3600 for o in runs], [max(o.dollars, 1e-9) for o in runs]


def draw_fits(fitted: Sequence[SpeedFit]) -> bytes:
    """Draw measured and fitted speed over GPUs for the first groups, those with several sizes."""
    some = [f for f in fitted if len(f.sizes) > 1][:MOST_FITS] or list(fitted)[:MOST_FITS]
    return _file(*map(_draw_fit, some), across=min(3, max(1, len(some))))


def _draw_fit(f: SpeedFit) -> Panel:
    from allocator.performance import curves

    k = np.unique(np.round(np.geomspace(max(1, f.sizes[0]), max(f.sizes[-1], 1), 40)))
    rate = curves.rate(f.kind, f.parameters, k.astype(np.int64))
    best = f.seen.take(f.seen.fastest())
    high, low = rate * (1 + f.rms), rate * (1 - f.rms)
    marks = [
        Mark("area", k, high, low=low, colour=BLUE, is_faint=True),
        Mark("dots", f.seen.gpus, f.seen.useful, colour=INK, is_faint=True),
        Mark("dots", best.gpus, best.useful, "measured", ORANGE),
        Mark("line", k, rate, "fitted", BLUE),
    ]
    words = f"GPUs ({f.form}, error {100 * f.mean:.2g} %)"
    ticks = {float(n): f"{n:g}" for n in k[np.log2(k) % (2 if k[-1] > 8 else 1) == 0]}
    title = f"{f.model[:24]}, {f.gpu_type[:16]}: work per second"
    return Panel(title, marks, Axis(words, "log", ticks=ticks), Axis(kind="log"))


def _file(*panels: Panel, across: int = 1) -> bytes:
    words = panels[0].title if panels else "nothing was fitted"
    return to_svg(Chart(words, panels, across))
