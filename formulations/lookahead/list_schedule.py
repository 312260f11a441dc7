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
    known = _list_known(free, running, end_s)
    new: list[list[Part]] = [[] for _ in known]
    head = [parts[-1][0] if parts else math.inf for parts in known]
    possible = _find_possible(free, running, candidates)
    first = np.searchsorted(possible, first)
    take_s = seconds[possible].tolist()
    number = possible.tolist()
    begin, row, amount = (a.tolist() for a in (candidates.first, candidates.row, candidates.amount))
    start = [math.inf] * (len(first) - 1)
    chosen = [-1] * len(start)
    for i, (here, end) in enumerate(pairwise(first.tolist())):
        if here == end:
            continue
        ends = [
            max([head[r] for r in row[begin[c] : begin[c + 1]]], default=0.0) + take_s[k]
            for k, c in enumerate(number[here:end], here)
        ]
        best = here + ends.index(min(ends))
        c = number[best]
        rows = row[begin[c] : begin[c + 1]]
        needs = amount[begin[c] : begin[c + 1]]
        at = 0.0
        for r, need in zip(rows, needs, strict=True):
            at = max(at, _take(known[r], new[r], need))
        start[i] = interval_s * max(1, math.ceil(at / interval_s * (1.0 - ROUNDING)))
        chosen[i] = c
        done = start[i] + take_s[best]
        for r, need in zip(rows, needs, strict=True):
            heapq.heappush(new[r], (done, need))
            next_s = new[r][0][0]
            head[r] = min(known[r][-1][0], next_s) if known[r] else next_s
    return np.array(start), np.array(chosen, dtype=np.int64)


Part = tuple[float, float]  # seconds from now, and what becomes free then


def _list_known(free: Floats, running: Uses, end_s: Floats) -> list[list[Part]]:
    """Return what each row has now and what running jobs leave, the last of it first."""
    now = np.flatnonzero(free > 0)
    owner = np.repeat(np.arange(len(end_s)), np.diff(running.first))
    row = np.concatenate([now, running.row])
    at = np.concatenate([np.zeros(len(now)), end_s[owner]])
    amount = np.concatenate([free[now], running.amount])
    order = np.lexsort((-amount, -at, row))
    parts = list(zip(at[order].tolist(), amount[order].tolist(), strict=True))
    first = np.searchsorted(row[order], np.arange(len(free) + 1)).tolist()
    return [parts[begin:end] for begin, end in pairwise(first)]


def _find_possible(free: Floats, running: Uses, candidates: Uses) -> Ints:
    """Return the candidates of which all rows together ever have what they need."""
    total: Floats = np.maximum(free, 0.0)
    total = total + np.bincount(running.row, running.amount, len(free))
    lacks = candidates.amount > total[candidates.row] * (1.0 + ROUNDING)
    owner = np.repeat(np.arange(len(candidates.first) - 1), np.diff(candidates.first))
    fits = np.ones(len(candidates.first) - 1, dtype=bool)
    fits[owner[lacks]] = False
    return np.flatnonzero(fits)


def _take(known: list[Part], new: list[Part], amount: float) -> float:
    """Take an amount from a row, what is free first; return when the last of it is free.

    `known` has the last part first, `new` is a heap.
    """
    needed = amount * (1.0 - ROUNDING)
    at = 0.0
    while needed > 0:
        if known and not (new and new[0] < known[-1]):
            at, there = known[-1]
            if there > needed:
                known[-1] = (at, there - needed)  # it becomes less, and stays the first
                break
            known.pop()
        elif new:
            at, there = new[0]
            if there > needed:
                new[0] = (at, there - needed)
                break
            heapq.heappop(new)
        else:
            break
        needed -= there
    return at
