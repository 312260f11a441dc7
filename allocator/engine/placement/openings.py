"""Open a hole for a job: other jobs move to other nodes of their pool, or give their GPUs up.

A hole of k GPUs on a node needs as many of the GPUs that jobs on it hold. Jobs that give most GPUs
for what their move costs go first. They are placed anew by best fit, largest first, elsewhere; a
job for which there is no other node gives its GPUs up if that costs less than the hole is for. Of
a few nodes that need least, the one whose moves cost least is taken. A job that no single node can
hold gets one node after the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from formulations.placement.holes import Holes, Need, Place, Wish

DOMAINS = 3  # most domains of a level that are tried
CANDIDATES = 5000  # most nodes that are looked at for one hole, those with most free GPUs first
NODES = 24  # most nodes on which the cost of a hole is worked out
ROUNDING = 1e-9  # relative, of sums of losses

Spots = dict[int, tuple[Place, ...]]  # places by job


@dataclass(frozen=True)
class Opening:
    """The places that are opened for a job, what other jobs lose, and where they go.

    A job without places gives up what it has.
    """

    places: tuple[Place, ...]
    loss: float
    moves: Mapping[int, tuple[Place, ...]]


class PlacedJobs(dict[int, tuple[Place, ...]]):
    """The places of each job; `on` has the jobs of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.on: dict[int, set[int]] = defaultdict(set)

    def put(self, job: int, places: tuple[Place, ...]) -> None:
        """Say where a job is now."""
        self.end(job)
        self[job] = places
        for n, _, _ in places:
            self.on[n].add(job)

    def end(self, job: int) -> tuple[Place, ...]:
        """Return where a job was, () = nowhere; it is nowhere now."""
        places = self.pop(job, ())
        for n, _, _ in places:
            self.on[n].discard(job)
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
    nodes : int
        Most nodes on which the cost of a hole is worked out; a fourth of those that are tried.

    Attributes
    ----------
    tried : int
        Nodes that were tried so far.
    """

    def __init__(
        self,
        holes: Holes,
        at: PlacedJobs,
        need: Callable[[int], Need],
        loss: Callable[[int], float],
        end_loss: Callable[[int], float],
        nodes: int = NODES,
    ) -> None:
        self._holes = holes
        self._at = at
        self._need = need
        self._loss = loss
        self._end_loss = end_loss
        self._most = nodes
        # of one search
        self._bounds: dict[tuple[int, int], float] = {}  # by node and GPUs that are missing
        self._leasts: dict[int, float] = {}
        self._needs: dict[int, Need] = {}
        self.tried = 0

    def find(self, need: Need, below: float = math.inf) -> Opening | None:
        """Return the cheapest opening that was found for a job and costs less, None = none."""
        for known in (self._bounds, self._leasts, self._needs):
            known.clear()
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
        found = None
        for label in sorted(free, key=lambda d: (-free[d], d))[:DOMAINS]:
            nodes = {n for n in self._holes.nodes_of(need.pool) if domain[n] == label}
            other = self._find_among(need, found.loss if found else below, nodes)
            found = other or found
        return found

    def _find_share(self, need: Need, below: float) -> Opening | None:
        """Return the cheapest opening of a share: other shares leave a GPU; None = none."""
        found = None
        shared = need.shared_nodes
        split = (at for at in self._holes.split_gpus(need.pool) if at[0] not in shared)
        for n, g in islice(split, NODES):
            old = {j: self._at[j] for j in self._at.on[n] if self._at[j][0][::2] == (n, g)}
            hole = (n, 1, g)
            answer = self._empty(hole, need, old, found.loss if found else below, set())
            if answer is not None:
                found = Opening((hole,), *answer)
        return found

    def _find_among(self, need: Need, below: float, among: set[int] | None) -> Opening | None:
        """Return the cheapest opening on nodes `among` (None = all), None = none."""
        moves: dict[int, tuple[Place, ...]] = {}
        start: dict[int, tuple[Place, ...]] = {}
        total = 0.0
        opened = set[int]()
        places = None
        try:
            for _ in range(max(1, need.most_nodes if among is None else len(among))):
                found = self._open_node(need, opened, moves, below - total, among)
                if found is None:
                    return None
                node, loss, moved = found
                opened.add(node)
                total += loss
                for j in moved:
                    now = moves.get(j, self._at[j])
                    start.setdefault(j, now)
                    self._holes.release(now, self._need(j))
                for j, to in moved.items():
                    self._holes.take(to, self._need(j))
                moves |= moved
                places = self._holes.find(need)
                if places is not None:
                    return Opening(places, total, dict(moves))
            return None
        finally:
            for j, to in moves.items():
                self._holes.release(to, self._need(j))
            for j, old in start.items():
                self._holes.take(old, self._need(j))

    def _open_node(
        self,
        need: Need,
        opened: set[int],
        moves: Mapping[int, tuple[Place, ...]],
        below: float,
        among: set[int] | None,
    ) -> tuple[int, float, dict[int, tuple[Place, ...]]] | None:
        """Return (node, loss, moves) of the cheapest node that gets enough free GPUs."""
        holes = self._holes
        nodes = self._candidates(need, opened, among, need.hole) or self._candidates(
            need, opened, among, need.pod
        )
        best = None
        known = 0
        changed = {n for j, to in moves.items() for n, _, _ in (*self._at[j], *to)}
        for n in nodes:
            self.tried += 1
            top = best[1] if best else below
            size = min(need.hole, need.whole(holes.size[n]))
            key = n, size - holes.free[n]
            moved, bounds = (moves, {}) if n in changed else ({}, self._bounds)
            if key not in bounds:
                bounds[key] = self._bound(*key, self._jobs_on(n, moved))
            if bounds[key] >= top:
                continue
            found = self._empty((n, size, -1), need, self._jobs_on(n, moved), top, opened)
            known += found is not None
            if found is not None and (best is None or found[0] < best[1]):
                best = (n, *found)
            if known >= self._most or (best is not None and best[1] <= 0):
                break
        return best

    def _jobs_on(self, n: int, moves: Mapping[int, tuple[Place, ...]]) -> Spots:
        """Return the places of the jobs that are on a node after some moves."""
        now = {j: moves.get(j, self._at[j]) for j in {*self._at.on[n], *moves}}
        return {j: spot for j, spot in now.items() if any(m == n for m, _, _ in spot)}

    def _bound(self, n: int, missing: int, jobs: Spots) -> float:
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
            self._leasts[j] = min(self._loss(j), self._end_loss(j))
        return self._leasts[j]

    def _need_of(self, j: int) -> Need:
        """Return what a job of the plan needs."""
        if j not in self._needs:
            self._needs[j] = self._need(j)
        return self._needs[j]

    def _candidates(
        self, need: Need, opened: set[int], among: set[int] | None, size: int
    ) -> list[int]:
        """Return nodes of at least this size with too few free GPUs, the fullest last."""
        holes = self._holes
        if size > holes.largest_size:
            return []
        closed = opened | need.shared_nodes
        large = (
            n
            for n in holes.nodes_of(need.pool)
            if holes.size[n] >= size and n not in closed and (among is None or n in among)
        )
        sizes, free, hole, pod = holes.size, holes.free, need.hole, need.pod
        is_limited = need.cpus > 0 or need.memory_gb > 0
        missing = [
            (
                min(hole, sizes[n] - sizes[n] % pod)
                - (holes.usable(n, need) if is_limited else free[n]),
                n,
            )
            for n in islice(large, CANDIDATES)
        ]
        return [n for gpus, n in sorted(missing) if gpus > 0][: 4 * self._most]

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
