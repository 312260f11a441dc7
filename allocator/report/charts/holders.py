"""Who holds the GPUs over time: a block for each job, or areas of size classes for many."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from allocator.report.chart import COLOURS, INK, Axis, Box, Chart, Mark, Panel, boxes, stack, steps
from allocator.report.charts.gpu_rows import assign_rows
from allocator.report.charts.series import Floats, read_pools
from allocator.report.measures import duration
from allocator.report.runs import Frame, SimulationRun
from formulations.step_means import span_means

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
    asked = run.frame("jobs").drop_duplicates("job_id").set_index("job_id")["requested_gpus"]
    sizes = frame["job_id"].map(asked).fillna(frame["gpus"])
    frame = frame.assign(kind=np.searchsorted(SIZES, sizes.to_numpy(dtype=float)))
    capacity = read_pools(run, "gpus", edges)
    if len(frame) > SPANS:
        held = {
            CLASSES[k]: span_means(mine["from_s"], mine["to_s"], mine["gpus"], edges)
            for k, mine in frame.groupby("kind")
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
    found = defaultdict[int, list[Box]](list)
    ground, limits = 0, []
    for pool in dict.fromkeys([*capacity, *frame["pool"]]):
        rows = frame[frame["pool"] == pool]
        there = capacity.get(pool, np.zeros(BINS))
        most = round(float(there.max()))
        limits.append(_limit(edges, ground + there))
        jobs, sizes = rows["job_id"].tolist(), rows["gpus"].astype(int).tolist()
        spans = rows["from_s"].tolist(), rows["to_s"].tolist()
        blocks = assign_rows(jobs, sizes, *spans, [most] * len(rows))
        for b in blocks:
            tip = f"{jobs[b.span]}: {sizes[b.span]} x {pool}, {duration(b.end - b.begin)}"
            low = float(ground + b.row)
            shade = int(shades[rows.index[b.span]])
            found[shade].append((b.begin, low, b.end, low + b.rows, tip))
        ground += max([most, *(b.row + b.rows for b in blocks)])
    for shade, shapes in sorted(found.items()):
        yield boxes(shapes, COLOURS[shade], CLASSES[shade] if is_by_size else "")
    yield from limits


def _limit(edges: Floats, gpus: Floats) -> Mark:
    return Mark("line", *steps(edges, gpus), "all there is", INK)
