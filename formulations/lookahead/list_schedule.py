"""List scheduling: those that wait start one after another, each when what it needs is free.

Graham, "Bounds on multiprocessing timing anomalies" (1969), here with several rows (GPUs of a pool,
GPUs and dollars of a tenant, dollars of the cluster), and jobs that need some of each:

    start_j = the first round in which every row of its candidate has as much free as it needs
    done_j  = start_j + the seconds of the candidate

The rows have what is free now, and what each running job leaves at its end. A job takes what is
free first. Jobs come in the order of the list, and none overtakes another in a row that both need:
what a job waits with stays idle. Of several candidates a job takes the one that ends first, judged
by the first moment at which each row has anything free.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from formulations.model.linear import Floats, Ints

ROUNDING = 1e-9  # relative: rounding of rounds and of dollars


@dataclass(frozen=True)
class Uses:
    """What some things use of rows; thing i uses the entries first[i] .. first[i+1].

    `row` (m,) are rows, `amount` (m,) what is used of each, > 0.
    """

    first: Ints
    row: Ints
    amount: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[Ints, Floats]]) -> Uses:
        """Return the uses of n things; an amount of 0 is left out.

        Each of `rows` has a row (n,), -1 = none, and an amount (n,).
        """
        row, amount = (np.stack(columns, axis=1) for columns in zip(*rows, strict=True))
        is_used = (row >= 0) & (amount > 0)
        first = np.concatenate([[0], np.cumsum(is_used.sum(axis=1))])
        return cls(first, row[is_used], amount[is_used])


def list_schedule(
    free: Floats,
    running: Uses,
    end_s: Floats,
    candidates: Uses,
    seconds: Floats,
    first: Ints,
    interval_s: float,
) -> tuple[Floats, Ints]:
    """Return the start (n,) of each waiting job, inf = never, and its candidate (n,), -1 = none.

    Parameters
    ----------
    free : (R,)
        What is free of each row now.
    running : Uses
        What r running jobs use.
    end_s : (r,)
        Seconds from now until they end.
    candidates : Uses
        What c candidates use.
    seconds : (c,)
        How long they take.
    first : (n+1,)
        Job i of the list has the candidates first[i] .. first[i+1].
    interval_s : float
        Starts are at multiples of these seconds, the first of them at one.
    """
    queues = _fill_queues(free, running, end_s)
    total: Floats = np.maximum(free, 0.0)
    total = total + np.bincount(running.row, running.amount, len(free))
    is_possible = _fits(candidates, total)
    head = [queue[0][0] if queue else math.inf for queue in queues]
    begin, row, amount = (a.tolist() for a in (candidates.first, candidates.row, candidates.amount))
    rows = [row[u:v] for u, v in pairwise(begin)]
    took = seconds.tolist()
    firsts = first.tolist()
    start = [np.inf] * (len(first) - 1)
    chosen = [-1] * (len(first) - 1)
    for i in range(len(start)):
        c = -1
        earliest = math.inf
        for k in range(firsts[i], firsts[i + 1]):
            if is_possible[k]:
                end = max(map(head.__getitem__, rows[k]), default=0.0) + took[k]
                if c < 0 or end < earliest:
                    c, earliest = k, end
        if c < 0:
            continue
        needs = amount[begin[c] : begin[c + 1]]
        at = max(
            [_take(queues[r], need) for r, need in zip(rows[c], needs, strict=True)], default=0.0
        )
        start[i] = interval_s * max(1, math.ceil(at / interval_s * (1.0 - ROUNDING)))
        chosen[i] = c
        for r, need in zip(rows[c], needs, strict=True):
            heapq.heappush(queues[r], (start[i] + took[c], need))
            head[r] = queues[r][0][0]
    return np.array(start), np.array(chosen, dtype=np.int64)


Queue = list[tuple[float, float]]  # heap of (seconds from now, what becomes free then)


def _fill_queues(free: Floats, running: Uses, end_s: Floats) -> list[Queue]:
    queues: list[Queue] = [[(0.0, f)] if f > 0 else [] for f in free.tolist()]
    owner = np.repeat(np.arange(len(end_s)), np.diff(running.first))
    for row, at, amount in zip(
        running.row.tolist(), end_s[owner].tolist(), running.amount.tolist(), strict=True
    ):
        queues[row].append((at, amount))
    for queue in queues:
        heapq.heapify(queue)
    return queues


def _fits(candidates: Uses, total: Floats) -> list[bool]:
    """Return for each candidate whether all rows together ever have what it needs."""
    lacks = candidates.amount > total[candidates.row] * (1.0 + ROUNDING)
    owner = np.repeat(np.arange(len(candidates.first) - 1), np.diff(candidates.first))
    fits = np.ones(len(candidates.first) - 1, dtype=bool)
    fits[owner[lacks]] = False
    return list(fits.tolist())


def _take(queue: Queue, amount: float) -> float:
    """Take an amount from a queue, what is free first; return when the last of it is free."""
    needed = amount * (1.0 - ROUNDING)
    at = 0.0
    while needed > 0 and queue:
        at, there = queue[0]
        if there > needed:
            queue[0] = (at, there - needed)  # the least entry becomes less, and stays the first
            break
        needed -= there
        heapq.heappop(queue)
    return at
