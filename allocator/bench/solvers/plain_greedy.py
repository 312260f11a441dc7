"""A plain greedy loop, the baseline of the solver benchmarks.

It first takes what rows with a lower bound require (guarantees, jobs that must keep what they
hold). Then it takes steps from one option of a job to a better one, the best gain per GPU first, as
long as no row is violated. A step that does not fit is not tried again. The loop has no prices, no
repair and no bound.
"""

import heapq
import itertools
import time

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import CAPACITY, Floats, Ints


def plain_greedy(view: Choices, deadline: float) -> Ints | None:
    """Return a choice (J,), or None if the loop ends with a violated row.

    The loop adds nothing after the deadline (time.monotonic).
    """
    # plain lists, because steps touch single numbers; the last entries stand for no column
    value, size = ([*column.tolist(), 0.0] for column in (view.value, sizes(view)))
    low, high, a = view.low.tolist(), view.high.tolist(), view.matrix
    whole = list(zip(a.indices.tolist(), a.data.tolist(), strict=True))
    entries = [*(whole[p:q] for p, q in itertools.pairwise(a.indptr.tolist())), []]
    left = [list(range(p, q)) for p, q in itertools.pairwise(view.start.tolist())]
    chosen, use = [-1] * view.J, [0.0] * view.R
    heap: list[tuple[float, int, int]] = []

    def change(j: int, column: int) -> dict[int, float]:
        """Return how much more the rows use when group j changes to the column."""
        more = dict(entries[column])
        for r, x in entries[chosen[j]]:
            more[r] = more.get(r, 0.0) - x
        return more

    def fits(j: int, column: int) -> bool:
        """Return whether no row violates its bounds more than it did before."""
        return all(
            not (d > 0 and use[r] + d > high[r]) and not (d < 0 and use[r] + d < low[r])
            for r, d in change(j, column).items()
        )

    def take(j: int, column: int) -> None:
        for r, d in change(j, column).items():
            use[r] += d
        chosen[j] = column

    def push(j: int) -> None:
        """Push the best next step of group j, if any step gains."""
        now = chosen[j]
        steps = [
            ((value[now] - value[c]) / max(size[c] - size[now], 1e-3), j, c)
            for c in left[j]
            if value[c] - value[now] > 1e-12
        ]
        if steps:
            heapq.heappush(heap, min(steps))

    for j in np.flatnonzero(view.mandatory).tolist():
        if not left[j]:
            return None
        take(j, max(left[j], key=value.__getitem__))
    for c in _columns_of_lower_bounds(view):
        j = int(view.group[c])
        is_short = any(x > 0 and use[r] < low[r] for r, x in entries[c])
        if is_short and chosen[j] < 0 and fits(j, c):
            take(j, c)
    for j in range(view.J):
        push(j)
    for step in itertools.count(1):
        if not heap or (step % 1000 == 0 and time.monotonic() >= deadline):
            break
        _, j, column = heapq.heappop(heap)
        if fits(j, column):
            take(j, column)
        else:
            left[j].remove(column)
        push(j)
    choice = np.array(chosen, dtype=np.int64)
    return choice if view.feasible(choice) else None


def sizes(view: Choices) -> Floats:
    """Return the size of every column, shape (n,).

    It is the column's use of rows of kind capacity (GPUs), or 1 if it uses none.
    """
    size = view.matrix @ np.where(view.model.rows_of(CAPACITY)[view.rows], 1, 0)
    return np.where(size > 0, size, 1.0)


def _columns_of_lower_bounds(view: Choices) -> list[int]:
    """Return the columns in rows with a lower bound, best value per GPU first."""
    wanted = np.flatnonzero(abs(view.matrix) @ np.where(view.low > 0, 1, 0) > 0)
    density = view.value[wanted] / sizes(view)[wanted]
    return list(wanted[np.argsort(-density, kind="stable")].tolist())
