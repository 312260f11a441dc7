"""A bound that keeps the rows of few groups, and prices only the rows that concern many.

With prices p for the rows that no diagram keeps (formulations/bounds/diagrams.py)

    L(p) = sum_r (p_r high_r if p_r > 0 else p_r low_r)
           + sum_q longest path of block q, where column c has the length v_c - a_c'p

is at least the value of every plan, and never above the bound of prices for all rows: a partial
dualisation, whose best value is that of Dantzig and Wolfe 1960 (Geoffrion 1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.bounds.diagrams import Diagrams
from formulations.bounds.lagrangian import project_prices, spread_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints


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


def bound_all_plans(diagrams: Diagrams, near: BlockBound) -> float:
    """Return a bound on all plans, also on those with a choice that is no path.

    `near` is the bound of the paths at the prices for which the diagrams were built.
    """
    return near.bound + float((np.maximum(near.block, diagrams.left_out) - near.block).sum())


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
