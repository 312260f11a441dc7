"""Decision diagrams of the rows that concern few groups, such as the quota of a tenant.

Such rows tie groups together in blocks. In the diagram of a block a node is what the groups decided
so far use of its rows, and an arc decides the next group. A path from the root to the end is a
choice of the block that keeps the rows (Bergman, Cire, van Hoeve and Hooker 2016, "Decision
Diagrams for Optimization"). A sum that can no longer break its row is not counted any further, so
that paths meet. The diagrams do not depend on prices or values. Those of all blocks are built and
searched together, layer by layer; a group without such a row is a block of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.knapsacks import unit_of
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import begins_run, ragged

NARROW = 0.34  # a row that concerns more than this share of the groups is not kept
SLOTS = 3  # sums that one block counts at most
STATES = 300  # most nodes of a block in one layer
LIKELY = 1e6  # sums that could give more nodes are not tried
ARCS = 400_000  # larger diagrams are not built
NO_LIMIT = 2**40
SAFE = -1  # what stands for a sum that can no longer break its row


@dataclass(frozen=True)
class Sum:
    """Rows with the same coefficients: low <= sum of sizes <= high, in whole units.

    `columns` (k,) are the columns with a size `size` (k,), `groups` their groups. `slot` is the
    place of the sum among those of its block.
    """

    rows: Ints
    columns: Ints
    size: Ints
    groups: Ints
    low: int
    high: int
    slot: int = 0


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
    def of(c: Choices, sums: list[Sum]) -> Sorts:
        """Return the sorts of all columns."""
        free = np.flatnonzero(~c.mandatory)
        owner = np.append(c.group, free)
        column = np.append(np.arange(c.n), np.full(len(free), -1))
        slots = 1 + max(one.slot for one in sums)
        size = np.zeros((len(owner), slots), dtype=np.int64)
        for one in sums:
            size[one.columns, one.slot] = one.size
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
    has_paths : bool
        False if a block has no path, so that no plan exists.
    """

    kept: Bools
    block: Ints
    sorts: Sorts
    layers: tuple[Layer, ...]
    ends: int
    has_paths: bool

    @staticmethod
    def of(c: Choices) -> Diagrams | None:
        """Build the diagrams, None if no row is kept or they are too large.

        Every mandatory group has a column.
        """
        sums, label = _select(c, _find_sums(c))
        while sums:
            build = _Build(c, sums, label)
            found = build.run()
            if not len(build.wide):
                return found
            last = {int(build.block[one.groups[0]]): one for one in sums}
            sums = [one for one in sums if all(one is not last[b] for b in build.wide.tolist())]
        return None

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

    def __init__(self, c: Choices, sums: list[Sum], label: Ints) -> None:
        self.kept: Bools = np.zeros(c.R, dtype=bool)
        for one in sums:
            self.kept[one.rows] = True
        self.sorts = Sorts.of(c, sums)
        _, block = np.unique(label, return_inverse=True)
        count = np.bincount(block)
        rank = np.empty(len(count), dtype=np.int64)
        rank[np.argsort(-count, kind="stable")] = np.arange(len(count))
        self.block = rank[block]
        self.count = np.sort(count)[::-1]
        self.first = np.cumsum(self.count) - self.count
        most = np.maximum.reduceat(self.sorts.size, self.sorts.start[:-1])
        # large groups come first, because small ones fill what is left
        self.groups = np.lexsort((-most.sum(axis=1), self.block))
        shape = len(self.count), self.sorts.size.shape[1]
        self.low, self.high = np.full(shape, -NO_LIMIT), np.full(shape, NO_LIMIT)
        for one in sums:
            at = self.block[one.groups[0]], one.slot
            self.low[at], self.high[at] = one.low, one.high
        # what the groups from each place on can add, over all blocks
        rest = np.cumsum(most[self.groups][::-1], axis=0)[::-1]
        self.rest = np.vstack([rest, np.zeros((1, shape[1]), dtype=np.int64)])
        # the number of a node is that of its block, and then its sums in mixed radix
        radix = np.where(self.high < NO_LIMIT, self.high, np.maximum(self.low, 0)) + 2
        stride = np.cumprod(np.hstack([np.ones((shape[0], 1), dtype=np.int64), radix]), axis=1)
        self.stride, self.base = stride[:, :-1], np.cumsum(stride[:, -1]) - stride[:, -1]
        self.keys = int(stride[:, -1].sum())
        self.wide = np.zeros(0, dtype=np.int64)

    def run(self) -> Diagrams | None:
        """Build all layers, and drop the nodes from which no path reaches the end.

        It ends early where blocks `wide` have more than STATES nodes.
        """
        block = np.arange(len(self.count))
        use = np.zeros(self.low.shape, dtype=np.int64)
        use = self._settle(use, block, self._left(block, 0))
        layers, arcs = [], 0
        for t in range(int(self.count[0])):
            live = int(np.searchsorted(block, np.searchsorted(-self.count, -t)))
            group = self.groups[self.first[block[:live]] + t]
            origin, sort = ragged(self.sorts.start[group], self.sorts.start[group + 1])
            own, used = block[origin], use[origin]
            left = self._left(own, t + 1)
            free = used == SAFE
            used = np.where(free, SAFE, used + self.sorts.size[sort])
            fits = free | ((used <= self.high[own]) & (used + left >= self.low[own]))
            stays = np.flatnonzero(fits.all(axis=1))
            own, used = own[stays], self._settle(used[stays], own[stays], left[stays])
            at, to = _find_distinct(
                self.base[own] + ((used + 1) * self.stride[own]).sum(axis=1), self.keys
            )
            layers.append(Layer.of(len(block), live, origin[stays], to, sort[stays]))
            block, use = own[at], used[at]
            arcs += len(to)
            self.wide = np.flatnonzero(np.bincount(block) > STATES)
            if len(self.wide) or arcs > ARCS:
                return None
        return self._drop_dead_ends(layers, len(block))

    def _left(self, block: Ints, t: int) -> Ints:
        """Return what the groups from number t on of blocks (k,) can add to each sum, (k, K)."""
        first = self.first[block]
        return np.asarray(self.rest[first + t] - self.rest[first + self.count[block]])

    def _settle(self, use: Ints, block: Ints, left: Ints) -> Ints:
        """Mark the sums that can no longer break their rows, whatever the open groups take."""
        safe = (use >= self.low[block]) & (use + left <= self.high[block])
        return np.where(safe, SAFE, use)

    def _drop_dead_ends(self, layers: list[Layer], ends: int) -> Diagrams:
        """Return the diagrams without these nodes."""
        alive = np.ones(ends, dtype=bool)
        out = []
        for old in reversed(layers):
            stays = np.flatnonzero(alive[old.to])
            new = Layer.of(old.nodes, old.live, old.origin[stays], old.to[stays], old.sort[stays])
            alive = np.arange(new.nodes) >= new.live
            alive[new.open] = True
            out.append(new)
        has_paths = bool(alive.all())
        return Diagrams(self.kept, self.block, self.sorts, tuple(out[::-1]), ends, has_paths)


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
        if not 1 < len(groups) <= NARROW * c.J or (low <= 0 and high >= most.sum()):
            continue
        if unit := unit_of(coef):
            # bounds carry the model's tolerance of 1e-9, more than the rounding errors of sums
            low, high = np.ceil(low / unit - 1e-6), np.floor(high / unit + 1e-6)
            size = np.rint(coef / unit).astype(np.int64)
            least, largest = int(max(low, -NO_LIMIT)), int(min(high, NO_LIMIT))
            found.append(Sum(rows, columns, size, groups, least, largest))
    return sorted(found, key=_count_units)


