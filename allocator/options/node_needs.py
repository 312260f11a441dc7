"""Nodes and needs of a problem, as `formulations.placement.holes` takes them."""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Ints, Placements, Problem
from formulations.placement.holes import Holes, Need, Place, Wish

UP = 0  # nodes.csv `state`


class NodeNeeds:
    """What jobs need of nodes.

    Single numbers are read thousands of times, so columns are lists.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        jobs = problem.jobs
        self._cpus, self._memory_gb = (
            jobs.cpus_per_gpu.tolist(),
            jobs.host_memory_gb_per_gpu.tolist(),
        )
        self._share = jobs.gpu_fraction.tolist()
        self._per_node = problem.pools.gpus_per_node.tolist()
        wishes = {"packed": (Wish.PACKED, -1), "spread": (Wish.SPREAD, -1)}
        for number, level in enumerate(problem.levels):
            wishes[f"same_{level.name}"] = Wish.SAME, number
            wishes[f"prefer_{level.name}"] = Wish.PREFER, number
        self._wish = [wishes[name] for name in jobs.placement]

    def of(self, job: int, pool: int, gpus: int) -> Need:
        """Return what the job needs for so many GPUs of the pool."""
        share, (wish, level) = self._share[job], self._wish[job]
        return Need(
            pool,
            gpus,
            -(-gpus // self._per_node[pool]),
            self._cpus[job],
            self._memory_gb[job],
            1.0 if math.isnan(share) else share,
            wish,
            level,
        )

    def holes(self, every_state: bool = False) -> Holes:
        """Return the up nodes, or all nodes, as if no job held any of them."""
        nodes = self.problem.nodes
        return Holes(
            np.where(every_state | (nodes.state == UP), nodes.pool, -1).tolist(),
            nodes.gpus.tolist(),
            nodes.cpus.tolist(),
            nodes.host_memory_gb.tolist(),
            [level.domain.tolist() for level in self.problem.levels],
        )


def by_job(placements: Placements) -> dict[int, tuple[Place, ...]]:
    """Return the places of each job that has some."""
    found: dict[int, list[Place]] = {}
    columns = (placements.job, placements.node, placements.gpus, placements.gpu)
    for j, n, k, g in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(j, []).append((n, k, g))
    return {j: tuple(places) for j, places in found.items()}


def as_placements(at: dict[int, tuple[Place, ...]]) -> Placements:
    """Return the places of jobs as arrays, job by job."""
    rows = [(j, *place) for j in sorted(at) for place in at[j]]
    columns: Ints = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Placements(*columns)
