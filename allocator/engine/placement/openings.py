"""Open a hole for a job: other jobs move to other nodes of their pool, or give their GPUs up.

A hole of k GPUs on a node needs as many of the GPUs that jobs on it hold. Jobs that give most GPUs
for what their move costs go first. They are placed anew by best fit, largest first, elsewhere; a
job for which there is no other node gives its GPUs up if that costs less than the hole is for.
Nodes are tried in the order of what their jobs lose at least, until that is more than the jobs of
the best node lose. A job that no single node can hold gets one node after the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from formulations.placement.holes import Holes, Need, Place, Wish

DOMAINS = 3  # most domains of a level that are tried
CANDIDATES = 5000  # most nodes that are looked at for one hole, those with most free GPUs first
NODES = 24  # most nodes on which the cost of a hole is worked out
ROUNDING = 1e-9  # relative, of sums of losses

Spots = dict[int, tuple[Place, ...]]  # places by job
Rank = tuple[bool, float, int]
"""Of a node: whether it is smaller than the whole hole, the least that its jobs lose if they free
the hole, and how many GPUs they have to free.
"""


@dataclass(frozen=True)
class Opening:
    """The places that are opened for a job, what other jobs lose, and where they go.

    A job without places gives up what it has.
    """

    places: tuple[Place, ...]
    loss: float
    moves: Mapping[int, tuple[Place, ...]]


class PlacedJobs(dict[int, tuple[Place, ...]]):
    """The places of each job; `on` has those of each node, `changed` nodes with other jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.on: dict[int, set[int]] = defaultdict(set)
        self.changed = set[int]()

    def put(self, job: int, places: tuple[Place, ...]) -> None:
        """Say where a job is now."""
        self.end(job)
        self[job] = places
        for n, _, _ in places:
            self.on[n].add(job)
            self.changed.add(n)

    def end(self, job: int) -> tuple[Place, ...]:
        """Return where a job was, () = nowhere; it is nowhere now."""
        places = self.pop(job, ())
        for n, _, _ in places:
            self.on[n].discard(job)
            self.changed.add(n)
        return places


