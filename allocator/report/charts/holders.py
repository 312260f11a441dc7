"""Who holds the GPUs over time: a block for each job, or areas of size classes for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from allocator.report.chart import COLOURS, INK, Axis, Box, Chart, Mark, Panel, boxes, steps
from allocator.report.charts.gpu_rows import assign_rows, join_blocks
from allocator.report.charts.series import Floats, begin_of, series, span_means
from allocator.report.measures import duration
from allocator.report.runs import SimulationRun, Study

if TYPE_CHECKING:
    import pandas as pd

FEW = 16  # jobs that are told apart by colour; others have that of their size
SPANS = 2500  # of a panel; a panel with more shows areas
SIZES = (1, 2, 4, 8, 16)  # upper ends of the size classes, in requested GPUs
CLASSES = ("1 GPU", "2", "3 to 4", "5 to 8", "9 to 16", "more than 16")
BINS = 300


def holders(study: Study, runs: Sequence[SimulationRun], length: float) -> Chart:
    """Draw a panel for each policy of one workload, load and seed; it shows `length` seconds."""
    panels = [
        Panel(
            run.policy,
            _marks(study, run, _spans(study, run), length),
            Axis("since the first submission", "time", high=length),
            Axis("GPUs", "whole"),
            height=260 if len(runs) < 3 else 200,
        )
        for run in runs
    ]
    return Chart("who holds the GPUs", panels)


def _spans(study: Study, run: SimulationRun) -> pd.DataFrame:
    """Return the intervals in which jobs held GPUs, in seconds since the first submission.

    The column `kind` is the size class of the GPUs that the job requested. Where jobs share GPUs,
    only the interval of the primary job is returned.
    """
    frame = study.frame(run, "spans")
    frame = frame[frame["held"] > 0]
    asked = study.frame(run, "jobs").drop_duplicates("job_id").set_index("job_id")["requested_gpus"]
    begin = begin_of(study, run)
    sizes = frame["job_id"].map(asked).fillna(frame["gpus"]).to_numpy(dtype=float)
    frame = frame.assign(
        kind=np.searchsorted(SIZES, sizes),
        begin_s=frame["from_s"] - begin,
        end_s=frame["to_s"] - begin,
    )
    return frame[frame["end_s"] > frame["begin_s"]]


def _marks(study: Study, run: SimulationRun, frame: pd.DataFrame, length: float) -> list[Mark]:
    """Return the blocks, pool above pool, or the areas, and the GPUs that there are."""
    shape = series(study, run, length, BINS)
    begin, end, gpus = (frame[c].to_numpy(dtype=float) for c in ("begin_s", "end_s", "gpus"))
    kind = frame["kind"].to_numpy()
    if len(frame) > SPANS:
        marks, floor = [], np.zeros(BINS)
        for k in sorted(set(kind.tolist())):
            mine = kind == k
            top = floor + span_means(begin[mine], end[mine], gpus[mine], shape.edges)
            x, high = steps(shape.edges, top)
            low = steps(shape.edges, floor)[1]
            marks.append(Mark("area", x, high, CLASSES[k], COLOURS[k], low))
            floor = top
        return [*marks, _limit(shape.edges, shape.all_capacity)]
    names = list(dict.fromkeys(frame["job_id"]))
    colours = kind if len(names) > FEW else np.array([names.index(j) % 8 for j in frame["job_id"]])
    found: dict[int, list[Box]] = {}
    ground = 0
    limits = []
    for pool in dict.fromkeys([*shape.capacity, *frame["pool"]]):
        rows = np.flatnonzero((frame["pool"] == pool).to_numpy())
        gpus_there = shape.capacity.get(pool, np.zeros(BINS))
        there = round(float(gpus_there.max(initial=0.0)))
        limits.append(_limit(shape.edges, ground + gpus_there))
        jobs = frame["job_id"].to_numpy()[rows].tolist()
        sizes = gpus[rows].astype(int).tolist()
        spans = (begin[rows].tolist(), end[rows].tolist())
        blocks = assign_rows(jobs, sizes, *spans, [there] * len(rows))
        for b in join_blocks(blocks, jobs, begin[rows], end[rows]):
            tip = f"{jobs[b.span]}: {sizes[b.span]} x {pool}, {duration(b.end - b.begin)}"
            bottom = float(ground + b.row)
            box = (b.begin, bottom, b.end, bottom + b.rows, tip)
            found.setdefault(int(colours[rows[b.span]]), []).append(box)
        ground += max([there, *(b.row + b.rows for b in blocks)])
    marks = [
        boxes(shapes, COLOURS[shade], CLASSES[shade] if len(names) > FEW else "")
        for shade, shapes in sorted(found.items())
    ]
    return [*marks, *limits]


def _limit(edges: Floats, gpus: Floats) -> Mark:
    return Mark("line", *steps(edges, gpus), "all there is", INK)
