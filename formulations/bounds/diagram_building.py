"""The building of decision diagrams, with the choices that lose little at given prices.

Most choices of a block are in no good plan. At prices p for all rows a choice of a block can have
at most the value

    sum_{j of the block} max_c (v_c - a_c'p) + sum_{its rows r} p_r b_r

A diagram has the choices that lose less than some window against it, except those that did not fit.
The largest value of what was left out is known, so that bounds stay bounds. Only the windows of
blocks without a path are widened, because a large job or a tight budget may lose much in one block
and nothing in all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.bounds.diagrams import Diagrams, Layer, Sorts
from formulations.bounds.kept_rows import NO_LIMIT, Sum, find_sums, select_sums
from formulations.bounds.lagrangian import best_columns, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.ragged import ragged, starts

STATES = 300  # most nodes of a block in one layer
WIDER = 4  # times the first window of a block without a path
ARCS = 400_000  # larger diagrams are not built
MARGIN = 1e-11  # relative: more than the rounding errors of the value of a choice
LARGEST = 1e300  # more than any loss
SAFE = -1  # what stands for a sum that can no longer break its row


def build_diagrams(c: Choices, prices: Floats, window: float = np.inf) -> Diagrams | None:
    """Build the diagrams of the choices that lose little at some prices, None if no row is kept.

    Every mandatory group has a column. Where a layer of a block has too many nodes, only those
    that can have the largest values are kept. None is also returned if all diagrams together are
    too large.

    Parameters
    ----------
    prices : (m,)
        Price of every model row.
    window : float
        What a choice of a block may lose at the prices. Where no such choice keeps the rows, it is
        WIDER times as much, and then anything.
    """
    sums, label = select_sums(c, find_sums(c))
    if not sums:
        return None
    blocks = _Blocks(c, sums, label, prices)
    windows = np.full(blocks.Q, window)
    for wider in (WIDER * window, np.inf, np.inf):
        build = _Build(blocks, windows)
        if not build.grow():
            return None
        if not build.is_dead.any():
            break
        windows[build.blocks[build.is_dead]] = wider
    return build.trim()


class _Blocks:
    """The blocks of a model: their sums, and what their groups have at the prices.

    Attributes
    ----------
    block : (J,)
        Block of each group.
    sizes : (n+1, K)
        Size of every column, and of nothing, in each slot.
    low, high, up, down : (Q, K)
        Bounds of each sum, and prices of what is left of it and of what is missing.
    reduced, best : (n,), (J,)
        v - a'p of every column, and the largest of every group.
    value : (n+1,)
        The same as `reduced` with a price of 0 for kept rows, and nothing.
    top : (Q,)
        No choice of a block has a higher value.
    margin : float
        More than the rounding errors of values.
    """

    def __init__(self, c: Choices, sums: list[Sum], label: Ints, prices: Floats) -> None:
        self.c = c
        names, self.block = np.unique(label, return_inverse=True)
        self.Q = len(names)
        slots = 1 + max(one.slot for one in sums)
        self.sizes = np.zeros((c.n + 1, slots), dtype=np.int64)
        shape = self.Q, slots
        self.low, self.high = np.full(shape, -NO_LIMIT), np.full(shape, NO_LIMIT)
        self.up, self.down = np.zeros(shape), np.zeros(shape)
        p = project_prices(c, prices)
        self.reduced = c.value - c.matrix @ p
        self.best, _ = best_columns(c, self.reduced)
        self.top = np.bincount(self.block, self.best, self.Q)
        edge = np.where(p > 0, c.high, np.where(p < 0, c.low, 0.0))
        self.kept = np.zeros(c.R, dtype=bool)
        for one in sums:
            at = self.block[one.groups[0]], one.slot
            self.low[at], self.high[at] = one.low, one.high
            self.up[at] = one.unit * np.maximum(p[one.rows], 0.0).sum()
            self.down[at] = one.unit * np.minimum(p[one.rows], 0.0).sum()
            self.top[at[0]] += p[one.rows] @ edge[one.rows]
            self.sizes[one.columns, one.slot] = one.size
            self.kept[one.rows] = True
        self.value = np.append(c.value - c.matrix @ np.where(self.kept, 0.0, p), 0.0)
        self.margin = MARGIN * (1.0 + np.abs(self.best).sum() + np.abs(p) @ np.abs(edge))


class _Build:
    """The building of the diagrams of all blocks, layer by layer, in windows (Q,).

    `blocks` (Q,) are the blocks in the order of their roots: those with more open groups first.
    """

    def __init__(self, all_: _Blocks, window: Floats) -> None:
        c, Q = all_.c, all_.Q
        most = (window + 2 * all_.margin)[all_.block]
        is_near = all_.best[c.group] - all_.reduced <= most[c.group]
        idle = ~c.mandatory & (all_.best <= most)
        sorts = Sorts.of(c, all_.sizes, np.flatnonzero(is_near), np.flatnonzero(idle))
        self.gain = np.maximum.reduceat(all_.value[sorts.column], sorts.first)
        is_open = np.bincount(sorts.owner, minlength=c.J) > 1
        groups = np.bincount(all_.block[is_open], minlength=Q)
        self.blocks = np.argsort(-groups, kind="stable")
        self.count = groups[self.blocks]
        self.first = np.cumsum(self.count) - self.count
        rank = np.empty(Q, dtype=np.int64)
        rank[self.blocks] = np.arange(Q)
        self.sorts, self.root, self.kept = sorts, rank[all_.block], all_.kept
        self.low, self.high = all_.low[self.blocks], all_.high[self.blocks]
        self.up, self.down = all_.up[self.blocks], all_.down[self.blocks]
        own, self.margin = window[self.blocks], all_.margin
        lowest = all_.top[self.blocks] - own
        self.left_out = lowest + self.margin  # -inf if nothing is
        self.floor = np.maximum(lowest - self.margin, -LARGEST)  # finite: no path has -inf
        self.settled = np.flatnonzero(~is_open[sorts.owner])
        at = self.root[sorts.owner[self.settled]]
        self.use = np.zeros(self.low.shape, dtype=np.int64)
        np.add.at(self.use, at, sorts.size[self.settled])
        self.base = np.bincount(at, self.gain[self.settled], Q).astype(np.float64)
        self.start = starts(sorts.owner, c.J)
        self._order_groups(np.flatnonzero(is_open), all_.best)
        # the number of a node is that of its block, and then its sums in mixed radix
        radix = np.where(self.high < NO_LIMIT, self.high, np.maximum(self.low, 0)) + 2
        stride = np.cumprod(np.hstack([np.ones((Q, 1), dtype=np.int64), radix]), axis=1)
        self.stride, self.first_key = stride[:, :-1], np.cumsum(stride[:, -1]) - stride[:, -1]
        self.keys = int(stride[:, -1].sum())

    def _order_groups(self, groups: Ints, best: Floats) -> None:
        """Order open groups by block, large ones first, because small ones fill what is left.

        Also find what the groups from each place on can add, over all blocks.
        """
        root = self.root[groups]
        begin, size = self.start[groups], self.sorts.size
        largest, least = np.zeros((2, len(groups), size.shape[1]), dtype=np.int64)
        if len(groups):
            owned = ragged(begin, self.start[groups + 1])[1]
            runs = np.cumsum(self.start[groups + 1] - begin) - (self.start[groups + 1] - begin)
            largest = np.maximum.reduceat(size[owned], runs)
            least = np.minimum.reduceat(size[owned], runs)
        price = np.maximum(self.up - self.down, 1e-9)[root]
        order = np.lexsort((-((largest - least) * price).sum(axis=1), root))
        self.groups = groups[order]
        self.most = _from_end(largest[order])
        self.least = _from_end(least[order])
        self.best = _from_end(best[self.groups])

    def _left(self, total: Any, t: int, blocks: int) -> Any:
        """Return what the groups from number t on of the first blocks can add, (blocks, ...)."""
        first = self.first[:blocks]
        return total[first + t] - total[first + self.count[:blocks]]

    def grow(self) -> bool:
        """Build all layers, and find the blocks that have no path. False if they are too large."""
        Q = len(self.count)
        block, use, longest = np.arange(Q), self.use, self.base
        left = self._left(self.most, 0, Q)
        fits = ((use <= self.high) & (use + left >= self.low)).all(axis=1)
        # settled groups may break a row
        longest = np.where(fits, longest, -np.inf)
        self.is_dead = ~fits
        use = np.where((use >= self.low) & (use + left <= self.high), SAFE, use)
        self.layers, self.reached, self.block = list[Layer](), [longest], [block]
        arcs = 0
        for t in range(int(self.count.max(initial=0))):
            blocks = int(np.searchsorted(-self.count, -t))  # with more than t groups
            live = int(np.searchsorted(block, blocks))
            group = self.groups[self.first[block[:live]] + t]
            origin, sort = ragged(self.start[group], self.start[group + 1])
            own, used = block[origin], use[origin]
            left = self._left(self.most, t + 1, blocks)[own]
            free = used == SAFE
            used += self.sorts.size[sort]
            value = longest[origin] + self.gain[sort]
            # what is left of each sum, as far as it can be used, and what is missing
            space, lack = self.high[own] - used, self.low[own] - used
            least = self._left(self.least, t + 1, blocks)[own]
            up = np.where(free, left, np.minimum(space, left))
            down = np.where(free, least, np.maximum(lack, least))
            bound = value + self._left(self.best, t + 1, blocks)[own]
            bound += (up * self.up[own] + down * self.down[own]).sum(axis=1)
            fits = (free | ((space >= 0) & (lack <= left))).all(axis=1)
            stays = np.flatnonzero(fits & (bound >= self.floor[own]))
            safe = free | ((lack <= 0) & (left <= space))
            origin, sort, own, value = origin[stays], sort[stays], own[stays], value[stays]
            used = np.where(safe[stays], SAFE, used[stays])
            at, to = _find_distinct(
                self.first_key[own] + ((used + 1) * self.stride[own]).sum(axis=1), self.keys
            )
            block, use = own[at], used[at]
            longest, most = np.full(len(at), -np.inf), np.full(len(at), -np.inf)
            np.maximum.at(longest, to, value)
            np.maximum.at(most, to, bound[stays])
            if len(dropped := self._drop(block, most)):
                kept = np.ones(len(block), dtype=bool)
                kept[dropped] = False
                on = np.flatnonzero(kept[to])
                origin, sort, to = origin[on], sort[on], (np.cumsum(kept) - 1)[to[on]]
                block, use, longest = block[kept], use[kept], longest[kept]
            self.is_dead[:blocks] |= np.bincount(block, minlength=Q)[:blocks] == 0
            self.layers.append(Layer.of(len(self.block[-1]), origin, to, sort))
            self.reached.append(longest)
            self.block.append(block)
            arcs += len(to)
            if arcs > ARCS:
                return False
        return True

    def _drop(self, block: Ints, bound: Floats) -> Ints:
        """Return the nodes with the lowest bounds in blocks with too many nodes."""
        count = np.bincount(block, minlength=len(self.count))
        dropped = [np.zeros(0, dtype=np.int64)]
        for b in np.flatnonzero(count > STATES).tolist():
            own = np.flatnonzero(block == b)
            own = own[np.argpartition(-bound[own], STATES)[STATES:]]
            highest = float(bound[own].max())
            self.left_out[b] = max(self.left_out[b], highest + self.margin)
            dropped.append(own)
        return np.concatenate(dropped)

    def trim(self) -> Diagrams:
        """Return the diagrams without the nodes and arcs that are on no path."""
        arcs = []
        after = np.zeros(len(self.reached[-1]))
        levels = [*zip(self.layers, self.reached, self.block, strict=False)]
        for t, (layer, lengths, own) in reversed([*enumerate(levels)]):
            length = self.gain[layer.sort] + after[layer.to]
            on = np.flatnonzero(lengths[layer.origin] + length >= self.floor[own[layer.origin]])
            arcs.append(on)
            after = np.where(self.count[own] > t, -np.inf, 0.0)
            np.maximum.at(after, layer.origin[on], length[on])
        total = self.reached[0] + after
        longest = np.where(total >= self.floor, total, -np.inf)
        number, nodes = np.arange(len(after)), len(after)
        out = []
        for old, on, own in zip(self.layers, arcs[::-1], self.block[1:], strict=True):
            begun, ahead, sort = number[old.origin[on]], old.to[on], old.sort[on]
            alive = np.zeros(len(own), dtype=bool)
            alive[ahead] = True
            number = np.cumsum(alive) - 1
            out.append(Layer.of(nodes, begun, number[ahead], sort))
            nodes = int(np.count_nonzero(alive))
        return Diagrams(
            self.kept,
            self.root,
            self.sorts,
            self.settled,
            *_without_empty(out, nodes),
            longest > -np.inf,
            self.left_out,
        )


def _without_empty(layers: list[Layer], ends: int) -> tuple[tuple[Layer, ...], int]:
    """Return the layers before the first one without arcs, and the number of nodes after them."""
    count = next((t for t, layer in enumerate(layers) if not len(layer.to)), len(layers))
    return tuple(layers[:count]), [*(layer.nodes for layer in layers), ends][count]


def _from_end(x: Any) -> Any:
    """Return the sums of x (k, ...) from each place to the end, and 0, (k+1, ...)."""
    total = np.zeros((len(x) + 1, *x.shape[1:]), dtype=x.dtype)
    total[:-1] = np.cumsum(x[::-1], axis=0)[::-1]
    return total


def _find_distinct(key: Ints, keys: int) -> tuple[Ints, Ints]:
    """Return the place of one entry of each key, by key, and the number of each entry's key.

    Keys are whole numbers below `keys`.
    """
    if keys > 4 * len(key) + 10_000:
        _, at, to = np.unique(key, return_index=True, return_inverse=True)
        return at, to
    place = np.full(keys, -1)
    place[key] = np.arange(len(key))
    present = place >= 0
    return place[present], (np.cumsum(present) - 1)[key]
