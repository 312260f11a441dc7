"""Rules about nodes, read independently of the code that places jobs.

Where a pool has nodes, every job of the plan there has places that add up to its GPUs. Every GPU is
given once, shares of a GPU add up to at most 1, and CPUs and memory of a node are enough. Places
are on nodes of the pool that are up, and lie as the job's `placement` and its pods say. A job that
is not preemptible stays where it is on a node of any state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Ints, Placements, Problem, State

UP = 0  # nodes.csv `state`
STATES = ("up", "drain", "down")
ROUNDING = 1e-6  # CPUs, GB and shares of a GPU that sums may miss by

Spot = dict[tuple[int, int], int]
"""GPUs by node and number of the GPU (-1 = whole GPUs)."""


@dataclass(frozen=True)
class NodeChecker:
    """The places of a problem's running jobs and of a plan."""

    problem: Problem
    allocation: Allocation

    @cached_property
    def is_up(self) -> Bools:
        """True for nodes that are up, and there until the next round, (N,)."""
        nodes, next_s = self.problem.nodes, self.problem.now_s + self.problem.interval_s
        away = (nodes.leaves_s <= next_s) & (self.problem.now_s < nodes.returns_s)
        return np.asarray((nodes.state == UP) & ~away)

    @cached_property
    def held(self) -> dict[int, Spot]:
        """What running jobs hold, without those whose nodes are unknown."""
        return _by_job(self.problem.placements)

    @cached_property
    def given(self) -> dict[int, Spot]:
        """What the plan gives the jobs."""
        return _by_job(self.allocation.places)

    def _count_nodes(self, placed: Placements) -> Ints:
        """Return on how many nodes each job is, (J,).

        It is 0 where none are known, and everywhere without spread shapes.
        """
        if not self.shapes:
            return np.zeros(len(self.problem.jobs), dtype=np.int64)
        each = np.unique(np.stack([placed.job, placed.node]), axis=1)[0]
        return np.bincount(each, minlength=len(self.problem.jobs)).astype(np.int64)

    @cached_property
    def given_on(self) -> Ints:
        """The number of nodes that the plan gives each job, (J,)."""
        return self._count_nodes(self.allocation.places)

    @cached_property
    def held_on(self) -> Ints:
        """The number of nodes that each running job holds, (J,).

        A job of unknown place that keeps its GPUs is on as many as the plan says.
        """
        same = np.where(self.is_unknown & self._has_same_gpus, self.given_on, 0)
        return np.maximum(self._count_nodes(self.problem.placements), same)

    @cached_property
    def shapes(self) -> dict[tuple[int, int, int], set[int]]:
        """The numbers of nodes of spread shapes by model, GPU type and size."""
        rates = self.problem.rates
        out = defaultdict[tuple[int, int, int], set[int]](set)
        for r in np.flatnonzero(rates.nodes).tolist():
            key = int(rates.model[r]), int(rates.gpu_type[r]), int(rates.gpus[r])
            out[key].add(int(rates.nodes[r]))
        return out

    def shapes_of(self, j: int, pool: int, gpus: int) -> set[int]:
        """Return the numbers of nodes of spread shapes of a job at a pool and size."""
        model = self.problem.jobs.model[j]
        gpu_type = self.problem.pools.gpu_type[pool]
        return self.shapes.get((int(model), int(gpu_type), gpus), set())

    @cached_property
    def on_same_nodes(self) -> Bools:
        """False for jobs of the plan that held other nodes than it gives them, (J,)."""
        out = np.ones(len(self.problem.jobs), dtype=bool)
        for j in self.held.keys() & self.given.keys():
            out[j] = self.held[j] == self.given[j]
        return out

    @cached_property
    def is_unknown(self) -> Bools:
        """True for running jobs in pools with nodes whose nodes are unknown, (J,).

        Such a job keeps its GPUs on any nodes. A preemptible one loses them if none were found.
        """
        jobs = self.problem.jobs
        out: Bools = jobs.state == State.RUNNING
        out = out & self.problem.has_nodes[jobs.pool] if len(self.problem.pools) else out
        out[self.problem.placements.job] = False
        return out

    @cached_property
    def must_leave(self) -> Bools:
        """True for running jobs that may not stay on their nodes, (J,)."""
        jobs = self.problem.jobs
        nodes = self.problem.nodes
        placements = self.problem.placements
        out = np.zeros(len(jobs), dtype=bool)
        if not len(nodes):
            return out
        # a GPU that is gone
        out[placements.job[placements.gpu >= nodes.gpus[placements.node]]] = True
        out[placements.job[jobs.preemptible[placements.job] & ~self.is_up[placements.node]]] = True
        for j, spot in self.held.items():
            out[j] |= jobs.preemptible[j] and self._is_split(j, spot)
        stays = ~out & (jobs.primary < 0)
        # a job that keeps its GPUs is where the plan says, if nothing else is known
        firm = stays & self.is_unknown & ~jobs.preemptible & self._has_same_gpus
        given = self.allocation.places
        spots = placements.select(stays[placements.job]).append(given.select(firm[given.job]))
        order = np.lexsort((-jobs.submitted_s, ~jobs.preemptible))
        while crowded := [n for n, _ in self._overfull(spots)]:
            spots = spots.select(np.isin(spots.job, spots.job[np.isin(spots.node, crowded)]))
            gone = order[np.isin(order, spots.job[spots.node == crowded[0]])][0]
            out[gone] = True
            spots = spots.select(spots.job != gone)
        return out

    @cached_property
    def _has_same_gpus(self) -> Bools:
        """True for jobs that the plan gives as many GPUs of the same pool, (J,)."""
        jobs = self.problem.jobs
        plan = self.allocation
        return np.asarray((plan.pool == jobs.pool) & (plan.gpus == jobs.gpus))

    def _is_split(self, j: int, spot: Spot) -> bool:
        """Return whether the nodes of a job are in several domains though they must be in one."""
        placement = self.problem.jobs.placement[j]
        near = (level for level in self.problem.levels if placement == f"same_{level.name}")
        return any(len({level.label[n] for n, _ in spot}) > 1 for level in near)

    def _overfull(self, placed: Placements) -> list[tuple[int, str]]:
        """Return (node, what is exceeded), by node."""
        jobs, nodes = self.problem.jobs, self.problem.nodes

        whole = placed.gpu < 0
        slots, slot = np.unique(
            np.stack([placed.node, placed.gpu])[:, ~whole], axis=1, return_inverse=True
        )
        share = np.bincount(slot.reshape(-1), jobs.gpu_fraction[placed.job[~whole]])
        used = np.bincount(placed.node, placed.gpus * whole, len(nodes))
        used = used + np.bincount(slots[0], minlength=len(nodes))
        overfull = [
            (n, 0, f"{used[n]:.0f} GPUs are given, it has {nodes.gpus[n]}")
            for n in np.flatnonzero(used > nodes.gpus).tolist()
        ] + [
            (int(slots[0, i]), 1, f"GPU {slots[1, i]} is given {share[i]:g} times")
            for i in np.flatnonzero(share > 1 + ROUNDING).tolist()
        ]
        for name, per_gpu, limit in (
            ("cpus", jobs.cpus_per_gpu, nodes.cpus),
            ("host_memory_gb", jobs.host_memory_gb_per_gpu, nodes.host_memory_gb),
        ):
            needed = np.bincount(placed.node, placed.gpus * per_gpu[placed.job], len(nodes))
            for n in np.flatnonzero(needed > limit + ROUNDING * np.maximum(1.0, needed)).tolist():
                overfull.append((n, 2, f"{name} {needed[n]:g} are needed, it has {limit[n]:g}"))
        return [(n, words) for n, _, words in sorted(overfull, key=lambda fault: fault[:2])]

    def faults(self, has_gpus: Bools, pool: Ints, gpus: Ints, secondary: Bools) -> Iterator[str]:
        """Yield every rule about nodes that the plan breaks.

        Parameters
        ----------
        has_gpus, pool, gpus : (J,)
            What the plan gives each job.
        secondary : (J,)
            Jobs on the GPUs of another job.
        """
        problem = self.problem
        places = self.allocation.places
        if not len(problem.nodes):
            return
        placed: Bools = has_gpus & problem.has_nodes[pool]
        for j in np.flatnonzero(placed).tolist():
            name = f'job "{problem.jobs.job_id[j]}"'
            if j not in self.given:
                yield f"{name} gets {gpus[j]} GPUs and no nodes"
                continue
            yield from (f"{name} {words}" for words in self._of_job(j, int(pool[j]), int(gpus[j])))
            primary = int(self.allocation.primary[j])
            if secondary[j] and self.given[j] != self.given.get(primary):
                yield f"{name} is not on the nodes of the job whose GPUs it gets"
        for j in np.unique(places.job[~placed[places.job]]).tolist():
            yield f'job "{problem.jobs.job_id[j]}" gets nodes and no GPUs of their pool'
        own = places.select(~secondary[places.job])
        for n, words in self._overfull(own):
            yield f'node "{problem.nodes.node[n]}": {words}'

    @cached_property
    def _claims(self) -> Ints:
        """The number of nodes for which the row of each job is a spread shape, (J,), else 0."""
        row = self.allocation.row
        nodes = np.append(self.problem.rates.nodes, 0)
        return nodes[np.where((row >= 0) & (row < len(nodes)), row, -1)]

    def _of_job(self, j: int, pool: int, gpus: int) -> Iterator[str]:
        problem = self.problem
        spot = self.given[j]
        jobs = problem.jobs
        nodes = problem.nodes
        if sum(spot.values()) != gpus:
            yield f"gets {gpus} GPUs, its nodes give {sum(spot.values())}"
        names = {n for n, _ in spot}
        stays = self.held.get(j) == spot and jobs.state[j] == State.RUNNING
        stays |= bool(self.is_unknown[j] & ~jobs.preemptible[j] & self._has_same_gpus[j])
        for n in sorted(names):
            if nodes.pool[n] != pool:
                yield f'is on node "{nodes.node[n]}", which is not of its pool'
            if not self.is_up[n] and (jobs.preemptible[j] or not stays):
                state = STATES[max(nodes.state[n], 1)]
                yield f'is on node "{nodes.node[n]}", whose state is {state}'
        fraction = not math.isnan(jobs.gpu_fraction[j])
        if any((g >= 0) != fraction or g >= nodes.gpus[n] for n, g in spot):
            yield "names a GPU that it may not have" if not fraction else "names no GPU of its node"
        pod = int(jobs.gpus_per_pod[j])
        pod = 1 if gpus % pod else pod  # what a job holds may be torn, and stays so
        if not stays and any(k % pod for k in spot.values()):
            yield f"has part of a pod of {pod} GPUs on a node"
        most = math.ceil(gpus / pod / max(1, problem.pools.gpus_per_node[pool] // pod))
        if jobs.placement[j] == "packed" and not stays and len(names) > most:
            yield f"is on {len(names)} nodes, {gpus} packed GPUs need {most}"
        shapes = self.shapes_of(j, pool, gpus)
        if shapes and not stays and len(names) > most and len(names) not in shapes:
            yield f"is on {len(names)} nodes, for which rates.csv has no speed of {gpus} GPUs"
        if self._claims[j] not in (0, len(names)):
            row = self.allocation.row[j]
            yield f"is on {len(names)} nodes, row {row} of rates.csv is for {self._claims[j]}"
        if self._is_split(j, spot) and (jobs.preemptible[j] or not stays):
            yield f"is in several domains, its placement is {jobs.placement[j]}"


def _by_job(placements: Placements) -> dict[int, Spot]:
    out: dict[int, Spot] = {}
    rows = (placements.job, placements.node, placements.gpu, placements.gpus)
    for j, n, g, k in zip(*(column.tolist() for column in rows), strict=True):
        spot = out.setdefault(j, {})
        spot[n, g] = spot.get((n, g), 0) + k
    return out
