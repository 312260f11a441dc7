"""A plan put together from good choices of whole blocks.

Groups that the rows of a tenant tie together can hardly be moved one at a time. So for every sort
of column that a better plan may use, the longest path through it (formulations/bounds/diagrams.py)
becomes one option of its block. All rows of the block hold in each option; what is left is a small
model of blocks and of the rows that no diagram keeps, which is rounded like every other one. This
is the restricted master programme of column generation (Dantzig and Wolfe 1960) in whole numbers.

With hundreds of tenants a plan that keeps all their rows is also a better first plan than prices
rounded job by job, and found sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.bounds.blocks import bound_all_plans, evaluate_blocks
from formulations.bounds.diagram_building import Nearness, build_diagrams
from formulations.bounds.diagrams import Diagrams, Layer
from formulations.bounds.kept_rows import count_priced
from formulations.bounds.lagrangian import Dual, evaluate, group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints, SparseRows, starts
from formulations.primal.closing import FIRST, Search
from formulations.primal.rounding import fill, repair

OPTIONS = 3_000  # of all blocks together, besides the best one of each
WINDOW = 0.1  # of the mean value of a job: what a choice of a block may lose at the prices
# of it, too: what the price of a row is likely to cost; where that is more than the gap that is
# enough, blocks come first
LIKELY = 0.1
FEW = 200  # with at most so many groups all choices are looked at later


def loses_in_blocks(c: Choices, dual: Dual, gap: float) -> bool:
    """Return whether rows of few groups are likely to cost more than a relative gap.

    A row with a price is seldom used to its last unit, and costs a share of the value of a job. Few
    groups lose nothing here.
    """
    rows = count_priced(c, dual.prices) if c.J > FEW else 0
    return rows > 0 and LIKELY * rows * _mean_value(c) > gap * abs(dual.bound)


def round_blocks(
    c: Choices, dual: Dual, gap: float, until: float = math.inf
) -> tuple[Ints | None, float]:
    """Return a plan (J,) put together from good choices of blocks, and a bound on every plan.

    The plan is None if none is found.

    Parameters
    ----------
    gap : float
        Relative gap at which a plan is good enough.
    until : float
        Latest end (time.monotonic) of the search for a plan.
    """
    if (c.mandatory & (np.diff(c.start) == 0)).any():
        return None, dual.bound
    diagrams = build_diagrams(c, Nearness(dual.prices, WINDOW * _mean_value(c), math.inf))
    if diagrams is None or not diagrams.has_path.all():
        return None, dual.bound
    blocks = evaluate_blocks(c, diagrams, dual.prices)
    bound = bound_all_plans(diagrams, blocks)
    enough = bound / (1.0 + math.copysign(gap, bound))
    plan = find_block_plan(c, diagrams, blocks.prices, blocks.bound, enough, until)
    if plan is None or not c.feasible(plan):
        plan = repair(c, blocks.choice, dual.prices, until)
    if plan is not None:
        plan = fill(c, plan, dual.prices, until=until, enough_value=enough)
    return plan, min(bound, dual.bound)


def _mean_value(c: Choices) -> float:
    """Return the mean over groups with columns of the largest size of a value."""
    return float(group_max(c, np.abs(c.value), 0.0).sum()) / max(1, len(c.filled))


def find_block_plan(
    c: Choices,
    diagrams: Diagrams,
    prices: Floats,
    bound: float,
    enough: float = math.inf,
    until: float = math.inf,
) -> Ints | None:
    """Return a plan (J,) near the choice that attains the bound, None if none is found.

    Parameters
    ----------
    prices : (m,)
        Prices with which the rows that no diagram keeps give the bound.
    bound : float
        The bound of these prices.
    enough : float
        Value at which a plan is good enough.
    until : float
        Latest end (time.monotonic).
    """
    paths = _list_paths(c, diagrams, project_prices(c, prices))
    view = _as_choices(c, diagrams, paths)
    before = c.value_of(paths.settled)
    own = np.zeros(view.model.m)
    own[view.rows] = prices[c.rows[~diagrams.kept]]
    _, best = np.unique(paths.block, return_index=True)
    plan = repair(view, best, own, until)
    if plan is None:
        return None
    plan = fill(view, plan, own, until=until, enough_value=enough - before)
    if view.value_of(plan) < enough - before:
        search = Search(view, evaluate(view, own), plan, 0.0, until, bound - before)
        if search.may_go_on():
            search.prove(FIRST)
        plan = search.plan
    choice = paths.settled.copy()
    is_taken = np.zeros(view.n, dtype=bool)
    is_taken[plan] = True
    on = is_taken[paths.path]
    choice[paths.group[on]] = paths.column[on]
    return choice


@dataclass(frozen=True)
class _Paths:
    """Paths by block, the longest one of each block first.

    Attributes
    ----------
    settled : (J,)
        The columns that all paths have, -1 for the other groups.
    block : (K,)
        Block of each path.
    path, group, column : (i,)
        The decisions: a path decides that a group takes a column, -1 is nothing.
    """

    settled: Ints
    block: Ints
    path: Ints
    group: Ints
    column: Ints


def _list_paths(c: Choices, diagrams: Diagrams, p: Floats) -> _Paths:
    """List the longest path of each block, and the longest ones through other sorts of columns."""
    sorts, layers = diagrams.sorts, diagrams.layers
    entry, gain = diagrams.gains(c.value - c.matrix @ np.where(diagrams.kept, 0.0, p))
    best = diagrams.longest(gain)
    Q, reached, top = diagrams.Q, -best[0], np.full(len(gain), -np.inf)
    top[diagrams.settled] = 0.0
    ahead, back, through = [], [], []
    for layer, here, after in zip(layers, best, best[1:], strict=False):
        ahead.append(_arcs_of(layer.origin, gain[layer.sort] + after[layer.to], here))
        length = reached[layer.origin] + gain[layer.sort]
        reached = np.full(len(after), -np.inf)
        np.maximum.at(reached, layer.to, length)
        back.append(_arcs_of(layer.to, length, reached))
        through.append(length + after[layer.to])
        np.maximum.at(top, layer.sort, through[-1])
    limit = -np.sort(-top[top < 0])[:OPTIONS].max(initial=0.0)
    # the longest paths begin with the first arcs of the roots, where they have any
    layer_of, arc = [np.zeros(Q, dtype=np.int64)], [ahead[0] if layers else np.full(Q, -1)]
    for number, (layer, length) in enumerate(zip(layers, through, strict=True)):
        first = _arcs_of(layer.sort, length, top)
        wanted = first[(first >= 0) & (top < 0) & (top >= limit)]
        layer_of.append(np.full(len(wanted), number))
        arc.append(wanted)
    at, arcs = np.concatenate(layer_of), np.concatenate(arc)
    none = np.zeros(0, dtype=np.int64)
    steps = [*_walk_ahead(layers, ahead, at, arcs), *_walk_back(layers, back, at, arcs)]
    path = np.concatenate([none, *(step[0] for step in steps)])
    sort = np.concatenate([none, *(step[1] for step in steps)])
    block = np.append(np.arange(Q), np.empty(len(at) - Q, dtype=np.int64))
    block[path] = diagrams.block[sorts.owner[sort]]
    order = np.argsort(block, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    column = sorts.column[_arcs_of(np.repeat(np.arange(len(gain)), sorts.width), entry, gain)]
    settled = np.full(c.J, -1)
    settled[sorts.owner[diagrams.settled]] = column[diagrams.settled]
    return _Paths(
        settled,
        block[order],
        rank[path],
        sorts.owner[sort],
        column[sort],
    )


def _arcs_of(owner: Ints, x: Floats, best: Floats) -> Ints:
    """Return the first entry of each owner that has the best number of it, -1 if there is none."""
    at = np.flatnonzero(x >= best[owner])[::-1]
    first = np.full(len(best), -1)
    first[owner[at]] = at
    return first


def _walk_ahead(
    layers: tuple[Layer, ...], ahead: list[Ints], at: Ints, arcs: Ints
) -> list[tuple[Ints, Ints]]:
    """List (path, sort) of the arcs of each path from its own one on."""
    node = np.full(len(at), -1)
    steps = []
    for number, (layer, following) in enumerate(zip(layers, ahead, strict=True)):
        on = np.where(node >= 0, following[node], -1)
        on = np.where(at == number, arcs, on)
        paths = np.flatnonzero(on >= 0)
        node = np.full(len(at), -1)
        node[paths] = layer.to[on[paths]]
        steps.append((paths, layer.sort[on[paths]]))
    return steps


def _walk_back(
    layers: tuple[Layer, ...], back: list[Ints], at: Ints, arcs: Ints
) -> list[tuple[Ints, Ints]]:
    """List (path, sort) of the arcs of each path before its own one."""
    node = np.full(len(at), -1)
    steps = []
    for number in reversed(range(1, len(layers))):
        in_block = at == number
        node[in_block] = layers[number].origin[arcs[in_block]]
        paths = np.flatnonzero(at >= number)
        on = back[number - 1][node[paths]]
        steps.append((paths, layers[number - 1].sort[on]))
        node[paths] = layers[number - 1].origin[on]
    return steps


def _as_choices(c: Choices, diagrams: Diagrams, paths: _Paths) -> Choices:
    """Return the model whose columns are the paths, with the rows that no diagram keeps."""
    others = np.flatnonzero(~diagrams.kept)
    K, R = len(paths.block), len(others)
    on = np.flatnonzero(paths.column >= 0)
    path, column = paths.path[on], paths.column[on]
    part = c.matrix[column].take_columns(others)
    used = np.bincount(path[part.row] * R + part.indices, part.data, K * R).reshape(K, R)
    row, index = np.nonzero(used)
    matrix = SparseRows(
        np.asarray(used[row, index], dtype=np.float64), index, starts(row, K), (K, R)
    )
    use = c.use_of(paths.settled)[others]
    return Choices.of_columns(
        np.bincount(path, c.value[column], K).astype(np.float64),
        paths.block,
        np.ones(diagrams.Q, dtype=bool),
        c.low[others] - use,
        c.high[others] - use,
        matrix,
    )
