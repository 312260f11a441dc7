"""A bound that keeps the rows of few groups, and prices only the rows that concern many.

With prices p for the rows that no diagram keeps (formulations/bounds/diagrams.py)

    L(p) = sum_r (p_r high_r if p_r > 0 else p_r low_r)
           + sum_q longest path of block q, where column c has the length v_c - a_c'p

is at least the value of every plan, and never above the bound of prices for all rows: a partial
dualisation, whose best value is that of Dantzig and Wolfe 1960 (Geoffrion 1974). The best prices
are found as in formulations/bounds/smoothing.py, with a log-sum-exp over all paths of a block
instead of one over all columns of a group.

A plan that uses column c has at most the value L(p) - d_c, where d_c is what the longest path of
the block through the column is shorter than the longest of all.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.arrow import ArrowMatrix
from formulations.bounds.diagrams import Diagrams, count_nodes_after
from formulations.bounds.lagrangian import project_prices, spread_prices
from formulations.bounds.scaled_rows import ScaledRows
from formulations.bounds.smoothing import REACH, Smooth, box_step
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints

TEMPERATURES = (0.004, 0.001, 2.5e-4)
STEPS = 40  # of one temperature
PROMISE = 1e-6  # a step that promises less, relative, ends a temperature
LEAST_GAIN = 1e-5  # the search ends if a colder temperature improves the bound by less, relative
CAP = 1e4  # largest price


@dataclass(frozen=True)
class BlockBound:
    """The bound at some prices.

    Attributes
    ----------
    prices : (m,)
        Price of every model row, 0 on rows that the diagrams keep.
    bound : float
        L(prices), safe against rounding.
    choice : (J,)
        The columns that attain it; -1 is nothing.
    block : (Q,)
        The largest value of a choice of each block at these prices.
    """

    prices: Floats
    bound: float
    choice: Ints
    block: Floats


def evaluate_blocks(c: Choices, diagrams: Diagrams, prices: Floats) -> BlockBound:
    """Return the bound at any prices (m,); those of kept rows do not count."""
    p = np.where(diagrams.kept, 0.0, project_prices(c, prices))
    entry, gain = diagrams.gains(c.value - c.matrix @ p)
    best = diagrams.longest(gain)
    rent = p * np.where(p > 0, c.high, np.where(p < 0, c.low, 0.0))
    magnitude = float(np.abs(rent).sum() + np.abs(p) @ c.total) + c.total_value
    longest = int(np.bincount(diagrams.block).max())
    sums = c.most_entries + longest + 8 + math.log2(c.n + c.J + c.R + 2)
    margin = 4.0 * np.finfo(float).eps * sums * magnitude
    block = diagrams.block_values(gain, best)
    bound = float(rent.sum() + block.sum()) + margin
    choice = _trace(c, diagrams, entry, gain, best)
    return BlockBound(spread_prices(c, p), bound, choice, block)


def bound_all_plans(diagrams: Diagrams, near: BlockBound) -> tuple[float, float]:
    """Return a bound on all plans, and on the plans with a choice that is no path.

    `near` is the bound of the paths at the prices for which the diagrams were built.
    """
    more = np.maximum(near.block, diagrams.left_out) - near.block
    bound = near.bound + float(more.sum())
    return bound, bound - float((near.block + more - diagrams.left_out).min(initial=np.inf))


def _trace(c: Choices, diagrams: Diagrams, entry: Floats, gain: Floats, best: list[Floats]) -> Ints:
    """Return the columns (J,) on the longest paths, the first ones where they are equal."""
    sorts = diagrams.sorts
    longest = np.flatnonzero(entry >= sorts.spread(gain))[::-1]
    column = np.empty(len(gain), dtype=np.int64)
    column[np.repeat(np.arange(len(gain)), sorts.width)[longest]] = sorts.column[longest]
    choice = np.full(c.J, -1)
    choice[sorts.owner[diagrams.settled]] = column[diagrams.settled]
    node = np.arange(len(best[0]))
    for layer, here, after in zip(diagrams.layers, best, best[1:], strict=False):
        reached = gain[layer.sort] + after[layer.to]
        arcs = np.flatnonzero(reached >= here[layer.origin])[::-1]
        arc = np.full(layer.nodes, -1)
        arc[layer.origin[arcs]] = arcs
        taken = arc[node]
        taken = taken[taken >= 0]
        choice[sorts.owner[layer.sort[taken]]] = column[layer.sort[taken]]
        node = layer.to[taken]
    return choice


def find_losses(c: Choices, diagrams: Diagrams, prices: Floats) -> tuple[Floats, Floats]:
    """Return d of every column, (n,), and of nothing, (J,), at any prices (m,); inf: impossible."""
    p = np.where(diagrams.kept, 0.0, project_prices(c, prices))
    sorts = diagrams.sorts
    entry, gain = diagrams.gains(c.value - c.matrix @ p)
    best = diagrams.longest(gain)
    top = np.full(len(gain), -np.inf)
    top[diagrams.settled] = 0.0
    # the longest path to each node, less the longest of its block
    reached = -best[0]
    for layer, after in zip(diagrams.layers, best[1:], strict=True):
        length = reached[layer.origin] + gain[layer.sort]
        np.maximum.at(top, layer.sort, length + after[layer.to])
        reached = np.full(len(after), -np.inf)
        np.maximum.at(reached, layer.to, length)
    loss = np.maximum(sorts.spread(gain - top) - entry, 0.0)
    is_column = sorts.column >= 0
    columns: Floats = np.full(c.n, np.inf)
    nothing: Floats = np.full(c.J, np.inf)
    columns[sorts.column[is_column]] = loss[is_column]
    nothing[np.repeat(sorts.owner, sorts.width)[~is_column]] = loss[~is_column]
    return columns, nothing


@dataclass(frozen=True)
class _Point:
    """Value and gradient (R,) of the smooth bound."""

    f: float
    g: Floats


class _SmoothBlocks:
    """The bound made smooth: a log-sum-exp over the paths of every block.

    `s` is the smooth dual of the rows that are not kept.
    """

    def __init__(self, diagrams: Diagrams, s: Smooth) -> None:
        self.diagrams, self.s = diagrams, s
        self.R = s.R

    def at(self, p: Floats, mu: float) -> _Point:
        """Return the point at temperature mu."""
        sorts, layers = self.diagrams.sorts, self.diagrams.layers
        entry = np.append(self.s.reduced(p), 0.0)[sorts.column] / mu
        gain, share = _soften(entry, sorts.first)
        best = np.zeros(self.diagrams.ends)
        shares = []
        for layer in reversed(layers):
            top, own = _soften(gain[layer.sort] + best[layer.to], layer.begin)
            best = np.zeros(layer.nodes)
            best[layer.open] = top
            shares.append(own)
        taken: Floats = np.zeros(len(gain))
        taken[self.diagrams.settled] = 1.0
        arrived: Floats = np.ones(len(best))
        after = count_nodes_after(layers, self.diagrams.ends)
        for layer, nodes, own in zip(layers, after, reversed(shares), strict=True):
            flow = own * arrived[layer.origin]
            taken += np.bincount(layer.sort, flow, len(gain))
            arrived = np.bincount(layer.to, flow, nodes).astype(np.float64)
        entries = share * sorts.spread(taken)
        x: Floats = np.bincount(sorts.column + 1, entries, len(self.s.v) + 1)[1:].astype(np.float64)
        total = best.sum() + gain[self.diagrams.settled].sum()
        return _Point(float(self.s.b @ p + mu * total), self.s.b - x @ self.s.A)


def _soften(x: Floats, first: Ints) -> tuple[Floats, Floats]:
    """Return the log-sum-exp of consecutive parts of x, and the share of each entry in its part."""
    width = np.diff(np.append(first, len(x)))
    top = np.maximum.reduceat(x, first)
    x = np.exp(np.maximum(x - np.repeat(top, width), -80.0))
    total = np.add.reduceat(x, first)
    return top + np.log(total), x / np.repeat(total, width)


def minimise_block_bound(
    c: Choices, diagrams: Diagrams, prices: Floats, enough: float, until: float = math.inf
) -> BlockBound:
    """Find prices with a low bound, beginning with the prices (m,) of a dual.

    Parameters
    ----------
    enough : float
        The search ends at this bound.
    until : float
        Latest end (time.monotonic).
    """
    best = evaluate_blocks(c, diagrams, prices)
    others = np.flatnonzero(~diagrams.kept)
    priced = replace(
        c,
        rows=c.rows[others],
        low=c.low[others],
        high=c.high[others],
        matrix=c.matrix.take_columns(others),
    )
    rows = ScaledRows.of(priced)
    if rows is None:
        return best
    smooth = _SmoothBlocks(diagrams, rows.smooth(priced, None))
    p = rows.split(best.prices[c.rows[others]])
    curvature: Floats | None = None
    for mu in TEMPERATURES:
        if best.bound <= enough or time.monotonic() >= until:
            break
        p, curvature = _descend(smooth, p, mu, curvature, until)
        new = evaluate_blocks(c, diagrams, spread_prices(priced, rows.join(p)))
        gain = best.bound - new.bound
        best = new if gain > 0 else best
        if 0 <= gain < LEAST_GAIN * abs(best.bound):
            break
    return best


def _descend(
    s: _SmoothBlocks, p: Floats, mu: float, curvature: Floats | None, until: float
) -> tuple[Floats, Floats]:
    """Minimise the smooth bound over p >= 0 from p, and return p and the curvature there.

    The steps are those of BFGS with the damping of Powell 1978, in a region of trust. The curvature
    is that of a warmer temperature, or found from differences of gradients.
    """
    at = s.at(p, mu)
    if curvature is None:
        little = 0.1 * mu
        lines = [s.at(p + little * line, mu).g - at.g for line in np.eye(s.R)]
        H: Floats = np.array(lines) / little
        H = 0.5 * (H + H.T)
    else:
        H = 4.0 * curvature
    reach = REACH * mu
    for _ in range(STEPS):
        damping = (1e-9 + 0.1 * np.abs(at.g).max(initial=0.0) / reach) * np.eye(s.R)
        step = box_step(at.g, ArrowMatrix.of(H + damping), -p, CAP - p)
        promise = -float(at.g @ step + 0.5 * step @ H @ step)
        if not promise > PROMISE * abs(at.f) or time.monotonic() >= until:
            break
        new = s.at(p + step, mu)
        H = _update(H, step, new.g - at.g)
        if new.f < at.f:
            reach *= 2.0 if at.f - new.f > 0.7 * promise else 1.0
            p, at = p + step, new
        else:
            reach *= 0.3
    return p, H


def _update(H: Floats, step: Floats, change: Floats) -> Floats:
    """Return the curvature that explains the change of the gradient, positive definite as H."""
    along = H @ step
    curved, seen = float(step @ along), float(step @ change)
    if curved <= 0:
        return H
    if seen < 0.2 * curved:
        part = 0.8 * curved / (curved - seen)
        change = part * change + (1 - part) * along
        seen = float(step @ change)
    return np.asarray(H - np.outer(along, along) / curved + np.outer(change, change) / seen)
