"""A bound on the value of every plan on nodes: prices of holes beside the prices of rows.

A column that places its job anew needs h_cs holes of s GPUs, each on one node; w_ns of them are on
node n, which has G_n GPUs. A column that stays holds k_cn GPUs of node n:

    sum_c h_cs x_c <= sum_n w_ns                           for every size s of a hole
    sum_{c stays on n} k_cn x_c + sum_s s w_ns <= G_n      for every node n

For prices p of the rows and q >= 0 of the holes, with r_c = v_c - a_c'p - h_c'q,

    B(p, q) = sum_r (p_r high_r if p_r > 0 else p_r low_r) + sum_j b_j + sum_n F_n
    b_j     = max(0 unless must_j, max r_c over the columns c of j that do not stay)
    F_n     = max sum_{c in T} (r_c - b_j) k_cn / k_c + sum_s q_s w_s, over the columns T that
              stay on n and whole numbers w_s, with sum_{c in T} k_cn + sum_s s w_s <= G_n

is at least the value of every plan on nodes: a column that stays on several nodes is worth its part
on each, and each node decides alone (Guignard and Kim 1987, "Lagrangean decomposition"). F_n is a
knapsack of a few GPUs, for all nodes at once. With q = 0 and nodes that hold what stays, B is L of
bounds/lagrangian.py. The best prices come from cutting planes in a box around the best prices so
far (Kelley 1960; Marsten, Hogan and Blankenship 1975, "The boxstep method").
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.ragged import begins_run
from formulations.model.sparse_rows import SparseRows

TURNS = 60  # prices that are tried
MOST_PRICES = 60  # of rows that change, those that matter most
MOST_CELLS = 5_000_000  # of the knapsacks of all nodes
REACH = 2.0  # first half width of the box, in mean values of a GPU
ENOUGH = 1e-7  # relative: differences of bounds that are none


@dataclass(frozen=True)
class Stays:
    """The columns that stay on nodes: column, node and GPUs of each part, (L,) each."""

    column: Ints
    node: Ints
    gpus: Ints


@dataclass(frozen=True)
class HoleNeeds:
    """The holes that columns need.

    Attributes
    ----------
    column, kind : (z,)
        A column, and the kind of one of its holes.
    pool, size : (S,)
        Pool and GPUs of each kind.
    """

    column: Ints
    kind: Ints
    pool: Ints
    size: Ints


def find_least_parts(gpus: int, most_nodes: int, largest: int) -> Iterator[int]:
    """Yield the least GPUs of the largest part of a job, of its second largest, and so on.

    The job is on at most `most_nodes` nodes, which have at most `largest` GPUs.

    Examples
    --------
    >>> list(find_least_parts(20, 3, 8)), list(find_least_parts(9, 2, 8))
    ([7, 6, 4], [5, 1])
    """
    for i in range(most_nodes):
        left = gpus - i * largest
        if left <= 0:
            break
        yield -(-left // (most_nodes - i))


def bound_on_nodes(
    choices: Choices,
    prices: Floats,
    gpus: Ints,
    pool: Ints,
    stays: Stays,
    needs: HoleNeeds,
    value: float,
    until: float = math.inf,
) -> float:
    """Return a bound on the value of every plan on nodes, inf if the nodes are too large.

    Parameters
    ----------
    choices : Choices
        The round.
    prices : (R,)
        Prices of its coupling rows to begin from.
    gpus, pool : (N,)
        GPUs and pool of each node.
    stays, needs : Stays and HoleNeeds
        What columns hold or need of nodes; other columns may be anywhere. A group has at most one
        column that stays.
    value : float
        Value of a plan, at which the search ends.
    until : float
        Latest end (time.monotonic).
    """
    if len(stays.column) * (int(gpus.max(initial=0)) + 1) > MOST_CELLS:
        return math.inf
    nodes = _Knapsacks(choices, gpus, pool, stays, needs)
    p = np.append(prices, np.zeros(len(needs.size)))
    unit = abs(value) / max(1, gpus.sum()) or 1.0
    scale = unit / np.append(choices.unit, 1.0 / needs.size)
    weight = np.abs(prices) * choices.total
    free = np.append(
        np.argsort(-weight, kind="stable")[:MOST_PRICES], choices.R + np.arange(len(needs.size))
    )
    scale = scale[free]
    low = np.where(np.isfinite(nodes.low), -np.inf, 0.0)[free] / scale
    high = np.where(np.isfinite(nodes.high), np.inf, 0.0)[free] / scale
    now, slope = nodes.evaluate(p)
    best, at, reach = now, p[free] / scale, REACH
    slopes, heights = list[Floats](), list[float]()
    for _ in range(TURNS):
        slopes.append(slope[free] * scale)
        heights.append(now - float(slope[free] @ p[free]))
        found = _find_lowest(
            np.array(slopes) / unit,
            (np.array(heights) - best) / unit,
            np.maximum(low, at - reach),
            np.minimum(high, at + reach),
        )
        if found is None or time.monotonic() >= until:
            break
        hoped = -found[1] * unit
        if hoped <= ENOUGH * abs(best):
            break
        p = p.copy()
        p[free] = found[0] * scale
        now, slope = nodes.evaluate(p)
        gain = best - now
        reach *= 2.0 if gain > 0.1 * hoped else 0.5 if gain <= 0 else 1.0
        if gain > 0:
            best, at = now, found[0]
        if best <= value + ENOUGH * abs(value):
            break
    return best


def _find_lowest(
    slopes: Floats, heights: Floats, low: Floats, high: Floats
) -> tuple[Floats, float] | None:
    """Return the point in a box where the highest of planes (k, n) is lowest, and its height."""
    from scipy import optimize

    found = optimize.linprog(
        np.append(np.zeros(len(low)), 1.0),
        A_ub=np.column_stack([slopes, -np.ones(len(slopes))]),
        b_ub=-heights,
        bounds=np.column_stack([np.append(low, -np.inf), np.append(high, np.inf)]),
        method="highs-ds",
    )
    if found.status != 0:
        return None
    return np.clip(found.x[:-1], low, high), float(found.fun)


class _Knapsacks:
    """B and its slope at any prices. The rows of holes come after the coupling rows."""

    def __init__(
        self, choices: Choices, gpus: Ints, pool: Ints, stays: Stays, needs: HoleNeeds
    ) -> None:
        self._choices = c = choices
        self._needs = needs
        S = len(needs.size)
        row = np.append(c.matrix.row, needs.column)
        order = np.argsort(row, kind="stable")
        self._matrix = SparseRows(
            np.append(c.matrix.data, np.ones(len(needs.column)))[order],
            np.append(c.matrix.indices, c.R + needs.kind).astype(np.int64)[order],
            np.searchsorted(row[order], np.arange(c.n + 1)),
            (c.n, c.R + S),
        )
        self.low = np.append(c.low, np.full(S, -np.inf))
        self.high = np.append(c.high, np.zeros(S))
        others = np.ones(c.n, dtype=bool)
        others[stays.column] = False
        others = np.bincount(c.group[others], minlength=c.J) > 0
        # what must stay takes its GPUs first
        firm = (c.mandatory & ~others)[c.group[stays.column]]
        taken = np.bincount(stays.node[firm], stays.gpus[firm], len(gpus)).astype(np.int64)
        self._room = np.maximum(0, gpus - taken)
        self._pool = pool
        open_ = np.flatnonzero(~firm)
        open_ = open_[np.argsort(stays.node[open_], kind="stable")]
        self._column, self._node = stays.column[open_], stays.node[open_]
        self._gpus = stays.gpus[open_]
        whole = np.bincount(self._column, self._gpus, c.n)
        self._part = self._gpus / whole[self._column]
        first = np.flatnonzero(begins_run(self._node)) if len(open_) else open_
        layer = np.arange(len(open_)) - np.repeat(first, np.diff(first, append=len(open_)))
        self._layers = [np.flatnonzero(layer == i) for i in range(int(layer.max(initial=-1)) + 1)]
        self._anew = np.ones(c.n, dtype=bool)
        self._anew[self._column] = False
        self._largest = int(self._room.max(initial=0))

    def evaluate(self, p: Floats) -> tuple[float, Floats]:
        """Return B(p), safe against rounding, and its slope, (R + S,)."""
        c = self._choices
        r = c.value - self._matrix @ p
        b = np.where(c.mandatory, -np.inf, 0.0)
        np.maximum.at(b, c.group[self._anew], r[self._anew])
        gain = (r[self._column] - b[c.group[self._column]]) * self._part
        value, kept, holes = self._fill(gain, p[c.R :])
        limit = np.where(p > 0, self.high, np.where(p < 0, self.low, 0.0))
        rent = p * limit
        x = np.zeros(c.n)
        top = np.flatnonzero(self._anew & (r >= b[c.group]))[::-1]
        choice = np.full(c.J, -1)
        choice[c.group[top]] = top
        stays = np.bincount(c.group[self._column], self._part * kept, c.J)
        on = np.flatnonzero(choice >= 0)
        x[choice[on]] = 1.0 - stays[on]
        x += np.bincount(self._column, self._part * kept, c.n)
        slope = np.where(p == 0, np.where(np.isfinite(self.high), self.high, self.low), limit)
        slope = slope - x @ self._matrix
        slope[c.R :] += holes
        # as in bounds/lagrangian.py; a knapsack adds at most its GPUs more
        total = np.append(c.total, np.bincount(self._needs.kind, minlength=len(holes)) + holes)
        magnitude = float(np.abs(rent).sum() + np.abs(p) @ total) + c.total_value
        terms = c.most_entries + 3 * self._largest + 8
        terms += 8 * math.log2(c.n + c.J + len(p) + len(self._room) + 2)
        margin = 8.0 * np.finfo(float).eps * terms * magnitude
        return float(rent.sum() + b.sum() + value.sum()) + margin, slope

    def _fill(self, gain: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
        """Return F (N,), which parts stay (L,), and the holes of each kind (S,)."""
        N, size = len(self._room), self._largest + 1
        used = np.arange(size)
        best = np.zeros((N, size))  # of what stays on at most so many GPUs
        steps = []
        for layer in self._layers:
            part = layer[(gain[layer] > 0) & (self._gpus[layer] < size)]
            n = self._node[part]
            before = used - self._gpus[part, None]
            with_it = np.take_along_axis(best[n], np.maximum(before, 0), axis=1)
            with_it = np.where(before >= 0, with_it + gain[part, None], -np.inf)
            takes = with_it > best[n]
            best[n] = np.where(takes, with_it, best[n])
            steps.append((part, takes))
        worth, count = self._price_rooms(q)
        left = self._room[:, None] - used
        every = best + worth[self._pool[:, None], np.maximum(left, 0)]
        every = np.where(left >= 0, every, -np.inf)
        room = every.argmax(axis=1)
        value = every[np.arange(N), room]
        holes = count[self._pool, self._room - room].sum(axis=0)
        kept = np.zeros(len(gain))
        for part, takes in reversed(steps):
            n = self._node[part]
            kept[part] = takes[np.arange(len(part)), room[n]]
            room[n] -= np.where(kept[part] > 0, self._gpus[part], 0)
        return value, kept, holes

    def _price_rooms(self, q: Floats) -> tuple[Floats, Floats]:
        """Return the most that holes in so many GPUs are worth, by pool, and which they are."""
        pools, size = int(self._pool.max(initial=0)) + 1, self._largest + 1
        worth = np.zeros((pools, size))
        count = np.zeros((pools, size, len(q)))
        for k in range(1, size):
            worth[:, k], count[:, k] = worth[:, k - 1], count[:, k - 1]
            for s in np.flatnonzero(self._needs.size <= k).tolist():
                p, rest = self._needs.pool[s], k - self._needs.size[s]
                if worth[p, rest] + q[s] > worth[p, k]:
                    worth[p, k] = worth[p, rest] + q[s]
                    count[p, k] = count[p, rest]
                    count[p, k, s] += 1
        return worth, count
