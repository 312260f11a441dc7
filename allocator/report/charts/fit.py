"""Measured and fitted speed over GPUs, a panel per (model, GPU type), with the error of the fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from allocator.performance import curves
from allocator.performance.fit.choose import SpeedFit
from allocator.report.charts import style

MOST = 12  # panels
ACROSS = 4


@style.as_svg
def draw(fitted: Sequence[SpeedFit]) -> Any:
    """Draw the first MOST groups with several sizes, or of all groups if none has; return SVG.

    Raises UsageError without matplotlib.
    """
    some = [f for f in fitted if len(f.sizes) > 1][:MOST] or list(fitted)[:MOST]
    down = max(1, math.ceil(len(some) / ACROSS))
    figure = style.figure(3.2 * min(ACROSS, max(1, len(some))), 2.6 * down)
    panels = np.atleast_1d(figure.subplots(down, min(ACROSS, max(1, len(some))))).reshape(-1)
    for panel, f in zip(panels, some, strict=False):
        _panel(panel, f)
    for panel in panels[len(some) :]:
        panel.set_axis_off()
    if some:
        figure.supylabel("useful work per second", fontsize=9)
        style.legend(figure, [panels[0]])
    else:
        style.show_nothing(panels[0], "nothing was fitted")
    return figure


def _panel(panel: Any, f: SpeedFit) -> None:
    k = np.unique(np.round(np.geomspace(max(1, f.sizes[0]), max(f.sizes[-1], 1), 40)))
    rate = curves.rate(f.kind, f.parameters, k.astype(np.int64))
    best = f.seen.take(f.seen.fastest())
    panel.plot(f.seen.gpus, f.seen.useful, ".", color="#bbbbbb", markersize=3)
    panel.plot(best.gpus, best.useful, "o", color="#d55e00", markersize=4, label="measured")
    panel.plot(k, rate, "-", color="#0072b2", label="fitted")
    panel.fill_between(
        k, rate * (1 - f.rms), rate * (1 + f.rms), color="#0072b2", alpha=0.15, linewidth=0
    )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    style.plain_ticks(panel.yaxis)
    panel.set_xticks(k[np.log2(k) % (2 if k[-1] > 8 else 1) == 0])
    style.plain_ticks(panel.xaxis)
    panel.set_title(f"{f.model[:24]}, {f.gpu_type[:16]}", fontsize=8)
    panel.set_xlabel(f"GPUs ({f.form}, error {100 * f.mean:.2g} %)", fontsize=8)
    panel.grid(True, which="major")
