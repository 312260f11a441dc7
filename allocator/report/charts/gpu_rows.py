"""Rows for pictures of which job held which GPUs.

Each span of time gets rows of its pool, so that a job stays in the same rows as far as possible.
Which GPUs of a pool a job really had is not known and does not matter, because they are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GpuRectangle:
    """A rectangle of a picture: the rows of a RowBlock, from `begin` to `end`."""

    span: int
    row: int
    rows: int
    begin: float
    end: float


@dataclass(frozen=True)
class RowBlock:
    """Adjacent rows of one span. row: the lowest, from 0; rows: how many; span: its index."""

    span: int
    row: int
    rows: int


def assign_rows(
    jobs: Sequence[object],
    gpus: Sequence[int],
    begin: Sequence[float],
    end: Sequence[float],
    rows: Sequence[int],
) -> list[RowBlock]:
    """Return the blocks of all spans of a pool.

    A job that continues when its last span ends keeps as many of its rows as it can. Other jobs get
    the smallest hole in which they fit, else the lowest free rows. Split spans at times when the
    pool shrinks, so that they can move below the new limit.

    Parameters
    ----------
    jobs, gpus, begin, end : of each span.
    rows : GPUs that the pool has when each span begins. A span lies below that if there is space.
    If spans overlap beyond it, more rows are opened.
    """
    free: Bools = np.ones(max([1, *rows]), dtype=np.bool_)
    taken: dict[int, NDArray[np.int64]] = {}
    left: dict[object, tuple[float, NDArray[np.int64]]] = {}
    order = sorted(
        [(end[i], 0, i) for i in range(len(jobs))] + [(begin[i], 1, i) for i in range(len(jobs))],
        key=lambda e: (e[0], e[1]),
    )
    blocks: list[RowBlock] = []
    waiting: list[int] = []

    def place_waiting(now: float) -> None:
        """Place the spans that start now: continuing jobs first, then large before small ones."""
        nonlocal free
        stays = {
            i: left[jobs[i]][1] for i in waiting if jobs[i] in left and left[jobs[i]][0] == now
        }
        for i in sorted(waiting, key=lambda i: (i not in stays, -gpus[i])):
            need = gpus[i]
            if need > free.sum():
                free = np.concatenate([free, np.ones(need - int(free.sum()), dtype=np.bool_)])
            open_ = free & (np.arange(len(free)) < rows[i])
            open_ = open_ if need <= open_.sum() else free
            own = stays[i][open_[stays[i]]][:need] if i in stays else np.zeros(0, np.int64)
            mine = np.sort(np.concatenate([own, _choose_free_rows(open_, need - len(own), own)]))
            free[mine] = False
            taken[i] = mine
            blocks.extend(_blocks(i, mine))
        waiting.clear()

    now = order[0][0] if order else 0.0
    for time, starts, i in order:
        if time != now:
            place_waiting(now)
            now = time
        if starts:
            waiting.append(i)
        elif i in taken:
            mine = taken.pop(i)
            free[mine] = True
            left[jobs[i]] = (time, mine)
    place_waiting(now)
    return blocks


def _choose_free_rows(free: Bools, need: int, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose `need` free rows besides `own`.

    They are the nearest to `own` if it has rows, else in the smallest hole that fits, else the
    lowest.
    """
    if need <= 0:
        return np.zeros(0, np.int64)
    open_ = free.copy()
    open_[own] = False
    rows = np.flatnonzero(open_)
    if len(own):
        return np.asarray(
            rows[np.argsort(np.abs(rows - own.mean()), kind="stable")][:need], dtype=np.int64
        )
    holes = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    fitting = [h for h in holes if len(h) >= need]
    return np.asarray(min(fitting, key=len)[:need] if fitting else rows[:need], dtype=np.int64)


def _blocks(span: int, rows: NDArray[np.int64]) -> list[RowBlock]:
    return [
        RowBlock(span, int(part[0]), len(part))
        for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        if len(part)
    ]


def join_blocks(
    blocks: Sequence[RowBlock], jobs: Sequence[object], begin: Floats, end: Floats
) -> list[GpuRectangle]:
    """Return rectangles of blocks.

    Blocks of the same job and rows that follow each other without a pause become one rectangle.
    """
    out: dict[tuple[object, int, int, float], GpuRectangle] = {}
    for b in sorted(blocks, key=lambda b: float(begin[b.span])):
        start = float(begin[b.span])
        stop = float(end[b.span])
        before = out.pop((jobs[b.span], b.row, b.rows, start), None)
        out[jobs[b.span], b.row, b.rows, stop] = GpuRectangle(
            b.span, b.row, b.rows, before.begin if before else start, stop
        )
    return list(out.values())
