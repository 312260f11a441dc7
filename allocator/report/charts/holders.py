"""Which job held which GPUs: a panel per policy, with a band per job as high as its GPUs.

If there are many jobs, areas by size class replace the bands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.charts.gpu_rows import assign_rows, join_blocks
from allocator.report.charts.series import Floats, begin_of, series, span_means
from allocator.report.charts.style import (
    CLASSES,
    FAINT,
    JOBS,
    add_rectangles,
    colour,
    figure,
    show_nothing,
    text_colour_on,
    time_axis,
    whole_ticks,
)
from allocator.report.runs import SimulationRun, Study

if TYPE_CHECKING:
    import pandas as pd

FEW = 20  # jobs that each have a colour
SPANS = 2500  # of a panel; a panel with more shows areas
SIZES = (1, 2, 4, 8, 16)  # upper ends of the size classes, in requested GPUs
BINS = 400


def holders(study: Study, runs: Sequence[SimulationRun], length: float) -> Any:
    """Draw the runs of one workload, load and seed, one per policy; length: seconds to show."""
    spans = {r.policy: _spans(study, r) for r in runs}
    high = 3.6 if len(runs) == 1 else 2.3 if len(runs) < 5 else 1.7
    drawn = figure(11.5, 0.6 + high * len(runs))
    panels = drawn.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    names = sorted({j for frame in spans.values() for j in frame["job_id"]})
    size, unit = time_axis(length)
    many = max((len(frame) for frame in spans.values()), default=0) > SPANS
    classes: set[int] = set()
    for panel, run in zip(panels, runs, strict=True):
        frame = spans[run.policy]
        kind = np.searchsorted(SIZES, frame["requested_gpus"].fillna(1).to_numpy())
        classes |= set(kind.tolist())
        if not len(frame):
            show_nothing(panel, "no job ever held a GPU")
        elif many:
            _areas(panel, study, run, frame, kind, length, size)
        else:
            fill = (
                [JOBS[names.index(j) % len(JOBS)] for j in frame["job_id"]]
                if len(names) <= FEW
                else [CLASSES[k] for k in kind.tolist()]
            )
            _bands(panel, study, run, frame, fill, length, size, label=len(names) <= 2 * FEW)
        panel.set_title(run.policy, color=colour(run.policy))
        panel.set_xlim(0, length / size)
        panel.set_ylabel("GPUs")
    panels[-1].set_xlabel(f"{unit} since {study.origin}")
    if many or len(names) > FEW:
        _classes(drawn, sorted(classes))
    return drawn


def _spans(study: Study, run: SimulationRun) -> pd.DataFrame:
    """Return the spans of positive length, with the requested size of each job.

    begin_s and end_s count from the first submission. Of a colocation only the primary job has its
    span.
    """
    frame = study.frame(run, "spans")
    frame = frame[frame["held"] > 0]
    asked = study.frame(run, "jobs").drop_duplicates("job_id").set_index("job_id")["requested_gpus"]
    begin = begin_of(study, run)
    frame = frame.assign(
        requested_gpus=frame["job_id"].map(asked).fillna(frame["gpus"]),
        begin_s=frame["from_s"] - begin,
        end_s=frame["to_s"] - begin,
    )
    return frame[frame["end_s"] > frame["begin_s"]]


def _bands(
    panel: Any,
    study: Study,
    run: SimulationRun,
    frame: pd.DataFrame,
    fill: Sequence[str],
    length: float,
    size: float,
    label: bool,
) -> None:
    """Draw a rectangle for every span, pool above pool."""
    shape = series(study, run, length, BINS)
    frame = frame.assign(shade=list(fill))
    floor = 0.0
    pools = list(dict.fromkeys([*shape.capacity, *frame["pool"]]))
    for name in pools:
        mine = (frame["pool"] == name).to_numpy()
        rows = _split(frame[mine], study, run, name)
        there = shape.capacity.get(name, np.zeros(BINS))
        begin = rows["begin_s"].to_numpy() / size
        end = rows["end_s"].to_numpy() / size
        gpus = rows["gpus"].to_numpy().astype(int).tolist()
        jobs = rows["job_id"].tolist()
        shades = rows["shade"].tolist()
        most = rows["there"].tolist()
        blocks = join_blocks(
            assign_rows(jobs, gpus, begin.tolist(), end.tolist(), most), jobs, begin, end
        )
        height = max([1, round(there.max(initial=0.0)), *(b.row + b.rows for b in blocks)])
        boxes: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
        for b in blocks:
            y0, y1 = floor + b.row, floor + b.row + b.rows
            boxes[shades[b.span]].append((b.begin, y0, b.end, y1))
            is_long = (b.end - b.begin) * size > 0.045 * length
            if label and is_long and b.rows >= height * len(pools) * 0.05:
                panel.text(
                    (b.begin + b.end) / 2,
                    (y0 + y1) / 2,
                    jobs[b.span],
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=text_colour_on(shades[b.span]),
                    clip_on=True,
                )
        width = 0.5 if len(frame) < 500 and height * len(pools) <= 64 else 0.2
        for shade, shapes in boxes.items():
            add_rectangles(panel, shapes, shade, "white", linewidth=width)
        _draw_limit(panel, floor + there, shape.edges / size)
        if len(pools) > 1:
            panel.text(
                1.005,
                floor + height / 2,
                name,
                transform=panel.get_yaxis_transform(),
                va="center",
                fontsize=8,
                color=FAINT,
            )
        floor += height
    panel.set_ylim(0, floor * 1.02)
    whole_ticks(panel)


def _split(rows: pd.DataFrame, study: Study, run: SimulationRun, pool: str) -> pd.DataFrame:
    """Split the spans of a pool at the times when the pool changes its size.

    The column `there` has the GPUs of the pool when each piece begins.
    """
    import pandas as pd

    timeline = study.frame(run, "timeline")
    known = timeline[timeline["pool"] == pool]
    at = known["at_s"].to_numpy() - begin_of(study, run)
    gpus = known["gpus"].fillna(0).to_numpy().astype(int)
    new = np.flatnonzero(np.diff(gpus, prepend=-1))
    at = at[new]
    gpus = gpus[new]
    if not len(at):
        return rows.assign(there=0)
    pieces = []
    cuts = [-np.inf, *at[1:], np.inf]
    for i, there in enumerate(gpus.tolist()):
        piece = rows[(rows["begin_s"] < cuts[i + 1]) & (rows["end_s"] > cuts[i])]
        pieces.append(
            piece.assign(
                begin_s=piece["begin_s"].clip(lower=cuts[i]),
                end_s=piece["end_s"].clip(upper=cuts[i + 1]),
                there=there,
            )
        )
    whole: pd.DataFrame = pd.concat(pieces)
    return whole


def _areas(
    panel: Any,
    study: Study,
    run: SimulationRun,
    frame: pd.DataFrame,
    kind: Any,
    length: float,
    size: float,
) -> None:
    """Draw the GPUs that jobs of each size class held, stacked."""
    edges = np.linspace(0.0, length, BINS + 1)
    begin, end, gpus = (frame[c].to_numpy() for c in ("begin_s", "end_s", "gpus"))
    floor = np.zeros(BINS)
    for k in sorted(set(kind.tolist())):
        mine = kind == k
        held = span_means(begin[mine], end[mine], gpus[mine], edges)
        panel.stairs(floor + held, edges / size, baseline=floor, fill=True, color=CLASSES[k])
        floor = floor + held
    there = series(study, run, length, BINS).all_capacity
    _draw_limit(panel, there, edges / size)
    panel.set_ylim(0, 1.03 * max(there.max(initial=1.0), floor.max(initial=1.0)))


def _draw_limit(panel: Any, there: Floats, edges: Floats) -> None:
    panel.stairs(there, edges, baseline=None, color="black", linewidth=1.0)


def _classes(drawn: Any, classes: Sequence[int]) -> None:
    from matplotlib.patches import Patch

    def words(k: int) -> str:
        if k >= len(SIZES):
            return f"more than {SIZES[-1]}"
        low = SIZES[k - 1] + 1 if k else 1
        return f"{low}" if low == SIZES[k] else f"{low} to {SIZES[k]}"

    handles: list[Any] = [Patch(facecolor=CLASSES[k], label=words(k)) for k in classes]
    drawn.legend(
        handles=handles,
        loc="outside upper left",
        ncols=len(handles) or 1,
        fontsize=9,
        title_fontsize=9,
        title="GPUs the job asked for; black line: GPUs there are",
        alignment="left",
    )
