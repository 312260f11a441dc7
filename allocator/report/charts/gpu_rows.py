"""Rows for pictures of which job held which GPUs.

Each span of time gets rows of its pool, so that a job stays in the same rows as far as possible.
Which GPUs of a pool a job really had is not known and does not matter, because they are alike.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


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
    rows: Sequence[int],
) -> list[GpuRectangle]:
    """Return the rectangles of all spans of a pool.

    A job that continues when its last span ends keeps as many of its rows as it can. Other jobs get
    the smallest hole in which they fit, else the lowest free rows. Rectangles of the same job and
    rows that follow each other without a pause are one. Split spans at times when the pool
    shrinks, so that they can move below the new limit.

    Parameters
    ----------
    jobs, gpus, begin, end : of each span.
    rows : GPUs that the pool has when each span begins. A span lies below that if there is space.
    If spans overlap beyond it, more rows are opened.
    """
    free: Bools = np.ones(max([1, *rows]), dtype=np.bool_)
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
            open_ = free & (np.arange(len(free)) < rows[i])
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
