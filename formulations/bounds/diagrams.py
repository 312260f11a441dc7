"""Decision diagrams of the rows that concern few groups, such as the quota of a tenant.

Such rows tie groups together in blocks. In the diagram of a block a node is what the groups decided
so far use of its rows, and an arc decides the next group. A path from the root to the end is a
choice of the block that keeps the rows (Bergman, Cire, van Hoeve and Hooker 2016, "Decision
Diagrams for Optimization"). A sum that can no longer break its row is not counted any further, so
that paths meet. Those of all blocks are searched together, layer by layer; a group without such a
row is a block of its own. A group whose columns all use the same of the rows needs no arcs: it is
settled.

Not all choices of a block are in its diagram, but the largest value of the others is known
(formulations/bounds/diagram_building.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, begins_run, ragged


@dataclass(frozen=True)
class Layer:
    """The decisions on one group of every block that has so many groups.

    Attributes
    ----------
    nodes : int
        Number of nodes.
    origin, to, sort : (a,)
        The node that each arc leaves, ascending, its node in the next layer, and the sort of
        column that the group takes.
    begin, open : (N,)
        First arc of each node that has arcs, and which nodes these are.
    """

    nodes: int
    origin: Ints
    to: Ints
    sort: Ints
    begin: Ints
    open: Ints

    @staticmethod
    def of(nodes: int, origin: Ints, to: Ints, sort: Ints) -> Layer:
        """Return a layer with these arcs."""
        begin = np.flatnonzero(begins_run(origin))
        return Layer(nodes, origin, to, sort, begin, origin[begin])

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
        Columns by sort; -1 stands for nothing, where a group may take nothing.
    first, width : (s,)
        First place of each sort in `column`, and how many there are.
    owner, size : (s,), (s, K)
        Group of each sort, and its size in each slot.
    """

    column: Ints
    first: Ints
    width: Ints
    owner: Ints
    size: Ints

    @staticmethod
    def of(c: Choices, sizes: Ints, columns: Ints, nothing: Ints) -> Sorts:
        """Return the sorts of some columns (k,), and of nothing in some groups (i,).

        `sizes` (n+1, K) are those of all columns, and of nothing.
        """
        owner = np.append(c.group[columns], nothing)
        column = np.append(columns, np.full(len(nothing), -1))
        size = sizes[column]
        order = np.lexsort((*size.T, owner))
        owner, size = owner[order], size[order]
        new = begins_run(owner, *size.T)
        first = np.flatnonzero(new)
        width = np.diff(np.append(first, len(owner)))
        return Sorts(column[order], first, width, owner[new], size[new])

    @staticmethod
    def join(parts: list[Sorts]) -> Sorts:
        """Return the sorts of several parts, one after the other."""
        width = np.concatenate([part.width for part in parts])
        return Sorts(
            np.concatenate([part.column for part in parts]),
            np.cumsum(width) - width,
            width,
            np.concatenate([part.owner for part in parts]),
            np.concatenate([part.size for part in parts]),
        )

    def entries_of(self, sorts: Ints) -> tuple[Ints, Ints]:
        """Return (i, place in `column`) for all columns of the sorts (i,)."""
        return ragged(self.first[sorts], self.first[sorts] + self.width[sorts])

    def take(self, which: Bools) -> Sorts:
        """Return some of the sorts, `which` (s,)."""
        width = self.width[which]
        column = self.column[np.repeat(which, self.width)]
        first = np.cumsum(width) - width
        return Sorts(column, first, width, self.owner[which], self.size[which])

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
        Block of each group.
    settled : (J',)
        The sort that every path takes, of each group that has only one.
    layers : tuple of Layer
        Node b of the first layer is the root of block b. They have the groups that are not settled.
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
    settled: Ints
    layers: tuple[Layer, ...]
    ends: int
    has_path: Bools
    left_out: Floats

    @property
    def Q(self) -> int:
        """Number of blocks."""
        return len(self.has_path)

    def gains(self, reduced: Floats) -> tuple[Floats, Floats]:
        """Return the values of the entries (e,) and sorts (s,) from those of columns (n,)."""
        entry = np.append(reduced, 0.0)[self.sorts.column]
        return entry, np.maximum.reduceat(entry, self.sorts.first)

    def longest(self, gain: Floats) -> list[Floats]:
        """Return the largest gain of a path from each node, layer by layer; `gain` is (s,).

        What settled groups gain is not in it.
        """
        best = [np.zeros(self.ends)]
        for layer in reversed(self.layers):
            best.append(layer.largest(gain[layer.sort] + best[-1][layer.to]))
        return best[::-1]

    def block_values(self, gain: Floats, best: list[Floats]) -> Floats:
        """Return the value of the longest path of each block, (Q,), settled groups included."""
        block = self.block[self.sorts.owner[self.settled]]
        return np.asarray(best[0] + np.bincount(block, gain[self.settled], self.Q))


def count_nodes_after(layers: Sequence[Layer], ends: int) -> list[int]:
    """Return the number of nodes that follow each layer; `ends` follow the last one."""
    return [*(layer.nodes for layer in layers), ends][1:]


def join_layers(parts: list[tuple[tuple[Layer, ...], int]], sorts: list[int]) -> tuple[Layer, ...]:
    """Put the layers of several parts, with their numbers of ends, above each other.

    `sorts` is the number of sorts of each part.
    """
    first = np.cumsum(sorts) - sorts
    nodes = [[*(layer.nodes for layer in layers), ends] for layers, ends in parts]
    count = [tuple(level) for level in zip_longest(*nodes, fillvalue=0)]
    begin = [np.cumsum(level) - level for level in count]
    joined = []
    for t in range(len(count) - 1):
        own = [(i, layers[t]) for i, (layers, _) in enumerate(parts) if t < len(layers)]
        joined.append(
            Layer.of(
                sum(count[t]),
                _join(layer.origin + begin[t][i] for i, layer in own),
                _join(layer.to + begin[t + 1][i] for i, layer in own),
                _join(layer.sort + first[i] for i, layer in own),
            )
        )
    return tuple(joined)


def _join(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
