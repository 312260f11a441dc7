"""Budget against mean response time: best widths, two simpler rules, the requested budget."""

from __future__ import annotations

from typing import Any

from allocator.market.rent import RentResult
from allocator.report.charts.style import FAINT, INK, as_svg, figure

BEST, WIDTHS, SPEND = "#0072b2", "#d55e00", "#999933"


@as_svg
def picture(rent: RentResult) -> Any:
    """Return the picture of a rent with its curve as SVG.

    Raises UsageError without matplotlib.
    """
    rows = rent.curve_rows()
    unit = "dollars per hour" if rent.unit == "dollars_per_hour" else "GPUs"
    budget = [row["budget"] for row in rows]
    p = rent.plan
    drawn = figure(7.2, 4.2)
    panel = drawn.subplots()
    for name, words, colour, line in (
        ("equal_widths_h", "equal widths", WIDTHS, "--"),
        ("equal_spend_h", "equal spending", SPEND, "-."),
        ("mean_response_h", "best whole widths" if rent.whole else "best widths", BEST, "-"),
    ):
        panel.plot(
            budget, [row[name] for row in rows], line, color=colour, linewidth=1.8, label=words
        )
    panel.axvline(rent.least_budget, color=FAINT, linewidth=1, linestyle=":")
    panel.annotate(
        "below: not stable",
        (rent.least_budget, 0.97),
        xycoords=("data", "axes fraction"),
        rotation=90,
        va="top",
        ha="right",
        color=FAINT,
        fontsize=8,
    )
    panel.plot([p.spend], [p.response_h], "o", color=BEST, markersize=7, zorder=3)
    panel.annotate(
        f"{p.spend:.4g} {unit}: {p.response_h:.4g} h\none more saves {rent.saved_h:.3g} h",
        (p.spend, p.response_h),
        xytext=(0.42, 0.62),
        textcoords="axes fraction",
        color=INK,
        fontsize=9,
        arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8},
    )
    panel.set(
        xlabel=f"long-run budget, {unit}",
        ylabel="mean response time, hours",
        title="What a rental budget buys",
    )
    panel.set_ylim(bottom=0)
    panel.grid(True)
    panel.legend(loc="upper right")
    return drawn
