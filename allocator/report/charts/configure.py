"""All ways to run one job: hours against dollars.

The picture shows the front, the knee and the ways that the limits choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from allocator.options.configure import RunConfigurations
from allocator.report.charts import style


@style.as_svg
def draw(ways: RunConfigurations, chosen: Mapping[str, int]) -> Any:
    """Return the picture as SVG; chosen: label -> way. Raises UsageError without matplotlib."""
    figure = style.figure(7.5, 4.5)
    panel = figure.subplots()
    for i, pool in enumerate(dict.fromkeys(ways.pool)):
        mine = np.array([p == pool for p in ways.pool])
        panel.scatter(
            ways.cost[mine],
            ways.hours[mine],
            s=12 + 3 * np.sqrt(ways.gpus[mine]),
            alpha=0.7,
            label=pool,
            color=style.SPARE[i % len(style.SPARE)],
            linewidths=0,
        )
    front = np.flatnonzero(ways.front)
    front = front[np.argsort(ways.cost[front])]
    panel.plot(
        ways.cost[front], ways.hours[front], "-", color=style.FAINT, linewidth=1, label="front"
    )
    for way in dict.fromkeys(chosen.values()):
        labels = ", ".join(label for label, other in chosen.items() if other == way)
        panel.plot(
            ways.cost[way],
            ways.hours[way],
            "o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor=style.INK,
        )
        batch = f", batch {ways.batch[way]}" if ways.batch[way] else ""
        words = f"{labels}: {ways.gpus[way]} x {ways.pool[way]}{batch}"
        style.write_at(panel, words, (ways.cost[way], ways.hours[way]), (9, 7))
    panel.set_yscale("log")
    panel.margins(x=0.2)
    style.plain_ticks(panel.yaxis)
    panel.set(xlabel="dollars to the end", ylabel="hours to the end", title=f"job {ways.job}")
    panel.grid(True)
    style.legend(figure, [panel])
    return figure