def _count_units(one: Sum) -> int:
    return one.high if one.high < NO_LIMIT else one.low


def _select(c: Choices, sums: list[Sum]) -> tuple[list[Sum], Ints]:
    """Select sums in order, as long as no block has more than SLOTS of them or too many sums.

    Also return a label of the block of each group, (J,): groups that a sum connects share it.
    """
    label, nodes, slots = np.arange(c.J), np.ones(c.J), np.zeros(c.J, dtype=np.int64)
    selected = []
    for one in sums:
        blocks = np.unique(label[one.groups])
        sizes = np.unique(np.column_stack([c.group[one.columns], one.size]), axis=0)[:, 0]
        kinds = np.log2(1.0 + np.bincount(sizes)).sum()  # so many choices, as a power of 2
        own = min(_count_units(one) + 2.0, 2.0 ** min(kinds, 60.0)) * float(nodes[blocks].prod())
        count = 1 + int(slots[blocks].sum())
        if own <= LIKELY and count <= SLOTS:
            label[np.isin(label, blocks)] = blocks[0]
            nodes[blocks[0]], slots[blocks[0]] = own, count
            selected.append(one)
    used = np.zeros(c.J, dtype=np.int64)
    for number, one in enumerate(selected):
        block = label[one.groups[0]]
        selected[number] = replace(one, slot=int(used[block]))
        used[block] += 1
    return selected, label
