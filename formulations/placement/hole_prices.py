"""An upper bound on the value of every plan that names nodes.

A hole is a number of free GPUs on one node, which a job needs there. Holes have prices, as the rows
of the model have (bounds/lagrangian.py).

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
from dataclasses import dataclass

import numpy as np

from formulations.bounds.lagrangian import best_columns
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints

TURNS = 60  # prices that are tried
MOST_PRICES = 60  # of rows that change, those that matter most
MOST_CELLS = 5_000_000  # of the knapsacks of all nodes
REACH = 2.0  # first half width of the box, in mean values of a GPU
ENOUGH = 1e-7  # relative: differences of bounds that are none
STEPS = 60  # of a linear program
NEAR = 1e-10  # relative: what a linear program may miss by
ROUNDING = 1e-12  # relative error of the sums of a bound, as in bounds/lagrangian.py


@dataclass(frozen=True)
class NodeParts:
    """What columns hold or need of nodes; others may be anywhere.

    Attributes
    ----------
    gpus, pool : (N,)
        GPUs and pool of each node.
    column, node, size : (L,)
        The columns that stay, a node of each, and the GPUs that they hold there. A group has at
        most one such column, and may have another one or none.
    needs, kind : (z,)
        The columns that need a hole, and the kind of the hole.
    hole_pool, hole_size : (S,)
        Pool and GPUs of each kind of holes.
    """

    gpus: Ints
    pool: Ints
    column: Ints
    node: Ints
    size: Ints
    needs: Ints
    kind: Ints
    hole_pool: Ints
    hole_size: Ints


def list_least_parts(gpus: int, most_nodes: int, largest: int) -> list[int]:
    """List the least GPUs of the largest part of a job, of its second largest, and so on.

    The job is on at most `most_nodes` nodes, which have at most `largest` GPUs. For a job
    of pods, all three parameters count pods.

    Examples
    --------
    >>> list_least_parts(20, 3, 8), list_least_parts(9, 2, 8)
    ([7, 6, 4], [5, 1])
    """
    count = min(most_nodes, -(-gpus // max(1, largest)))
    return [-(-(gpus - i * largest) // (most_nodes - i)) for i in range(count)]


def bound_on_nodes(
    choices: Choices, prices: Floats, parts: NodeParts, value: float, until: float = math.inf
) -> float:
    """Return a bound on the value of every plan on nodes, inf if the nodes are too large.

    Parameters
    ----------
    choices : Choices
        The round.
    prices : (R,)
        Prices of its coupling rows to begin from.
    parts : NodeParts
        What its columns hold or need of nodes.
    value : float
        Value of a plan, at which the search ends.
    until : float
        Latest end (time.monotonic).
    """
    nodes = _Knapsacks(choices, parts)
    if nodes.cells > MOST_CELLS:
        return math.inf
    S = len(parts.hole_size)
    weight = np.abs(prices) * choices.total
    free = np.argsort(-weight, kind="stable")[:MOST_PRICES]
    free = np.append(free, choices.R + np.arange(S))
    unit = abs(value) / max(1, parts.gpus.sum()) or 1.0
    scale = (unit / np.append(choices.unit, 1.0 / parts.hole_size))[free]
    low = np.append(np.where(np.isfinite(choices.low), -np.inf, 0.0), np.zeros(S))[free]
    high = np.append(np.where(np.isfinite(choices.high), np.inf, 0.0), np.full(S, np.inf))[free]
    p = np.append(prices, np.zeros(S))
    now, slope = nodes.evaluate(p)
    best, at, reach = now, p[free] / scale, REACH
    planes = list[Floats]()
    for _ in range(TURNS):
        planes.append(np.append(slope[free] * scale, now - slope[free] @ p[free]) / unit)
        lowest = _find_lowest(
            np.array(planes) - np.append(np.zeros(len(free)), best / unit),
            np.maximum(low, at - reach),
            np.minimum(high, at + reach),
        )
        if lowest is None or time.monotonic() >= until:
            break
        hoped = -lowest[1] * unit
        if min(hoped, best - value) <= ENOUGH * abs(best):
            break
        p = p.copy()
        p[free] = lowest[0] * scale
        now, slope = nodes.evaluate(p)
        gain = best - now
        reach *= 2.0 if gain > 0.1 * hoped else 0.5 if gain <= 0 else 1.0
        if gain > 0:
            best, at = now, lowest[0]
    return best


def _find_lowest(planes: Floats, low: Floats, high: Floats) -> tuple[Floats, float] | None:
    """Return the point in a box where the highest of planes (k, n + 1) is lowest, and its height.

    The last entry of a plane is its height at 0. The linear program is solved by the
    predictor-corrector method (Mehrotra 1992, SIAM Journal on Optimization 2), from the middle of
    the box; to import a solver would take longer than a round. None = it does not converge.
    """
    n = len(low)
    rows = np.vstack([np.column_stack([planes[:, :-1], -np.ones(len(planes))]), np.eye(n, n + 1)])
    rows = np.vstack([rows, -np.eye(n, n + 1)])
    limit = np.concatenate([-planes[:, -1], high, -low])
    size = float(np.abs(planes).max()) + 1.0
    z = np.append((low + high) / 2, 0.0)
    z[-1] = float((rows @ z - limit)[: len(planes)].max()) + size
    slack = limit - rows @ z
    y = np.full(len(limit), 1.0 / len(planes))
    for _ in range(STEPS):
        off = rows.T @ y
        off[-1] += 1.0
        mean = float(slack @ y) / len(y)
        if mean <= NEAR * size and float(np.abs(off).max()) <= NEAR * size:
            return np.clip(z[:-1], low, high), float(z[-1])
        weight = y / slack
        try:
            inverse = np.linalg.inv(rows.T @ (weight[:, None] * rows))
        except np.linalg.LinAlgError:
            return None
        move, more = np.zeros(n + 1), np.zeros(len(y))
        target = np.zeros(len(y))
        for corrects in (False, True):
            if corrects:
                step = min(_longest(slack, -rows @ move), _longest(y, more))
                hoped = float((slack - step * (rows @ move)) @ (y + step * more)) / len(y)
                target = mean * (hoped / mean) ** 3 + (rows @ move) * more
            move = inverse @ (-off - rows.T @ (target / slack - y))
            more = target / slack - y + weight * (rows @ move)
        z += 0.99 * _longest(slack, -rows @ move) * move
        y += 0.99 * _longest(y, more) * more
        slack = limit - rows @ z
        if not (slack > 0).all():
            return None
    return None


def _longest(at: Floats, step: Floats) -> float:
    """Return which part of a step, at most all of it, leaves all of `at` positive."""
    down = step < 0
    return min(1.0, float((at[down] / -step[down]).min(initial=np.inf)))


class _Knapsacks:
    """B and its slope at any prices. A node may have as many holes of a kind as its GPUs hold."""

    def __init__(self, choices: Choices, parts: NodeParts) -> None:
        self._choices, self._parts = choices, parts
        N = len(parts.gpus)
        whole = np.bincount(parts.column, parts.size, choices.n)
        self._share = parts.size / whole[parts.column]
        self._anew = ~np.isin(np.arange(choices.n), parts.column)
        node, kind = np.nonzero(parts.pool[:, None] == parts.hole_pool)
        copies = parts.gpus[node] // parts.hole_size[kind]
        self._kind = np.repeat(kind, copies)
        node = np.append(parts.node, np.repeat(node, copies))
        self._size = np.concatenate([parts.size, parts.hole_size[self._kind], [0]])
        order = np.argsort(node, kind="stable")
        layer = np.arange(len(node)) - np.searchsorted(node[order], node[order])
        self._items = np.full((int(layer.max(initial=-1)) + 1, N), len(node))
        self._items[layer, node[order]] = order
        self.cells = self._items.size * (int(parts.gpus.max(initial=0)) + 1)

    def evaluate(self, p: Floats) -> tuple[float, Floats]:
        """Return B, safe against rounding, and its slope, at the prices (R + S,)."""
        c, n = self._choices, self._parts
        prices, q = p[: c.R], p[c.R :]
        r = c.value - c.matrix @ prices - np.bincount(n.needs, q[n.kind], c.n)
        b, choice = best_columns(c, np.where(self._anew, r, -np.inf))
        gain = (r[n.column] - b[c.group[n.column]]) * self._share
        value, taken = self._fill(np.concatenate([gain, q[self._kind], [0.0]]))
        stays = self._share * taken[: len(gain)]
        x: Floats = np.bincount(n.column, stays, c.n).astype(np.float64)
        x[choice[choice >= 0]] = (1.0 - np.bincount(c.group[n.column], stays, c.J))[choice >= 0]
        holes = np.bincount(self._kind, taken[len(gain) : -1], len(q))
        limit = np.where((prices < 0) | np.isinf(c.high), c.low, c.high)
        slope = np.append(limit - x @ c.matrix, holes - np.bincount(n.kind, x[n.needs], len(q)))
        size = float(np.abs(prices * limit).sum() + np.abs(prices) @ c.total) + c.total_value
        size += float(q @ (np.bincount(n.kind, minlength=len(q)) + holes))
        return float(prices @ limit + b.sum() + value.sum() + ROUNDING * size), slope

    def _fill(self, gain: Floats) -> tuple[Floats, Floats]:
        """Return F (N,), and which parts of stays and holes are taken, (L + M + 1,)."""
        room = self._parts.gpus.copy()
        nodes = np.arange(len(room))
        used = np.arange(room.max(initial=0) + 1)
        best = np.zeros((len(room), len(used)))  # in so many GPUs
        takes = []
        for items in self._items:
            before = used - self._size[items, None]
            more = np.take_along_axis(best, np.maximum(before, 0), axis=1) + gain[items, None]
            takes.append((before >= 0) & (more > best))
            best = np.where(takes[-1], more, best)
        value = best[nodes, room]
        taken = np.zeros(len(gain))
        for items, takes_it in zip(self._items[::-1], takes[::-1], strict=True):
            on = takes_it[nodes, room]
            taken[items[on]] = 1.0
            room -= np.where(on, self._size[items], 0)
        return value, taken
