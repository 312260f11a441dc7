"""A plain greedy loop, the baseline of the solver benchmarks.

It first takes what rows with a lower bound require (guarantees, jobs that must keep what they
hold). Then it takes steps from one option of a job to a better one, the best gain per GPU first, as
long as no row is violated. A step that does not fit is not tried again. The loop has no prices, no
repair and no bound.
"""

import heapq
import itertools
import math
import time

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import CAPACITY, Floats, Ints


def plain_greedy(view: Choices, deadline: float = math.inf) -> Ints | None:
    """Return a choice (J,), or None if the loop ends with a violated row.

    The loop adds nothing after the deadline (time.monotonic).
    """
    state = _GreedyState(view)
    for j in np.flatnonzero(view.mandatory).tolist():
        mine = range(int(view.start[j]), int(view.start[j + 1]))
        if not mine:
            return None
        state.take(j, max(mine, key=state.value.__getitem__))
    _meet_lower_bounds(state)
    heap: list[tuple[float, int, int]] = []
    left = [list(range(a, b)) for a, b in itertools.pairwise(view.start.tolist())]
    for j, columns in enumerate(left):
        state.push(heap, j, columns)
    for step in itertools.count(1):
        if not heap or (step % 1000 == 0 and time.monotonic() >= deadline):
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
    """The choice so far and what the rows use.

    The values are plain lists, because steps touch single numbers.
    """

    def __init__(self, view: Choices) -> None:
        self.view = view
        self.value = [*view.value.tolist(), 0.0]
        self.size = [*sizes(view).tolist(), 0.0]
        self.choice = [-1] * view.J
        self.use = [0.0] * view.R
        self.low = view.low.tolist()
        self.high = view.high.tolist()
        a = view.matrix
        cut = a.indptr.tolist()
        entries = list(zip(a.indices.tolist(), a.data.tolist(), strict=True))
        self.entries = [*(entries[p:q] for p, q in itertools.pairwise(cut)), []]

    def change(self, j: int, column: int) -> dict[int, float]:
        """Return how much more the rows use when group j changes to the column."""
        more = dict(self.entries[column])
        for r, x in self.entries[self.choice[j]]:
            more[r] = more.get(r, 0.0) - x
        return more

    def fits(self, j: int, column: int) -> bool:
        """Return whether no row violates its bounds more than it did before."""
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
        """Push the best next step of group j, if any step gains."""
        value, size = self.value[self.choice[j]], self.size[self.choice[j]]
        steps = [
            ((value - self.value[c]) / max(self.size[c] - size, 1e-3), j, c)
            for c in columns
            if self.value[c] - value > 1e-12
        ]
        if steps:
            heapq.heappush(heap, min(steps))


def sizes(view: Choices) -> Floats:
    """Return the size of every column, shape (n,).

    It is the column's use of rows of kind capacity (GPUs), or 1 if it uses none.
    """
    inside = view.model.rows_of(CAPACITY)[view.model.index]
    size = np.bincount(view.model.entry_column[inside], view.model.coef[inside], view.n)
    return np.where(size > 0, size, 1.0)


def _meet_lower_bounds(state: _GreedyState) -> None:
    """Take columns, best value per GPU first, until every row has its lower bound."""
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
