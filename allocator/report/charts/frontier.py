"""What money buys: the values of plans with proven bounds, and the ways to run jobs."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.engine.frontier.jobs import JobsFrontier
from allocator.engine.frontier.rounds import RoundFrontier
from allocator.report.charts import style

PLAN, PROOF, LIMITS = "#0072b2", "#d55e00", "#009e73"
MOST_JOBS = 6


@style.as_svg
def of_round(found: RoundFrontier) -> Any:
    """Draw the value of plans and the bound over dollars per hour; return SVG.

    A panel below has the value of one more dollar per hour. Raises UsageError without matplotlib.
    """
    curve = found.found
    x, upper = found.curve(400)
    drawn = style.figure(7.4, 5.2)
    panel, below = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 1.2))
    panel.fill_between(x, curve.solves.lower(x), upper, color=style.BAD, linewidth=0)
    panel.plot(x, upper, color=PROOF, linewidth=1.3, label="no plan has a higher value")
    panel.plot(curve.spent, curve.value, "o", color=PLAN, markersize=4, label="plans")
    panel.step(x, curve.solves.lower(x), where="post", color=PLAN, linewidth=1.2)
    if (
        found.dollars == "listed"
        and curve.spent[0] <= found.problem.budget_per_hour <= curve.spent[-1]
    ):
        panel.axvline(
            found.problem.budget_per_hour,
            color=style.FAINT,
            linestyle=":",
            linewidth=1,
            label="budget of the snapshot",
        )
    panel.set(
        ylabel=f"value ({found.problem.objective})",
        title=f"What a budget buys: {found.problem.name}",
    )
    panel.grid(True)
    panel.legend(loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
    paid = curve.price > 0
    below.step(curve.budget[paid], curve.price[paid], where="pre", color=PLAN, linewidth=1.2)
    if paid.any() and float(np.max(curve.price[paid])) > 30 * float(np.min(curve.price[paid])):
        below.set_yscale("log")
        style.plain_ticks(below.yaxis)
    words = "listed prices" if found.dollars == "listed" else "added to the bill"
    below.set(xlabel=f"dollars per hour, {words}", ylabel="value of 1 $/h more")
    below.grid(True)
    return drawn


@style.as_svg
def of_jobs(found: JobsFrontier) -> Any:
    """Draw the ways of each job and, for several jobs, their sums to the right; return SVG.

    Raises UsageError without matplotlib.
    """
    limited = found.found
    drawn = style.figure(9.6 if limited else 6.4, 4.4)
    panels = np.atleast_1d(drawn.subplots(1, 2 if limited else 1))
    _ways(panels[0], found)
    if limited:
        panel = panels[1]
        panel.plot(
            found.free.dollars,
            found.free.hours,
            "-",
            color=style.FAINT,
            linewidth=1.2,
            label="by mixing, without limits of pools",
        )
        panel.step(limited.spent, -limited.value, where="post", color=LIMITS, linewidth=1.2)
        panel.plot(
            limited.spent,
            -limited.value,
            "o",
            color=LIMITS,
            markersize=4,
            label="plans within the limits",
        )
        panel.plot(
            limited.budget,
            -limited.bound,
            "_",
            color=PROOF,
            markersize=7,
            label="no plan takes less",
        )
        panel.set(xlabel=_axis(found), ylabel="sum of weighted hours", title="all at the same time")
        panel.grid(True)
        panel.legend(loc="upper right")
    return drawn


def _ways(panel: Any, found: JobsFrontier) -> None:
    w = found.ways
    for j, name in enumerate(w.name[:MOST_JOBS]):
        colour = style.SPARE[j % len(style.SPARE)]
        mine = np.flatnonzero(w.job == j)
        mine = mine[np.argsort(w.dollars[mine], kind="stable")]
        hull = mine[w.hull[mine]]
        front = mine[w.front[mine]]
        panel.plot(w.dollars[mine], w.hours[mine], ".", color=colour, alpha=0.35, markersize=4)
        panel.plot(w.dollars[front], w.hours[front], "o", color=colour, markersize=4.5)
        panel.plot(w.dollars[hull], w.hours[hull], "-", color=colour, linewidth=1.1, label=name)
        if len(w.name) == 1:
            for i in front.tolist():
                words = f"{w.gpus[i]} x {found.problem.pools.pool[w.pool[i]]}"
                style.write_at(panel, words, (w.dollars[i], w.hours[i]), (6, 4))
    panel.set_yscale("log")
    style.plain_ticks(panel.yaxis)
    panel.margins(x=0.12)
    title = "ways to the end; line: the lower convex hull"
    panel.set(xlabel=_axis(found), ylabel="hours", title=title)
    panel.grid(True)
    panel.legend(loc="upper right")


def _axis(found: JobsFrontier) -> str:
    return "dollars, listed prices" if found.dollars == "listed" else "dollars added to the bill"
