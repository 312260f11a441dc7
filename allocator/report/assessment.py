"""The page of an assessment of a history: the answer, the table, and GPUs in use over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from allocator.report.charts.style import LOOKS, figure, legend, time_axis
from allocator.report.page import draw, write_page
from allocator.report.policies import REPORT

LINES = tuple(look.colour for look in LOOKS.values())


def write_assessment(
    found: Mapping[str, Any],
    sentences: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    folder: Path,
) -> Path:
    """Write report.html and its picture into a folder; return the path of the page.

    Parameters
    ----------
    found : mapping
        The assessment (bench/assess), of which the picture is drawn.
    sentences, columns, rows
        The answer in words, and its table, the last column of which are the assumptions.
    folder : Path
        Made if need be.
    """
    assuming = " ".join(f"{c['name']}: {'; '.join(c['assuming'])}." for c in found["cases"])
    caption = f"GPUs in use between the first and the last submission. {assuming}"
    pictures = draw(("use", "GPUs in use", caption, make(found)) for make in (_use,))
    return write_page(
        folder / REPORT,
        "assessment.html",
        pictures,
        title=f"What would change: {found['history']}",
        sentences=sentences,
        columns=columns,
        rows=rows,
    )


def _use(found: Mapping[str, Any]) -> Any:
    """Draw the GPUs in use over time, a line for each case, and all that there are."""
    until = np.array(found["use"]["until_s"])
    size, unit = time_axis(float(until[-1]))
    x = np.append(0.0, until) / size
    drawn = figure(11.5, 3.4)
    panel = drawn.subplots()
    for i, (name, used) in enumerate(found["use"]["gpus"].items()):
        look = {"color": LINES[i % len(LINES)], "linestyle": "--" if i % 2 else "-"}
        panel.stairs(used, x, baseline=None, label=name, **look)
    panel.axhline(found["gpus"], color="black", linewidth=1.1, label="all there is at the start")
    panel.set(xlabel=unit, ylabel="GPUs in use")
    panel.set_xlim(0, x[-1])
    panel.set_ylim(bottom=0)
    panel.grid(True)
    legend(drawn, [panel])
    return drawn
