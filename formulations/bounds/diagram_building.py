"""The building of decision diagrams, with the choices that lose little at given prices.

Most choices of a block are in no good plan. At prices p for all rows a choice of a block can have
at most the value

    sum_{j of the block} max_c (v_c - a_c'p) + sum_{its rows r} p_r b_r

A diagram has the choices that lose less than some window against it, except those that did not fit.
The largest value of what was left out is known, so that bounds stay bounds. Only the windows of
blocks without a path are widened, because a large job or a tight budget may lose much in one block
and nothing in all others. Where even that finds no path, the rows of the block are priced instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.bounds.diagrams import Diagrams, Layer, Sorts, count_nodes_after, join_layers
from formulations.bounds.kept_rows import NO_LIMIT, Sum, find_sums, select_sums
from formulations.bounds.lagrangian import group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, ragged, starts

STATES = 300  # most nodes of a block in one layer, in the first window
MORE_STATES = 4  # times as many in every wider window of a block for which they did not suffice
WIDENINGS = 8  # windows of a block after the first one
CLOSE = 0.3  # of the first window: by how much what did not fit may be better than what is there
ARCS = 2_000_000  # larger diagrams are not built; arcs on no path count until they are dropped
MARGIN = 1e-11  # relative: more than the rounding errors of the value of a choice
LARGEST = 1e300  # more than any loss
SAFE = -1  # what stands for a sum that can no longer break its row


@dataclass(frozen=True)
class Nearness:
    """Which choices of a block are in its diagram: those that lose little at some prices.

    Attributes
    ----------
    prices : (m,)
        Price of every model row.
    more : float
        First window: what a choice may lose at the prices. Where no such choice keeps the rows, the
        next one is twice as wide; after 0 all choices within `most` are looked at.
    most : float
        Widest window. Choices that lose more do not matter.
    """

    prices: Floats
    more: float
    most: float

    @staticmethod
    def everything(c: Choices) -> Nearness:
        """Return that of all choices."""
        return Nearness(np.zeros(c.model.m), np.inf, np.inf)


def build_diagrams(c: Choices, near: Nearness | None = None) -> Diagrams | None:
    """Build the diagrams of near choices, or of all, None if no row is kept.

    Every mandatory group has a column. Where a layer of a block has too many nodes, only those
    that can have the largest values are kept. None is also returned if all diagrams together are
    too large.
    """
    sums, label = select_sums(c, find_sums(c))
    if not sums:
        return None
    blocks = _Blocks(c, sums, label, near or Nearness.everything(c))
    return _build_all(blocks)


def _build_all(blocks: _Blocks) -> Diagrams | None:
    """Build the diagrams of all blocks, those without a path again in wider windows."""
    near = blocks.near
    window = np.full(blocks.Q, min(near.more, near.most))
    states = np.full(blocks.Q, STATES)
    missing = np.arange(blocks.Q)
    parts, arcs = [], 0
    for turn in range(1 + WIDENINGS):
        part = _Build(blocks, missing, window, states, ARCS - arcs).run()
        if part is None:
            return None
        # no wider window matters
        is_last = np.isneginf(part.left_out)
        close = min(CLOSE * near.more, LARGEST)
        is_done = is_last | (part.has_path & (part.left_out <= part.longest + close))
        if turn == WIDENINGS:
            is_done |= part.has_path
        parts.append(part.select(is_done))
        arcs += parts[-1].arcs
        again = np.flatnonzero(~is_done)
        missing, top = part.blocks[again], blocks.top[part.blocks[again]]
        states[missing] *= np.where(part.has_dropped[again], MORE_STATES, 1)
        lost = top - np.where(part.has_path, part.longest, part.left_out)[again]
        more = np.where(part.has_dropped[again], close, np.maximum(lost, near.more or np.inf))
        window[missing] = np.minimum(lost + more, near.most)
        if not len(missing):
            break
    return _join(blocks, parts, missing)


def _join(blocks: _Blocks, parts: list[_Part], freed: Ints) -> Diagrams:
    """Put parts together. The groups of the blocks `freed` become blocks without rows."""
    c = blocks.c
    is_freed = np.zeros(blocks.Q, dtype=bool)
    is_freed[freed] = True
    kept = np.zeros(c.R, dtype=bool)
    for row_sum in blocks.sums:
        kept[row_sum.rows] = not is_freed[blocks.block[row_sum.groups[0]]]
    sorts = [part.sorts for part in parts]
    own = np.concatenate([part.blocks for part in parts])
    number = np.full(blocks.Q, -1)
    number[own] = np.arange(len(own))
    block = number[blocks.block]
    alone = np.flatnonzero(is_freed[blocks.block])
    block[alone] = len(own) + np.arange(len(alone))
    free = Sorts.of(c, np.zeros_like(blocks.sizes), c.columns_of(alone), alone[~c.mandatory[alone]])
    first = np.cumsum([0, *(len(sort.first) for sort in sorts)])
    settled = [part.settled + at for part, at in zip(parts, first[:-1], strict=True)]
    settled.append(first[-1] + np.arange(len(alone)))
    ends = [(part.layers, part.ends) for part in parts]
    ends.append(((), len(alone)))
    layers = join_layers(ends, [*map(len, (sort.first for sort in sorts)), len(alone)])
    depth = len(layers)
    return Diagrams(
        kept,
        block,
        Sorts.join([*sorts, free]),
        np.concatenate(settled),
        layers,
        sum(count for own_layers, count in ends if len(own_layers) == depth),
        np.append(np.concatenate([part.has_path for part in parts]), np.ones(len(alone), bool)),
        np.append(np.concatenate([part.left_out for part in parts]), np.full(len(alone), -np.inf)),
    )


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

    def __init__(self, c: Choices, sums: list[Sum], label: Ints, near: Nearness) -> None:
        self.c, self.sums, self.near = c, sums, near
        names, self.block = np.unique(label, return_inverse=True)
        self.Q = len(names)
        slots = 1 + max(row_sum.slot for row_sum in sums)
        self.sizes = np.zeros((c.n + 1, slots), dtype=np.int64)
        shape = self.Q, slots
        self.low, self.high = np.full(shape, -NO_LIMIT), np.full(shape, NO_LIMIT)
        self.up, self.down = np.zeros(shape), np.zeros(shape)
        p = project_prices(c, near.prices)
        self.reduced = c.value - c.matrix @ p
        best = group_max(c, self.reduced, 0.0)
        self.best = np.where(c.mandatory, best, np.maximum(best, 0.0))
        self.top = np.bincount(self.block, self.best, self.Q)
        edge = np.where(p > 0, c.high, np.where(p < 0, c.low, 0.0))
        kept = np.zeros(c.R, dtype=bool)
        for row_sum in sums:
            at = self.block[row_sum.groups[0]], row_sum.slot
            self.low[at], self.high[at] = row_sum.low, row_sum.high
            self.up[at] = row_sum.unit * np.maximum(p[row_sum.rows], 0.0).sum()
            self.down[at] = row_sum.unit * np.minimum(p[row_sum.rows], 0.0).sum()
            self.top[at[0]] += p[row_sum.rows] @ edge[row_sum.rows]
            self.sizes[row_sum.columns, row_sum.slot] = row_sum.size
            kept[row_sum.rows] = True
        self.value = np.append(c.value - c.matrix @ np.where(kept, 0.0, p), 0.0)
        self.margin = MARGIN * (1.0 + np.abs(self.best).sum() + np.abs(p) @ np.abs(edge))


@dataclass(frozen=True)
class _Part:
    """The diagrams of some blocks, each with a root in the first layer.

    Attributes are those of `Diagrams`; `blocks` (q,) are the numbers of the blocks in `_Blocks`,
    `root` (s,) is the root of each sort, `longest` (q,) the value of the longest path, -inf without
    a path, and `has_dropped` (q,) marks blocks with more nodes than were kept.
    """

    blocks: Ints
    sorts: Sorts
    root: Ints
    settled: Ints
    layers: tuple[Layer, ...]
    ends: int
    longest: Floats
    left_out: Floats
    has_dropped: Bools

    @property
    def has_path(self) -> Bools:
        """Which blocks have a path, (q,)."""
        return self.longest > -np.inf

    @property
    def arcs(self) -> int:
        """Number of arcs."""
        return sum(len(layer.to) for layer in self.layers)

    def select(self, which: Bools) -> _Part:
        """Return the part with some of its blocks, `which` (q,)."""
        if which.all():
            return self
        is_sort, is_node = which[self.root], which
        number, place = np.cumsum(which) - 1, np.cumsum(is_sort) - 1
        nodes, layers = int(which.sum()), []
        after = count_nodes_after(self.layers, self.ends)
        root = number
        for layer, count in zip(self.layers, after, strict=True):
            on = np.flatnonzero(is_node[layer.origin])
            is_node = np.zeros(count, dtype=bool)
            is_node[layer.to[on]] = True
            following = np.cumsum(is_node) - 1
            layers.append(
                Layer.of(
                    nodes, number[layer.origin[on]], following[layer.to[on]], place[layer.sort[on]]
                )
            )
            nodes, number = int(is_node.sum()), following
        return _Part(
            self.blocks[which],
            self.sorts.take(is_sort),
            root[self.root[is_sort]],
            place[self.settled[is_sort[self.settled]]],
            *_without_empty(layers, nodes),
            self.longest[which],
            self.left_out[which],
            self.has_dropped[which],
        )


class _Build:
    """The building of the diagrams of some blocks (q,), layer by layer.

    `window` and `states` (Q,) are those of all blocks; None is built with more than `arcs` arcs.
    """

    def __init__(
        self, all_: _Blocks, blocks: Ints, window: Floats, states: Ints, arcs: int
    ) -> None:
        c, Q = all_.c, len(blocks)
        self.arcs = arcs
        number = np.full(all_.Q, -1)
        number[blocks] = np.arange(Q)
        root = number[all_.block]
        most = (window + 2 * all_.margin)[all_.block]
        is_near = all_.best[c.group] - all_.reduced <= most[c.group]
        idle = ~c.mandatory & (all_.best <= most)
        if Q < all_.Q:
            is_near &= root[c.group] >= 0
            idle &= root >= 0
        sorts = Sorts.of(c, all_.sizes, np.flatnonzero(is_near), np.flatnonzero(idle))
        self.gain = np.maximum.reduceat(all_.value[sorts.column], sorts.first)
        count = np.bincount(sorts.owner, minlength=c.J)
        is_open = count > 1
        # blocks with more open groups come first
        groups = np.bincount(root[is_open], minlength=Q)
        order = np.argsort(-groups, kind="stable")
        rank = np.empty(Q, dtype=np.int64)
        rank[order] = np.arange(Q)
        self.blocks, self.count = blocks[order], groups[order]
        root = np.where(root >= 0, rank[root], -1)
        self.first = np.cumsum(self.count) - self.count
        self.sorts, self.root = sorts, root[sorts.owner]
        self.low, self.high = all_.low[self.blocks], all_.high[self.blocks]
        self.up, self.down = all_.up[self.blocks], all_.down[self.blocks]
        self.states, self.margin = states[self.blocks], all_.margin
        own, top = window[self.blocks], all_.top[self.blocks]
        lowest = top - own
        self.left_out = np.where(own < all_.near.most, lowest + self.margin, -np.inf)
        self.floor = np.maximum(lowest - self.margin, -LARGEST)  # finite: no path has -inf
        self.has_dropped = np.zeros(Q, dtype=bool)
        self.settled = np.flatnonzero(~is_open[sorts.owner])
        at = self.root[self.settled]
        self.use = np.zeros(self.low.shape, dtype=np.int64)
        np.add.at(self.use, at, sorts.size[self.settled])
        self.base = np.bincount(at, self.gain[self.settled], Q).astype(np.float64)
        self.start = starts(sorts.owner, c.J)
        self._order_groups(np.flatnonzero(is_open), root, all_.best)
        # the number of a node is that of its block, and then its sums in mixed radix
        radix = np.where(self.high < NO_LIMIT, self.high, np.maximum(self.low, 0)) + 2
        stride = np.cumprod(np.hstack([np.ones((Q, 1), dtype=np.int64), radix]), axis=1)
        self.stride, self.first_key = stride[:, :-1], np.cumsum(stride[:, -1]) - stride[:, -1]
        self.keys = int(stride[:, -1].sum())

    def _order_groups(self, groups: Ints, root: Ints, best: Floats) -> None:
        """Order open groups by block, large ones first, because small ones fill what is left.

        Also find what the groups from each place on can add, over all blocks.
        """
        root = root[groups]
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

    def run(self) -> _Part | None:
        """Build all layers, and drop what is on no path."""
        Q = len(self.count)
        block, use, longest = np.arange(Q), self.use, self.base
        left = self._left(self.most, 0, Q)
        fits = ((use <= self.high) & (use + left >= self.low)).all(axis=1)
        # settled groups may break a row
        longest = np.where(fits, longest, -np.inf)
        use = np.where((use >= self.low) & (use + left <= self.high), SAFE, use)
        layers, reached, lives, arcs = [], [longest], [], 0
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
            layers.append(Layer.of(len(reached[-1]), origin, to, sort))
            reached.append(longest)
            lives.append(live)
            arcs += len(to)
            if arcs > self.arcs:
                return None
        return self._drop_dead_ends(layers, reached, lives)

    def _drop(self, block: Ints, bound: Floats) -> Ints:
        """Return the nodes with the lowest bounds in blocks with too many nodes."""
        count = np.bincount(block, minlength=len(self.count))
        dropped = [np.zeros(0, dtype=np.int64)]
        for b in np.flatnonzero(count > self.states).tolist():
            own, states = np.flatnonzero(block == b), self.states[b]
            own = own[np.argpartition(-bound[own], states)[states:]]
            highest = float(bound[own].max())
            self.left_out[b] = max(self.left_out[b], highest + self.margin)
            self.has_dropped[b] = True
            dropped.append(own)
        return np.concatenate(dropped)

    def _drop_dead_ends(
        self, layers: list[Layer], reached: list[Floats], lives: list[int]
    ) -> _Part:
        """Return the diagrams without the nodes and arcs that are on no path.

        `reached` has the value of the longest path to each node, by layer, and the first `lives`
        nodes of each layer have a group to decide.
        """
        block = [np.arange(len(self.count))]
        for layer, lengths in zip(layers, reached[1:], strict=True):
            own = np.zeros(len(lengths), dtype=np.int64)
            own[layer.to] = block[-1][layer.origin]
            block.append(own)
        arcs = []
        after = np.zeros(len(reached[-1]))
        for layer, live, lengths, own in zip(
            layers[::-1], lives[::-1], reached[-2::-1], block[-2::-1], strict=True
        ):
            length = self.gain[layer.sort] + after[layer.to]
            on = np.flatnonzero(lengths[layer.origin] + length >= self.floor[own[layer.origin]])
            arcs.append(on)
            after = np.where(np.arange(layer.nodes) < live, -np.inf, 0.0)
            np.maximum.at(after, layer.origin[on], length[on])
        total = reached[0] + after
        longest = np.where(total >= self.floor, total, -np.inf)
        number, nodes = np.arange(len(after)), len(after)
        out = []
        for old, on, own in zip(layers, arcs[::-1], block[1:], strict=True):
            begun, ahead, sort = number[old.origin[on]], old.to[on], old.sort[on]
            alive = np.zeros(len(own), dtype=bool)
            alive[ahead] = True
            number = np.cumsum(alive) - 1
            out.append(Layer.of(nodes, begun, number[ahead], sort))
            nodes = int(np.count_nonzero(alive))
        return _Part(
            self.blocks,
            self.sorts,
            self.root,
            self.settled,
            *_without_empty(out, nodes),
            longest,
            self.left_out,
            self.has_dropped,
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