class Openings:
    """Finds holes that moves open; the holes are as before after every search.

    Parameters
    ----------
    holes : Holes
        Free GPUs, with all jobs of the plan in their places.
    at : PlacedJobs
        The places of each job of the plan. It may change between searches.
    need : callable
        What a job of the plan needs.
    loss : callable
        What a job loses if it moves within its pool, inf if it may not move.
    end_loss : callable
        What it loses if it gets nothing, inf if it must get something.
    """

    def __init__(
        self,
        holes: Holes,
        at: PlacedJobs,
        need: Callable[[int], Need],
        loss: Callable[[int], float],
        end_loss: Callable[[int], float],
    ) -> None:
        self._holes = holes
        self._at = at
        self._need = need
        self._loss = loss
        self._end_loss = end_loss
        # what is known of nodes and jobs whose places did not change
        self._bounds = defaultdict[int, dict[int, float]](dict)  # by node and GPUs that are missing
        self._leasts: dict[int, float] = {}
        self._room = 0  # GPUs of the largest hole of the pool when the search begins
        self._needs: dict[int, Need] = {}

    def find(self, need: Need, below: float = math.inf) -> Opening | None:
        """Return the cheapest opening that was found for a job and costs less, None = none."""
        for n in self._at.changed:
            self._bounds.pop(n, None)
            for j in self._at.on[n]:
                self._leasts.pop(j, None)
                self._needs.pop(j, None)
        self._at.changed.clear()
        room = self._holes.largest(need.pool)
        if room != self._room:  # jobs that fitted elsewhere do not any more, or do again
            self._bounds.clear()
            self._leasts.clear()
        self._room = room
        if need.share < 1:
            return self._find_share(need, below)
        if need.wish is Wish.SPREAD:
            return None
        if need.wish is not Wish.SAME:
            return self._find_among(need, below, None)
        domain = self._holes.domains[need.level]
        free: dict[int, int] = {}
        for n in self._holes.nodes_of(need.pool):
            free[domain[n]] = free.get(domain[n], 0) + self._holes.usable(n, need)
        best = None
        for label in sorted(free, key=lambda d: (-free[d], d))[:DOMAINS]:
            nodes = {n for n in self._holes.nodes_of(need.pool) if domain[n] == label}
            other = self._find_among(need, best.loss if best else below, nodes)
            best = other or best
        return best

    def _find_share(self, need: Need, below: float) -> Opening | None:
        """Return the cheapest opening of a share: other shares leave a GPU; None = none."""
        best = None
        shared = need.shared_nodes
        split = (at for at in self._holes.split_gpus(need.pool) if at[0] not in shared)
        for n, g in islice(split, NODES):
            old = {j: self._at[j] for j in self._at.on[n] if self._at[j][0][::2] == (n, g)}
            hole = (n, 1, g)
            answer = self._empty(hole, need, old, best.loss if best else below, set())
            if answer is not None:
                best = Opening((hole,), *answer)
        return best

    def _find_among(self, need: Need, below: float, among: set[int] | None) -> Opening | None:
        """Return the cheapest opening on nodes `among` (None = all), None = none."""
        moves = PlacedJobs()
        start: dict[int, tuple[Place, ...]] = {}
        total = 0.0
        opened = set[int]()
        steps = max(1, need.most_nodes if among is None else len(among))
        ranks = self._rank_nodes(need, need.pod if steps > 1 else need.hole, among)
        try:
            for _ in range(steps):
                best = self._open_node(need, ranks, opened, moves, below - total)
                if best is None:
                    return None
                node, loss, moved = best
                opened.add(node)
                total += loss
                changed = {node}
                for j, to in moved.items():
                    now = moves.get(j, self._at[j])
                    start.setdefault(j, now)
                    self._holes.release(now, self._need_of(j))
                    changed |= {n for n, _, _ in (*now, *to)}
                for j, to in moved.items():
                    self._holes.take(to, self._need_of(j))
                    moves.put(j, to)
                places = self._holes.find(need)
                if places is not None:
                    return Opening(places, total, dict(moves))
                for n in changed:
                    ranks.pop(n, None)
                    may_open = n not in opened and (among is None or n in among)
                    if may_open and (rank := self._rank(n, need, need.hole, moves)):
                        ranks[n] = rank
            return None
        finally:
            for j, to in moves.items():
                self._holes.release(to, self._need_of(j))
            for j, old in start.items():
                self._holes.take(old, self._need_of(j))

    def _open_node(
        self,
        need: Need,
        ranks: dict[int, Rank],
        opened: set[int],
        moves: PlacedJobs,
        below: float,
    ) -> tuple[int, float, dict[int, tuple[Place, ...]]] | None:
        """Return (node, loss, moves) of the cheapest node that gets enough free GPUs."""
        best = None
        for rank, n in nsmallest(NODES, ((rank, n) for n, rank in ranks.items())):
            is_small, least, _ = rank
            top = best[1] if best else below
            if least >= top or (best and (is_small or best[1] <= 0)):
                break
            jobs = self._jobs_on(n, moves)
            hole = (n, min(need.hole, need.whole(self._holes.size[n])), -1)
            answer = self._empty(hole, need, jobs, top, opened)
            if answer is not None and (best is None or answer[0] < best[1]):
                best = (n, *answer)
        return best

    def _jobs_on(self, n: int, moves: PlacedJobs) -> Spots:
        """Return the places of the jobs that are on a node after some moves."""
        stay = {j: self._at[j] for j in self._at.on[n] if j not in moves}
        return stay | {j: moves[j] for j in moves.on[n]}

    def _rank_nodes(self, need: Need, size: int, among: set[int] | None) -> dict[int, Rank]:
        """Rank the nodes of at least this size that have too few free GPUs."""
        holes = self._holes
        shared, sizes = need.shared_nodes, holes.size
        large = (
            n
            for n in holes.nodes_of(need.pool)
            if sizes[n] >= size and n not in shared and (among is None or n in among)
        )
        hole, none = need.hole, PlacedJobs()
        ranks = ((n, self._rank(n, need, hole, none)) for n in islice(large, CANDIDATES))
        return {n: rank for n, rank in ranks if rank}

    def _rank(self, n: int, need: Need, hole: int, moves: PlacedJobs) -> Rank | None:
        """Return the rank of a node, None if it has enough free GPUs for its part of the hole."""
        holes = self._holes
        size, free = holes.size[n], holes.free[n]
        size = hole if hole <= size else size - size % need.pod
        missing = size - (holes.usable(n, need) if need.cpus or need.memory_gb else free)
        if missing <= 0:
            return None
        if moves:
            least = self._bound(size - free, self._jobs_on(n, moves), n)
        else:
            known = self._bounds[n]
            if size - free not in known:
                known[size - free] = self._bound(size - free, self._jobs_on(n, moves), n)
            least = known[size - free]
        return size < hole, least, missing

    def _bound(self, missing: int, jobs: Spots, n: int) -> float:
        """Return what jobs lose at least if they free so many GPUs of a node.

        Those that lose least for a GPU go first, and the last of them counts in part.
        """
        gives = {j: sum(k for m, k, _ in spot if m == n) for j, spot in jobs.items()}
        least = {j: self._least(j) for j in gives}
        lowest = min(least.values(), default=0.0)
        if lowest < 0:
            return -math.inf
        left, total = missing, 0.0
        for j in sorted(gives, key=lambda j: least[j] / gives[j]):
            if left > 0:
                total += least[j] * min(1.0, left / gives[j])
                left -= gives[j]
        return math.inf if left > 0 else max(lowest, total * (1 - ROUNDING))

    def _least(self, j: int) -> float:
        """Return what a job loses at least if it leaves its node."""
        if j not in self._leasts:
            need, least = self._need_of(j), self._end_loss(j)
            size = need.pod  # it needs a hole of this size elsewhere
            if need.wish is Wish.PACKED or need.least_nodes:
                others = (need.most_nodes - 1) * self._holes.largest_size
                size = max(size, need.gpus - others)
            if need.share < 1 or self._room >= size:
                least = min(least, self._loss(j))
            self._leasts[j] = least
        return self._leasts[j]

    def _need_of(self, j: int) -> Need:
        """Return what a job of the plan needs."""
        if j not in self._needs:
            self._needs[j] = self._need(j)
        return self._needs[j]

    def _empty(
        self,
        hole: Place,
        need: Need,
        old: Mapping[int, tuple[Place, ...]],
        below: float,
        opened: set[int],
    ) -> tuple[float, dict[int, tuple[Place, ...]]] | None:
        """Return (loss, moves) that free the hole for less than `below`, or None.

        `old` has the jobs that may leave for it, and their places.
        """
        holes = self._holes
        needs = {j: self._need_of(j) for j in old}
        least = {j: self._least(j) for j in old}
        gives = {j: sum(k for n, k, _ in spot if n == hole[0]) for j, spot in old.items()}
        can = [j for j in old if least[j] < math.inf]
        can.sort(key=lambda j: (least[j] / gives[j], needs[j].gpus, j))
        chosen: list[int] = []
        for j in can:
            if holes.can_take((hole,), need):
                break
            holes.release(old[j], needs[j])
            chosen.append(j)
        for j in sorted(chosen, key=lambda j: -least[j]):
            holes.take(old[j], needs[j])
            if holes.can_take((hole,), need):
                chosen.remove(j)
            else:
                holes.release(old[j], needs[j])
        loss = 0.0
        moved = dict[int, tuple[Place, ...]]()
        if holes.can_take((hole,), need):
            holes.take((hole,), need)
            for j in sorted(chosen, key=lambda j: (-needs[j].gpus, -needs[j].share, j)):
                may = self._loss(j) < math.inf
                to = holes.find(needs[j], opened) if may else None
                loss += self._end_loss(j) if to is None else self._loss(j)
                if loss >= below:
                    break
                holes.take(to or (), needs[j])
                moved[j] = to or ()
            holes.release((hole,), need)
        for j, to in moved.items():
            holes.release(to, needs[j])
        for j in chosen:
            holes.take(old[j], needs[j])
        return (loss, moved) if chosen and len(moved) == len(chosen) else None
