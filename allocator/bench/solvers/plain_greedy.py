"""A plain greedy loop, the baseline of the solver benchmarks: the step with the best gain per GPU
first.

First whatever rows with a lower bound demand (guarantees, jobs that must keep what they hold), then
steps from one option of a job to a better one, as long as no row breaks. A step that does not fit
is never tried again. No prices, no repair, no bound: what a scheduler writes in an afternoon.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import CAPACITY, Floats, Ints


def plain_greedy(view: Choices, deadline: float = math.inf) -> Ints | None:
    """A choice (J,), or None where the loop ends with a broken row. Stops adding at the deadline
    (time.monotonic).
    """
    state = _GreedyState(view)
    for j in np.flatnonzero(view.mandatory).tolist():
        mine = range(int(view.start[j]), int(view.start[j + 1]))
        if not mine:
            return None
        state.take(j, max(mine, key=state.value.__getitem__))
    _meet_lower_bounds(state)
    heap: list[tuple[float, int, int]] = []
    left = [
        list(range(a, b))
        for a, b in zip(view.start[:-1].tolist(), view.start[1:].tolist(), strict=True)
    ]
    for j in range(view.J):
        state.push(heap, j, left[j])
    steps = 0
    while heap:
        steps += 1
        if steps % 1000 == 0 and time.monotonic() >= deadline:
            break
        _, j, column = heapq.heappop(heap)
        if state.fits(j, column):
            state.take(j, column)
        else:
            left[j].remove(column)
        state.push(heap, j, left[j])
    choice = np.array(state.choice, dtype=np.int64)
    return choice if view.feasible(choice) else None


class _GreedyState:
    """The choice so far and what the rows use; plain lists, because steps touch single numbers."""

    def __init__(self, view: Choices) -> None:
        self.view = view
        self.value = [*view.value.tolist(), 0.0]
        self.size = [*sizes(view).tolist(), 0.0]
        self.choice = [-1] * view.J
        self.use = [0.0] * view.R
        self.low, self.high = view.low.tolist(), view.high.tolist()
        a = view.matrix
        cut = a.indptr.tolist()
        entries = list(zip(a.indices.tolist(), a.data.tolist(), strict=True))
        self.entries = [*(entries[p:q] for p, q in itertools.pairwise(cut)), []]

    def change(self, j: int, column: int) -> dict[int, float]:
        """What the rows use more when group j goes over to the column."""
        more = dict(self.entries[column])
        for r, x in self.entries[self.choice[j]]:
            more[r] = more.get(r, 0.0) - x
        return more

    def fits(self, j: int, column: int) -> bool:
        """Whether no row is worse off beyond its bounds than it was."""
        return all(
            not (d > 0 and self.use[r] + d > self.high[r])
            and not (d < 0 and self.use[r] + d < self.low[r])
            for r, d in self.change(j, column).items()
        )

    def take(self, j: int, column: int) -> None:
        for r, d in self.change(j, column).items():
            self.use[r] += d
        self.choice[j] = column

    def push(self, heap: list[tuple[float, int, int]], j: int, columns: list[int]) -> None:
        """The best next step of group j, if any gains."""
        now = self.choice[j]
        value, size = self.value[now], self.size[now]
        best, chosen = 0.0, -1
        for c in columns:
            gain = self.value[c] - value
            if gain > 1e-12:
                rate = gain / max(self.size[c] - size, 1e-3)
                if rate > best:
                    best, chosen = rate, c
        if chosen >= 0:
            heapq.heappush(heap, (-best, j, chosen))


def sizes(view: Choices) -> Floats:
    """Size of every column: its use of rows of kind capacity (GPUs), 1 where it uses none; (n,)."""
    row = np.zeros(view.model.m, dtype=bool)
    for family in view.model.families:
        if family.kind == CAPACITY:
            row[family.first : family.stop] = True
    inside = row[view.model.index]
    size = np.bincount(view.model.entry_column[inside], view.model.coef[inside], view.n)
    return np.where(size > 0, size, 1.0)


def _meet_lower_bounds(state: _GreedyState) -> None:
    """Take columns, best value per GPU first, until every row has what it asks for at least."""
    view = state.view
    asks = view.low > 0
    wanted = np.flatnonzero(
        np.diff(np.concatenate([[0], np.cumsum(asks[view.matrix.indices])])[view.matrix.indptr])
    )
    density = view.value[wanted] / sizes(view)[wanted]
    for c in wanted[np.argsort(-density, kind="stable")].tolist():
        j = int(view.group[c])
        short = any(x > 0 and state.use[r] < state.low[r] for r, x in state.entries[c])
        if short and state.choice[j] < 0 and state.fits(j, c):
            state.take(j, c)
