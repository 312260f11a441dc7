"""Free GPUs, CPUs and memory of nodes while jobs are placed on them one by one, with best fit.

A job gets k whole GPUs of one pool, on at most m nodes, or a share of one GPU. It may have to stay
in one domain of a level of the topology, such as one rack, and it may consist of pods of several
GPUs: a node then counts only as far as whole pods fit. The free GPUs of a node are its hole.

One node     best fit: the smallest hole that holds the job, so that large holes stay large. Of
             equal holes it takes the node with the fewest free CPUs.
Several      the largest holes, and best fit for the GPUs that are still missing. This succeeds
             whenever the m largest holes are enough.
Exactly m    the nodes sorted by the size of their hole; of all sequences of m neighbours in this
             order that are enough together, the one with the smallest holes.

The code is plain Python and has no arrays, because a plan needs a few thousand small steps that
depend on each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

TOLERANCE = 1e-9  # rounding of sums of GPUs, CPUs or GB
MANY_CPUS = 1e6  # best fit makes no difference between nodes with more free CPUs than this

Place = tuple[int, int, int]
"""A node, its GPUs that a job holds, and the number of the GPU of which it has a share (-1)."""


class Wish(IntEnum):
    """On which nodes a job wants its GPUs."""

    PACKED = 0  # on at most `most_nodes` nodes
    SPREAD = 1  # on as many nodes as possible
    SAME = 2  # all nodes in one domain of the level
    PREFER = 3  # in one domain of the level if possible


class Need(NamedTuple):
    """What one job needs.

    Attributes
    ----------
    pool, gpus : int
        The pool, and the number of GPUs.
    most_nodes : int
        Largest number of nodes on which a packed job may be.
    least_nodes : int
        Smallest number of nodes; `most_nodes` then holds for every wish. 0 = no rule.
    leaves : tuple of (int, int, int)
        Nodes, the GPUs of each that all jobs which hold some at a moment together leave, and the
        number of that moment.
    pod : int
        On each node it has a multiple of so many GPUs.
    avoids : frozenset of int
        Nodes on which it may not be.
    cpus, memory_gb : float
        CPUs and memory of the node for each GPU.
    share : float
        Share of its one GPU, 1 = whole GPUs.
    wish : Wish
        On which nodes it wants its GPUs.
    level : int
        The level of the wish, -1 = none.
    """

    pool: int
    gpus: int
    most_nodes: int
    cpus: float = 0.0
    memory_gb: float = 0.0
    share: float = 1.0
    wish: Wish = Wish.PACKED
    level: int = -1
    least_nodes: int = 0
    leaves: tuple[tuple[int, int, int], ...] = ()
    pod: int = 1
    avoids: frozenset[int] = frozenset()

    @property
    def shared_nodes(self) -> frozenset[int]:
        """The nodes of `leaves`, and those that it avoids."""
        return self.avoids.union(n for n, _, _ in self.leaves)

    @property
    def hole(self) -> int:
        """Size of the hole that the job looks for.

        It is all GPUs of the job, or an even part of its pods, rounded up, if it has `least_nodes`.
        """
        return -(-self.gpus // (self.pod * max(1, self.least_nodes))) * self.pod

    def whole(self, gpus: int) -> int:
        """Return how many of these GPUs hold whole pods."""
        return gpus - gpus % self.pod


class Holes:
    """Free GPUs, CPUs and memory of N nodes.

    Parameters
    ----------
    pool : (N,) sequence of int
        Pool of each node, -1 = nothing new may be placed there.
    gpus : (N,) sequence of int
        GPUs of each node.
    cpus, memory_gb : (N,) sequence of float
        CPUs and memory of each node, inf = no limit.
    domains : sequence of (N,) sequences of int
        For each level of the topology, the domain of each node.

    Examples
    --------
    >>> holes = Holes([0, 0], [8, 4], [math.inf] * 2, [math.inf] * 2)
    >>> holes.find(Need(pool=0, gpus=3, most_nodes=1))
    ((1, 3, -1),)
    """

    def __init__(
        self,
        pool: Sequence[int],
        gpus: Sequence[int],
        cpus: Sequence[float],
        memory_gb: Sequence[float],
        domains: Sequence[Sequence[int]] = (),
    ) -> None:
        self.pool = list(pool)
        self.size = list(gpus)
        self.free = [k if p >= 0 else 0 for k, p in zip(gpus, pool, strict=True)]
        self.cpus = list(cpus)
        self.memory_gb = list(memory_gb)
        self.domains = domains
        self.largest_size = max(self.size, default=0)
        self.late: Counter[tuple[int, int]] = Counter()  # GPUs of jobs by node and moment
        self._limits_cpus = any(map(math.isfinite, self.cpus))
        # free share of each GPU that is given out in shares, by node and number
        self.shares: dict[int, dict[int, float]] = {}
        self._split: dict[int, list[tuple[float, int, int]]] = {}  # the same by pool, ascending

    @cached_property
    def _open(self) -> dict[int, list[tuple[int, int, int]]]:
        """The holes of the open nodes by pool, as `_hole` has them, ascending.

        They are sorted at the first search, after all jobs that stay have taken their GPUs.
        """
        out: dict[int, list[tuple[int, int, int]]] = {}
        for n, p in enumerate(self.pool):
            if p >= 0:
                out.setdefault(p, []).append(self._hole(n))
        for holes in out.values():
            holes.sort()
        return out

    def _hole(self, n: int) -> tuple[int, int, int]:
        """Return what orders nodes for best fit: free GPUs, then free CPUs, then the number."""
        cpus = int(1000 * min(self.cpus[n], MANY_CPUS)) if self._limits_cpus else 0
        return self.free[n], cpus, n

    def _nodes_with(self, pool: int, free: int) -> list[int]:
        """Return the nodes of a pool with so many free GPUs, those with the fewest CPUs first."""
        holes = self._open.get(pool, [])
        begin, end = (bisect_left(holes, (k,)) for k in (free, free + 1))
        return [n for _, _, n in holes[begin:end]]

    def nodes_of(self, pool: int) -> Iterator[int]:
        """Yield the nodes of a pool, those with most free GPUs first."""
        for free in range(self.largest_size, -1, -1):
            yield from self._nodes_with(pool, free)

    def split_gpus(self, pool: int) -> Iterator[tuple[int, int]]:
        """Yield (node, number) of the GPUs that are given out in shares, the emptiest first."""
        for _, n, g in reversed(self._split.get(pool, [])):
            yield n, g

    def total(self, pool: int) -> int:
        """Return the free whole GPUs of a pool."""
        return sum(free for free, _, _ in self._open.get(pool, []))

    def largest(self, pool: int) -> int:
        """Return the most whole GPUs that are free on one node of a pool."""
        return max((free for free, _, _ in self._open.get(pool, [])), default=0)

    def usable(self, node: int, need: Need) -> int:
        """Return how many whole GPUs of a node the job could have now."""
        k: float = self.free[node]
        if need.cpus > 0:
            k = min(k, (self.cpus[node] + TOLERANCE) / need.cpus)
        if need.memory_gb > 0:
            k = min(k, (self.memory_gb[node] + TOLERANCE) / need.memory_gb)
        return max(0, int(k))

    def find(self, need: Need, without: Collection[int] = ()) -> tuple[Place, ...] | None:
        """Return where the job can be, None = nowhere; nodes `without` are left out."""
        if need.leaves:
            full = (n for n, k, t in need.leaves if self.size[n] - k - self.late[n, t] < need.gpus)
            without = {*without, *full}
        if need.avoids:
            without = need.avoids.union(without)
        if need.share < 1:
            return self._find_share(need, without)
        if need.wish is Wish.SPREAD:
            return self._spread(need, without)
        if need.wish is Wish.PACKED or need.level < 0:
            if need.least_nodes > 1:
                return _split(need, self._largest_first(need, without))
            return self._pack(need, without)
        near = self._find_near(need, without)
        if near is not None or need.wish is Wish.SAME:
            return near
        return self._gather(need, self._largest_first(need, without), len(self.pool))

    def can_take(self, places: Iterable[Place], need: Need) -> bool:
        """Return whether the places are free for the job.

        Places on closed nodes (pool -1) are always free, because only jobs that are there already
        ask for them.
        """
        for n, k, g in places:
            if self.pool[n] < 0:
                continue
            if g >= 0:
                open_ = self.shares.get(n, {}).get(g)
                fits = self.free[n] >= 1 if open_ is None else open_ >= need.share - TOLERANCE
                if not fits or not self._fits_node(n, 1, need):
                    return False
            elif self.usable(n, need) < k:
                return False
        return True

    def suits(self, places: Sequence[Place], need: Need) -> bool:
        """Return whether places that another job has are on few enough nodes, in one domain."""
        nodes = {n for n, _, _ in places}
        if need.wish is Wish.SAME:
            return len({self.domains[need.level][n] for n in nodes}) == 1
        packed = need.wish is Wish.PACKED or need.least_nodes > 0
        return len(nodes) <= need.most_nodes or not packed

    def take(self, places: Iterable[Place], need: Need) -> None:
        """Give the places to the job."""
        self._change(places, need, 1)

    def release(self, places: Iterable[Place], need: Need) -> None:
        """Take the places from the job."""
        self._change(places, need, -1)

    def _change(self, places: Iterable[Place], need: Need, sign: int) -> None:
        every = vars(self).get("_open")  # None before the first search
        for n, k, g in places:
            for m, _, moment in need.leaves:
                if m == n:
                    self.late[n, moment] += sign * k
            if self.pool[n] < 0:
                continue
            if every is not None:
                holes = every[self.pool[n]]
                del holes[bisect_left(holes, self._hole(n))]
            self.cpus[n] -= sign * k * need.cpus
            self.memory_gb[n] -= sign * k * need.memory_gb
            if g < 0:
                self.free[n] -= sign * k
            else:
                self._change_share(n, g, sign * need.share)
            if every is not None:
                insort(holes, self._hole(n))

    def _change_share(self, n: int, g: int, taken: float) -> None:
        of_node = self.shares.setdefault(n, {})
        split = self._split.setdefault(self.pool[n], [])
        if g in of_node:
            del split[bisect_left(split, (of_node[g], n, g))]
        else:
            of_node[g] = 1.0
            self.free[n] -= 1
        of_node[g] -= taken
        if of_node[g] >= 1 - TOLERANCE:
            del of_node[g]
            self.free[n] += 1
        else:
            insort(split, (of_node[g], n, g))

    def _fits_node(self, n: int, gpus: int, need: Need) -> bool:
        return (
            gpus * need.cpus <= self.cpus[n] + TOLERANCE
            and gpus * need.memory_gb <= self.memory_gb[n] + TOLERANCE
        )

    def _find_share(self, need: Need, without: Collection[int]) -> tuple[Place, ...] | None:
        split = self._split.get(need.pool, [])
        for i in range(bisect_left(split, (need.share - TOLERANCE,)), len(split)):
            _, n, g = split[i]
            if n not in without and self._fits_node(n, 1, need):
                return ((n, 1, g),)
        node = self._best_fit(1, need, without)
        if node < 0:
            return None
        taken = self.shares.get(node, {})
        return ((node, 1, next(g for g in range(self.size[node]) if g not in taken)),)

    def _best_fit(self, gpus: int, need: Need, without: Collection[int]) -> int:
        """Return the node with the fewest free GPUs of those that hold so many, -1 = none."""
        holes = self._open.get(need.pool, [])
        cpus = gpus * need.cpus - TOLERANCE if need.cpus > 0 else -math.inf
        memory = gpus * need.memory_gb - TOLERANCE if need.memory_gb > 0 else -math.inf
        for at in range(bisect_left(holes, (gpus,)), len(holes)):
            n = holes[at][-1]
            if self.cpus[n] >= cpus and self.memory_gb[n] >= memory and n not in without:
                return n
        return -1

    def _pack(self, need: Need, without: Collection[int]) -> tuple[Place, ...] | None:
        if need.gpus <= self.largest_size:
            node = self._best_fit(need.gpus, need, without)
            if node >= 0:
                return ((node, need.gpus, -1),)
        if need.most_nodes < 2:
            return None
        left = need.gpus
        out = list[Place]()
        used = set(without)
        for k, n in self._largest_first(need, without):
            if k >= left:
                return (*out, (self._best_fit(left, need, used), left, -1))
            if k < 1 or len(out) + 1 >= need.most_nodes:
                return None
            out.append((n, k, -1))
            used.add(n)
            left -= k
        return None

    def _largest_first(self, need: Need, without: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield (usable GPUs, node), the most usable first, without 0 and the nodes `without`."""
        limited = need.cpus > 0 or need.memory_gb > 0 or need.pod > 1
        usable: list[list[int]] = [[] for _ in range(self.largest_size + 1)]
        for free in range(self.largest_size, need.pod - 1, -1):
            nodes: Iterable[int] = self._nodes_with(need.pool, free)
            if limited:  # nodes with so many free GPUs, and fuller ones that hold no more
                for n in nodes:
                    usable[need.whole(self.usable(n, need))].append(n)
                # of equal ones those that leave least free
                nodes = sorted(usable[free]) if need.pod == 1 else reversed(usable[free])
            for n in nodes:
                if n not in without:
                    yield free, n

    def _gather(
        self, need: Need, nodes: Iterable[tuple[int, int]], most: int
    ) -> tuple[Place, ...] | None:
        """Take the largest nodes, and for the rest of the job the node that it fits best."""
        if need.least_nodes > 1:
            return _split(need, nodes)
        most = min(most, need.most_nodes) if need.least_nodes else most
        left = need.gpus
        out = list[Place]()
        last = -1
        spare = 0
        for k, n in nodes:
            if k < left:
                if last >= 0 or k < 1 or len(out) + 1 >= most:
                    break
                out.append((n, k, -1))
                left -= k
            elif last < 0 or k < spare:
                last = n
                spare = k
                if k == left:
                    break
        return None if last < 0 else (*out, (last, left, -1))

    def _find_near(self, need: Need, without: Collection[int]) -> tuple[Place, ...] | None:
        """Place the job in one domain of its level: on few nodes, then where little stays free."""
        domain = self.domains[need.level]
        members: dict[int, list[tuple[int, int]]] = {}
        for k, n in self._largest_first(need, without):
            if k > 0:
                members.setdefault(domain[n], []).append((k, n))
        best: tuple[tuple[int, int], tuple[Place, ...]] | None = None
        for nodes in members.values():
            total = sum(k for k, _ in nodes)
            if total < need.gpus:
                continue
            gathered = self._gather(need, nodes, len(nodes))
            if gathered is not None and (best is None or (len(gathered), total) < best[0]):
                best = (len(gathered), total), gathered
        return None if best is None else best[1]

    def _spread(self, need: Need, without: Collection[int]) -> tuple[Place, ...] | None:
        """Place the job on as many nodes as possible, the smallest holes first."""
        nodes = [(k, n) for k, n in self._largest_first(need, without) if k > 0][::-1]
        if sum(k for k, _ in nodes) < need.gpus:
            return None
        count = dict[int, int]()
        left = need.gpus
        while left > 0:
            for k, n in nodes:
                if left > 0 and count.get(n, 0) < k:
                    count[n] = count.get(n, 0) + need.pod
                    left -= need.pod
        return tuple((n, k, -1) for n, k in count.items())


def _split(need: Need, nodes: Iterable[tuple[int, int]]) -> tuple[Place, ...] | None:
    """Place the job on exactly `least_nodes` of the nodes, (usable GPUs, node), largest first.

    The smallest holes are filled first, so that what stays free is in one hole.
    """
    open_ = [(k, n) for k, n in nodes if k > 0]
    m = need.least_nodes
    total = sum(k for k, _ in open_[:m])
    if len(open_) < m or total < need.gpus:
        return None
    first = 0
    while first + m < len(open_) and total - open_[first][0] + open_[first + m][0] >= need.gpus:
        total += open_[first + m][0] - open_[first][0]
        first += 1
    left = need.gpus
    out = list[Place]()
    for later, (k, n) in zip(range(m - 1, -1, -1), open_[first : first + m][::-1], strict=True):
        gpus = min(k, left - later * need.pod)
        out.append((n, gpus, -1))
        left -= gpus
    return tuple(out)
