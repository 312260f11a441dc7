"""Who holds the GPUs over time: a block for each job, or areas of size classes for many.

Blocks get rows of their pool, so that a job stays in the same rows as far as possible. Which GPUs
of a pool a job really had is not known and does not matter, because they are alike.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.report.chart import COLOURS, INK, Axis, Box, Chart, Mark, Panel, boxes, stack, steps
from allocator.report.charts.series import Floats, read_pools
from allocator.report.measures import duration
from allocator.report.runs import Frame, SimulationRun
from formulations.step_means import span_means

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
FEW = 16  # jobs that are told apart by colour; others have that of their size
SPANS = 2500  # of a panel; a panel with more shows areas
SIZES = (1, 2, 4, 8, 16)  # upper ends of the size classes, in requested GPUs
CLASSES = ("1 GPU", "2", "3 to 4", "5 to 8", "9 to 16", "more than 16")
BINS = 300


def draw_holders(runs: Sequence[SimulationRun], length: float) -> Chart:
    """Draw a panel for each policy of one workload, load and seed; it shows `length` seconds."""
    panels = [
        Panel(
            run.policy,
            list(_draw(run, np.linspace(0.0, length, BINS + 1))),
            Axis("since the first submission", "time", high=length),
            Axis("GPUs", "whole"),
            height=260 if len(runs) < 3 else 200,
        )
        for run in runs
    ]
    return Chart("who holds the GPUs", panels)


def _draw(run: SimulationRun, edges: Floats) -> Iterator[Mark]:
    """Yield the blocks, pool above pool, or the areas, and the GPUs that there are.

    Where jobs share GPUs, only the interval of the primary job is drawn.
    """
    frame = run.frame("spans").query("held > 0 and to_s > from_s")
    requested = run.frame("jobs").drop_duplicates("job_id").set_index("job_id")["requested_gpus"]
    sizes = frame["job_id"].map(requested).fillna(frame["gpus"])
    frame = frame.assign(kind=np.searchsorted(SIZES, sizes.to_numpy(dtype=float)))
    capacity = read_pools(run, "gpus", edges)
    if len(frame) > SPANS:
        held = {
            CLASSES[k]: span_means(spans["from_s"], spans["to_s"], spans["gpus"], edges)
            for k, spans in frame.groupby("kind")
        }
        colours = {name: COLOURS[CLASSES.index(name)] for name in held}
        yield from stack(edges, held, colours)
        yield _limit(edges, sum(capacity.values(), np.zeros(BINS)))
        return
    yield from _draw_blocks(frame, capacity, edges)


def _draw_blocks(frame: Frame, capacity: dict[str, Floats], edges: Floats) -> Iterator[Mark]:
    """Yield the blocks of each colour, and the lines of what there is."""
    names = list(dict.fromkeys(frame["job_id"]))
    is_by_size = len(names) > FEW
    shades = frame["kind"] if is_by_size else frame["job_id"].map(names.index) % 8
    by_shade = defaultdict[int, list[Box]](list)
    ground, limits = 0, []
    for pool in dict.fromkeys([*capacity, *frame["pool"]]):
        rows = frame[frame["pool"] == pool]
        there = capacity.get(pool, np.zeros(BINS))
        most = round(float(there.max()))
        limits.append(_limit(edges, ground + there))
        jobs, sizes = rows["job_id"].tolist(), rows["gpus"].astype(int).tolist()
        spans = rows["from_s"].tolist(), rows["to_s"].tolist()
        blocks = assign_rows(jobs, sizes, *spans, most)
        for b in blocks:
            tip = f"{jobs[b.span]}: {sizes[b.span]} x {pool}, {duration(b.end - b.begin)}"
            low = float(ground + b.row)
            shade = int(shades[rows.index[b.span]])
            by_shade[shade].append((b.begin, low, b.end, low + b.rows, tip))
        ground += max([most, *(b.row + b.rows for b in blocks)])
    for shade, shapes in sorted(by_shade.items()):
        yield boxes(shapes, COLOURS[shade], CLASSES[shade] if is_by_size else "")
    yield from limits


def _limit(edges: Floats, gpus: Floats) -> Mark:
    return Mark("line", *steps(edges, gpus), "all there is", INK)


class GpuRectangle(NamedTuple):
    """Adjacent rows of a span, `row` the lowest, from `begin` to `end`."""

    span: int
    row: int
    rows: int
    begin: float
    end: float


def assign_rows(
    jobs: Sequence[object],
    gpus: Sequence[int],
    begin: Sequence[float],
    end: Sequence[float],
    most: int,
) -> list[GpuRectangle]:
    """Return the rectangles of all spans of a pool.

    A job that continues when its last span ends keeps as many of its rows as it can. Other jobs get
    the smallest hole in which they fit, else the lowest free rows. Rectangles of the same job and
    rows that follow each other without a pause are one.

    Parameters
    ----------
    jobs, gpus, begin, end : of each span.
    most : GPUs of the pool. If spans overlap beyond them, more rows are opened.
    """
    free: Bools = np.ones(max(1, most), dtype=np.bool_)
    taken: dict[int, Ints] = {}
    events: dict[float, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, (first, last) in enumerate(zip(begin, end, strict=True)):
        events[last][0].append(i)
        events[first][1].append(i)
    out: dict[tuple[object, int, int, float], GpuRectangle] = {}
    for now in sorted(events):
        ending, starting = events[now]
        stays = {jobs[i]: taken.pop(i) for i in ending if i in taken}
        for left in stays.values():
            free[left] = True
        # continuing jobs first, then large before small ones
        for i in sorted(starting, key=lambda i: (jobs[i] not in stays, -gpus[i])):
            need, job = gpus[i], jobs[i]
            free = np.concatenate([free, np.ones(max(0, need - free.sum()), dtype=np.bool_)])
            open_ = free & (np.arange(len(free)) < most)
            open_ = open_ if need <= open_.sum() else free
            own = stays.get(job, np.zeros(0, np.int64))
            own = own[open_[own]][:need]
            taken[i] = np.sort([*own, *_choose_free_rows(open_, need - len(own), own)])
            free[taken[i]] = False
            for part in split_adjacent(taken[i]):
                row, size = int(part[0]), len(part)
                before = out.pop((job, row, size, now), None)
                start = now if before is None else before.begin
                out[job, row, size, end[i]] = GpuRectangle(i, row, size, start, end[i])
    return list(out.values())


def _choose_free_rows(free: Bools, need: int, own: Ints) -> Ints:
    """Choose `need` free rows besides `own`.

    They are the nearest to `own` if it has rows, else in the smallest hole that fits, else the
    lowest.
    """
    rows = np.setdiff1d(np.flatnonzero(free), own)
    if len(own):
        return rows[np.argsort(np.abs(rows - own.mean()), kind="stable")][:need]
    fitting = [hole for hole in split_adjacent(rows) if len(hole) >= need]
    return min(fitting, key=len, default=rows)[:need]


def split_adjacent(rows: Ints) -> list[Ints]:
    """Return the parts of adjacent rows."""
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
