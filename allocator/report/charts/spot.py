"""Time against cost of one job on several clusters; a line joins the efficient ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from allocator.market.spot import ClusterChoice, RunForecast, undominated_clusters
from allocator.report.charts.style import BAD, FAINT, INK, as_svg, figure

SPOT, OTHER = "#0072b2", "#b35900"
MOST_NAMES = 30


@as_svg
def picture(seen: Sequence[RunForecast], choice: ClusterChoice, cost: float | None = None) -> Any:
    """Return the forecasts as SVG, numbered by time and named in a legend.

    Raises UsageError without matplotlib.
    """
    ends = sorted(
        (i for i, o in enumerate(seen) if math.isfinite(o.seconds)), key=lambda i: seen[i].seconds
    )
    best = {choice.cheapest: "cheapest", choice.fastest: "fastest"}
    for at, words in (
        (choice.fastest_within_cost, f"fastest below {cost} $"),
        (choice.cheapest_by_deadline, "cheapest in time"),
    ):
        if at is not None:
            best[at] = f"{best[at]}, {words}" if at in best else words
    drawn = figure(9.6, 4.6)
    panel, legend_panel = drawn.subplots(1, 2, width_ratios=(3, 1.35))
    front = undominated_clusters(seen)
    panel.loglog(
        [seen[i].seconds / 3600 for i in front],
        [max(seen[i].dollars, 1e-9) for i in front],
        color=FAINT,
        zorder=1,
        linewidth=1.2,
    )
    legend_panel.set_axis_off()
    for place, i in enumerate(ends):
        o = seen[i]
        x = o.seconds / 3600
        y = max(o.dollars, 1e-9)
        colour = SPOT if bool(o.cluster.spot.any()) else OTHER
        panel.scatter([x], [y], color=colour, s=130, zorder=2, edgecolors="white", linewidths=0.8)
        panel.annotate(
            str(place + 1),
            (x, y),
            ha="center",
            va="center",
            color="white",
            fontsize=7,
            zorder=3,
        )
        if place < MOST_NAMES:
            legend_panel.text(
                0.0,
                1.0 - place / max(len(ends[:MOST_NAMES]), 12),
                f"{place + 1}  {o.cluster.name}" + (f"\n     {best[i]}" if i in best else ""),
                va="top",
                fontsize=8,
                color=colour,
                fontweight="bold" if i in best else "normal",
                linespacing=0.95,
            )
    if cost is not None:
        panel.axhspan(cost, max(cost, panel.get_ylim()[1]), color=BAD, zorder=0)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
        axis.set_tick_params(which="minor", labelsize=7)
    panel.set_xlabel("expected hours (log)")
    panel.set_ylabel("expected dollars (log)")
    panel.set_title(
        "blue: with spot servers; line: no other is both faster and cheaper",
        fontsize=9,
        color=INK,
    )
    panel.grid(True)
    return drawn
