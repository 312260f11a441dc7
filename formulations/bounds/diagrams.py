"""Decision diagrams of the rows that concern few groups, such as the quota of a tenant.

Such rows tie groups together in blocks. In the diagram of a block a node is what the groups decided
so far use of its rows, and an arc decides the next group. A path from the root to the end is a
choice of the block that keeps the rows (Bergman, Cire, van Hoeve and Hooker 2016, "Decision
Diagrams for Optimization"). A sum that can no longer break its row is not counted any further, so
that paths meet. Those of all blocks are built and searched together, layer by layer; a group
without such a row is a block of its own.

Most choices of a block are in no good plan. At prices p for all rows a choice of a block can have
at most the value

    sum_{j of the block} max_c (v_c - a_c'p) + sum_{its rows r} p_r b_r

and choices that lose too much against it (`Nearness`) are not in the diagram, nor are those that
did not fit. The largest value of what was left out is known, so that bounds stay bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from formulations.bounds.knapsacks import unit_of
from formulations.bounds.lagrangian import group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import begins_run, ragged

NARROW = 0.34  # a row that concerns more than this share of the groups is not kept ...
WIDEST = 600  # ... nor one of more groups, because a diagram has a layer for each
SLOTS = 3  # sums that one block counts at most
STATES = 300  # most nodes of a block in one layer
KEYS = 2**50  # sums of a block that have more values together are not tried
ARCS = 400_000  # larger diagrams are not built
NO_LIMIT = 2**40
MARGIN = 1e-11  # relative: more than the rounding errors of the value of a choice
LARGEST = 1e300  # more than any loss
SAFE = -1  # what stands for a sum that can no longer break its row


@dataclass(frozen=True)
class Sum:
    """Rows with the same coefficients: low <= sum of sizes <= high, in whole units.

    `columns` (k,) are the columns with a size `size` (k,), `groups` their groups. A size of 1 is
    `unit` in the rows. `slot` is the place of the sum among those of its block.
    """

    rows: Ints
    columns: Ints
    size: Ints
    groups: Ints
    unit: float
    low: int
    high: int
    slot: int = 0


@dataclass(frozen=True)
class Nearness:
    """Which choices of a block are in its diagram: those that lose little at some prices.

    Attributes
    ----------
    prices : (m,)
        Price of every model row.
    group, row : (J,), (R,)
        What a known plan loses in each group against the best column there, and the price of what
        it leaves of each coupling row.
    more : float
        A choice may lose so much more than the known plan does in the block ...
    most : float
        ... but not more than this.
    """

    prices: Floats
    group: Floats
    row: Floats
    more: float
    most: float

    @staticmethod
    def everything(c: Choices) -> Nearness:
        """Return that of all choices."""
        return Nearness(np.zeros(c.model.m), np.zeros(c.J), np.zeros(c.R), np.inf, np.inf)


@dataclass(frozen=True)
class Layer:
    """The decisions on one group of every block that has so many groups.

    Attributes
    ----------
    nodes, live : int
        Number of nodes; the first `live` of them have a group to decide.
    origin, to, sort : (a,)
        The node that each arc leaves, ascending, its node in the next layer, and the sort of
        column that the group takes.
    begin, open : (N,)
        First arc of each node that has arcs, and which nodes these are.
    """

    nodes: int
    live: int
    origin: Ints
    to: Ints
    sort: Ints
    begin: Ints
    open: Ints

    @staticmethod
    def of(nodes: int, live: int, origin: Ints, to: Ints, sort: Ints) -> Layer:
        """Return a layer with these arcs."""
        begin = np.flatnonzero(begins_run(origin))
        return Layer(nodes, live, origin, to, sort, begin, origin[begin])

    def largest(self, reached: Floats) -> Floats:
        """Return the largest number of the arcs (a,) of each node, 0 without arcs, (nodes,)."""
        best = np.zeros(self.nodes)
        best[self.open] = np.maximum.reduceat(reached, self.begin)
        return best


@dataclass(frozen=True)
class Sorts:
    """Columns of a group that use the same of all kept rows are one sort.

    Attributes
    ----------
    column : (e,)
        Columns by group and sort; -1 stands for nothing, where a group may take nothing.
    first, width : (s,)
        First place of each sort in `column`, and how many there are.
    owner, size : (s,), (s, K)
        Group of each sort, and its size in each slot.
    start : (J+1,)
        Group j has the sorts start[j] .. start[j+1].
    """

    column: Ints
    first: Ints
    width: Ints
    owner: Ints
    size: Ints
    start: Ints

    @staticmethod
    def of(c: Choices, sums: list[Sum], columns: Ints, nothing: Ints) -> Sorts:
        """Return the sorts of some columns (k,), and of nothing in some groups (i,)."""
        owner = np.append(c.group[columns], nothing)
        column = np.append(columns, np.full(len(nothing), -1))
        slots = 1 + max(one.slot for one in sums)
        sizes = np.zeros((c.n + 1, slots), dtype=np.int64)
        for one in sums:
            sizes[one.columns, one.slot] = one.size
        size = sizes[column]
        order = np.lexsort((*size.T, owner))
        owner, size = owner[order], size[order]
        new = begins_run(owner, *size.T)
        first = np.flatnonzero(new)
        width = np.diff(np.append(first, len(owner)))
        start = np.searchsorted(owner[new], np.arange(c.J + 1))
        return Sorts(column[order], first, width, owner[new], size[new], start)

    def spread(self, x: Floats) -> Floats:
        """Return the number of its sort (s,) for each entry, (e,)."""
        return np.repeat(x, self.width)


@dataclass(frozen=True)
class Diagrams:
    """The diagrams of a model.

    Attributes
    ----------
    kept : (R,)
        True for rows that every path keeps.
    block : (J,)
        Block of each group; blocks with more groups come first.
    layers : tuple of Layer
        Node b of the first layer is the root of block b.
    ends : int
        Number of nodes after the last layer.
    has_path : (Q,)
        False for a block without a path.
    left_out : (Q,)
        A choice of each block that is no path has at most this value at the prices of `Nearness`,
        those of kept rows being 0, or it loses more than `most`.
    """

    kept: Bools
    block: Ints
    sorts: Sorts
    layers: tuple[Layer, ...]
    ends: int
    has_path: Bools
    left_out: Floats

    @staticmethod
    def of(c: Choices, near: Nearness | None = None) -> Diagrams | None:
        """Build the diagrams of near choices, or of all, None if no row is kept.

        Every mandatory group has a column. Where a layer of a block has too many nodes, only those
        that can have the largest values are kept. None is also returned if all diagrams together
        are too large.
        """
        sums, label = _select(c, _find_sums(c))
        if not sums:
            return None
        return _Build(c, sums, label, near or Nearness.everything(c)).run()

    def gains(self, reduced: Floats) -> tuple[Floats, Floats]:
        """Return the values of the entries (e,) and sorts (s,) from those of columns (n,)."""
        entry = np.append(reduced, 0.0)[self.sorts.column]
        return entry, np.maximum.reduceat(entry, self.sorts.first)

    def longest(self, gain: Floats) -> list[Floats]:
        """Return the largest gain of a path from each node, layer by layer; `gain` is (s,)."""
        best = [np.zeros(self.ends)]
        for layer in reversed(self.layers):
            best.append(layer.largest(gain[layer.sort] + best[-1][layer.to]))
        return best[::-1]


class _Build:
    """The building of diagrams, layer by layer."""

    def __init__(self, c: Choices, sums: list[Sum], label: Ints, near: Nearness) -> None:
        self.kept: Bools = np.zeros(c.R, dtype=bool)
        for one in sums:
            self.kept[one.rows] = True
        _, block = np.unique(label, return_inverse=True)
        count = np.bincount(block)
        rank = np.empty(len(count), dtype=np.int64)
        rank[np.argsort(-count, kind="stable")] = np.arange(len(count))
        self.block = rank[block]
        self.count = np.sort(count)[::-1]
        self.first = np.cumsum(self.count) - self.count
        shape = len(count), 1 + max(one.slot for one in sums)
        self.low, self.high = np.full(shape, -NO_LIMIT), np.full(shape, NO_LIMIT)
        # prices of what is left of each sum, and of what is missing
        self.up, self.down = np.zeros(shape), np.zeros(shape)
        p = project_prices(c, near.prices)
        reduced = c.value - c.matrix @ p
        best = group_max(c, reduced, 0.0)
        best = np.where(c.mandatory, best, np.maximum(best, 0.0))
        limit = near.more + np.bincount(self.block, near.group, shape[0])
        top = np.bincount(self.block, best, shape[0])
        edge = np.where(p > 0, c.high, np.where(p < 0, c.low, 0.0))
        for one in sums:
            at = self.block[one.groups[0]], one.slot
            self.low[at], self.high[at] = one.low, one.high
            self.up[at] = one.unit * np.maximum(p[one.rows], 0.0).sum()
            self.down[at] = one.unit * np.minimum(p[one.rows], 0.0).sum()
            limit[at[0]] += near.row[one.rows].sum()
            top[at[0]] += p[one.rows] @ edge[one.rows]
        self.margin = MARGIN * (1.0 + np.abs(best).sum() + np.abs(p) @ np.abs(edge))
        lowest = top - np.minimum(limit, near.most)
        self.left_out = np.where(limit < near.most, lowest + self.margin, -np.inf)
        self.floor = np.maximum(lowest - self.margin, -LARGEST)  # finite: no path has -inf
        most = (top - self.floor)[self.block]
        columns = np.flatnonzero(best[c.group] - reduced <= most[c.group])
        nothing = np.flatnonzero(~c.mandatory & (best <= most))
        self.sorts = Sorts.of(c, sums, columns, nothing)
        value = np.append(c.value - c.matrix @ np.where(self.kept, 0.0, p), 0.0)
        self.gain = np.maximum.reduceat(value[self.sorts.column], self.sorts.first)
        begin = self.sorts.start[:-1]
        largest = np.maximum.reduceat(self.sorts.size, begin)
        least = np.minimum.reduceat(self.sorts.size, begin)
        # settled groups come first, then large ones, because small ones fill what is left
        price = np.maximum(self.up - self.down, 1e-9)[self.block]
        size = ((largest - least) * price).sum(axis=1)
        size[np.diff(self.sorts.start) == 1] = np.inf
        self.groups = np.lexsort((-size, self.block))
        # what the groups from each place on can add, over all blocks
        self.most = self._from_end(largest)
        self.least = self._from_end(least)
        self.best = self._from_end(best)
        # the number of a node is that of its block, and then its sums in mixed radix
        radix = np.where(self.high < NO_LIMIT, self.high, np.maximum(self.low, 0)) + 2
        stride = np.cumprod(np.hstack([np.ones((shape[0], 1), dtype=np.int64), radix]), axis=1)
        self.stride, self.base = stride[:, :-1], np.cumsum(stride[:, -1]) - stride[:, -1]
        self.keys = int(stride[:, -1].sum())

    def _from_end(self, x: Any) -> Any:
        """Return the sums of x (J, ...) from each place in the order of groups to the end."""
        total = np.zeros((len(x) + 1, *x.shape[1:]), dtype=x.dtype)
        total[:-1] = np.cumsum(x[self.groups][::-1], axis=0)[::-1]
        return total

    def _left(self, total: Any, t: int, blocks: int) -> Any:
        """Return what the groups from number t on of the first blocks can add, (blocks, ...)."""
        first = self.first[:blocks]
        return total[first + t] - total[first + self.count[:blocks]]

    def run(self) -> Diagrams | None:
        """Build all layers, and drop what is on no path."""
        block = np.arange(len(self.count))
        use = np.zeros(self.low.shape, dtype=np.int64)
        use = self._settle(use, block, self._left(self.most, 0, len(block)))
        longest = np.zeros(len(block))
        layers, reached, arcs = [], [longest], 0
        for t in range(int(self.count[0])):
            blocks = int(np.searchsorted(-self.count, -t))  # with more than t groups
            live = int(np.searchsorted(block, blocks))
            group = self.groups[self.first[block[:live]] + t]
            origin, sort = ragged(self.sorts.start[group], self.sorts.start[group + 1])
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
                self.base[own] + ((used + 1) * self.stride[own]).sum(axis=1), self.keys
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
            layers.append(Layer.of(len(reached[-1]), live, origin, to, sort))
            reached.append(longest)
            arcs += len(to)
            if arcs > ARCS:
                return None
        return self._drop_dead_ends(layers, reached)

    def _drop(self, block: Ints, bound: Floats) -> Ints:
        """Return the nodes with the lowest bounds in blocks with too many nodes."""
        count = np.bincount(block, minlength=len(self.count))
        dropped = [np.zeros(0, dtype=np.int64)]
        for b in np.flatnonzero(count > STATES).tolist():
            own = np.flatnonzero(block == b)
            own = own[np.argpartition(-bound[own], STATES)[STATES:]]
            highest = float(bound[own].max())
            self.floor[b] = max(self.floor[b], highest - self.margin)
            self.left_out[b] = max(self.left_out[b], highest + self.margin)
            dropped.append(own)
        return np.concatenate(dropped)

    def _settle(self, use: Ints, block: Ints, left: Ints) -> Ints:
        """Mark the sums that can no longer break their rows, whatever the open groups take."""
        safe = (use >= self.low[block]) & (use + left <= self.high[block])
        return np.where(safe, SAFE, use)

    def _drop_dead_ends(self, layers: list[Layer], reached: list[Floats]) -> Diagrams:
        """Return the diagrams without the nodes and arcs that are on no path.

        `reached` has the value of the longest path to each node, by layer.
        """
        block = [np.arange(len(self.count))]
        for layer, lengths in zip(layers, reached[1:], strict=True):
            own = np.zeros(len(lengths), dtype=np.int64)
            own[layer.to] = block[-1][layer.origin]
            block.append(own)
        arcs = []
        after = np.zeros(len(reached[-1]))
        for layer, lengths, own in zip(layers[::-1], reached[-2::-1], block[-2::-1], strict=True):
            length = self.gain[layer.sort] + after[layer.to]
            on = np.flatnonzero(lengths[layer.origin] + length >= self.floor[own[layer.origin]])
            arcs.append(on)
            after = np.where(np.arange(layer.nodes) < layer.live, -np.inf, 0.0)
            np.maximum.at(after, layer.origin[on], length[on])
        has_path = after > -np.inf
        number, nodes, live = np.arange(len(after)), len(after), layers[0].live
        out = []
        for old, on, own in zip(layers, arcs[::-1], block[1:], strict=True):
            begun, ahead, sort = number[old.origin[on]], old.to[on], old.sort[on]
            alive = np.zeros(len(own), dtype=bool)
            alive[ahead] = True
            number = np.cumsum(alive) - 1
            out.append(Layer.of(nodes, live, begun, number[ahead], sort))
            nodes = int(np.count_nonzero(alive))
            more = np.searchsorted(-self.count, -len(out))  # blocks with more groups
            live = int(np.count_nonzero(alive & (own < more)))
        return Diagrams(
            self.kept, self.block, self.sorts, tuple(out), nodes, has_path, self.left_out
        )


def find_priced(c: Choices, prices: Floats) -> tuple[Bools, Bools]:
    """Return the rows (R,) that diagrams may keep and that have a price, and their groups (J,)."""
    a, p = c.matrix.transpose(), project_prices(c, prices)
    rows, groups = np.zeros(c.R, dtype=bool), np.zeros(c.J, dtype=bool)
    for r in np.flatnonzero(p).tolist():
        own = c.group[a.entries_of(r)[0]]
        if 1 < np.count_nonzero(begins_run(own)) <= min(NARROW * c.J, WIDEST):
            rows[r], groups[own] = True, True
    return rows, groups


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


def _find_sums(c: Choices) -> list[Sum]:
    """List the sums of rows of few groups that can break, those of few units first."""
    a = c.matrix.transpose()
    mark = np.random.default_rng(0).random(c.n)
    _, alike = np.unique(a @ mark, return_inverse=True)
    order = np.argsort(alike, kind="stable")
    found = []
    for marked in np.split(order, np.flatnonzero(np.diff(alike[order])) + 1):
        columns, coef = a.entries_of(marked[0])
        # equal rows have equal marks, and different rows almost never
        same = (all(map(np.array_equal, a.entries_of(r), (columns, coef))) for r in marked)
        rows = marked[np.fromiter(same, dtype=bool)]
        most = np.zeros(c.J)
        np.maximum.at(most, c.group[columns], coef)
        low, high = c.low[rows].max(), c.high[rows].min()
        groups = np.flatnonzero(most)
        if not 1 < len(groups) <= min(NARROW * c.J, WIDEST) or (low <= 0 and high >= most.sum()):
            continue
        if unit := unit_of(coef):
            # bounds carry the model's tolerance of 1e-9, more than the rounding errors of sums
            low, high = np.ceil(low / unit - 1e-6), np.floor(high / unit + 1e-6)
            size = np.rint(coef / unit).astype(np.int64)
            least, largest = int(max(low, -NO_LIMIT)), int(min(high, NO_LIMIT))
            found.append(Sum(rows, columns, size, groups, unit, least, largest))
    return sorted(found, key=_count_units)


def _count_units(one: Sum) -> int:
    return one.high if one.high < NO_LIMIT else one.low


def _select(c: Choices, sums: list[Sum]) -> tuple[list[Sum], Ints]:
    """Select sums in order, as long as no block has more than SLOTS of them or too many sums.

    Also return a label of the block of each group, (J,): groups that a sum connects share it.
    """
    label, keys, slots = np.arange(c.J), np.ones(c.J), np.zeros(c.J, dtype=np.int64)
    selected = []
    for one in sums:
        blocks = np.unique(label[one.groups])
        own = (_count_units(one) + 2.0) * float(keys[blocks].prod())
        count = 1 + int(slots[blocks].sum())
        if own <= KEYS and count <= SLOTS:
            label[np.isin(label, blocks)] = blocks[0]
            keys[blocks[0]], slots[blocks[0]] = own, count
            selected.append(one)
    used = np.zeros(c.J, dtype=np.int64)
    for number, one in enumerate(selected):
        block = label[one.groups[0]]
        selected[number] = replace(one, slot=int(used[block]))
        used[block] += 1
    return selected, label
