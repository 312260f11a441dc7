"""The page of a shadow: the answer, the table, and regret and idle GPUs over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from allocator.report.charts.style import LOOKS, figure, legend, time_axis
from allocator.report.page import draw, write_page

CAPTION = (
    "Above: value of each decision, and the bound of every plan, less the value of what the cluster"
    " did. Below: GPUs in use, and idle ones that waiting jobs could have used. Nothing is drawn"
    " where nothing was seen. {}"
)


def write_shadow(
    found: Mapping[str, Any],
    sentences: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    page: Path,
) -> Path:
    """Write the page and its picture; return its path.

    Parameters
    ----------
    found : mapping
        What the looks add up to (bench/shadow), of which the picture is drawn.
    sentences, columns, rows
        The answer in words, and its table, the last column of which are the assumptions.
    page : Path
        The HTML file.
    """
    caption = CAPTION.format(" ".join(f"{name}: {assumed}." for name, _, assumed in rows))
    pictures = draw(("shadow", "Round by round", caption, make(found)) for make in (_rounds,))
    return write_page(
        page,
        "assessment.html",
        pictures,
        title=f"Beside {found['cluster']}",
        sentences=sentences,
        columns=columns,
        rows=rows,
    )


def _rounds(found: Mapping[str, Any]) -> Any:
    """Draw regret with its bound, and GPUs, as steps that end where a round stands no longer."""
    names = ("at_s", "hours", "regret_bound", "regret", "gpus", "used", "usable")
    seen = np.array([[look.get(name, np.nan) for name in names] for look in found["looks"]]).T
    size, unit = time_axis(found["to_s"] - found["from_s"])
    begin = (seen[0] - found["from_s"]) / size
    x = np.stack([begin, begin + 3600.0 * seen[1] / size]).T.reshape(-1)
    bound, regret, gpus, used, usable = np.repeat(seen[2:], 2, axis=1)
    drawn = figure(11.5, 5.2)
    above, below = panels = drawn.subplots(2, sharex=True)
    above.fill_between(
        x, regret, bound, color=LOOKS["marginal"].colour, alpha=0.5, label="up to bound"
    )
    above.plot(x, regret, color=LOOKS["mip"].colour, label="regret")
    below.fill_between(x, used, color=LOOKS["greedy-naive"].colour, alpha=0.5, label="in use")
    below.fill_between(
        x, used, used + usable, color=LOOKS["las"].colour, label="idle, could be used"
    )
    below.plot(x, gpus, color="black", linewidth=1.1, label="all there is")
    above.set(ylabel="value above the cluster's")
    below.set(xlabel=f"{unit} since the first look", ylabel="GPUs", ylim=(0, None))
    for panel in panels:
        panel.grid(True)
    legend(drawn, panels)
    return drawn
