"""Translate the nodes of a problem, and what its jobs need of nodes, for the search for places.

The search is in `formulations.placement.holes`.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Bools, Ints, Placements, Problem
from formulations.placement.holes import Holes, Need, Place, Wish

UP = 0  # nodes.csv `state`
NONE: frozenset[int] = frozenset()


class NodeNeeds:
    """What the jobs of a problem need of nodes.

    Columns are lists, because a round reads thousands of single numbers from them, which is faster
    from a list than from an array.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        jobs = problem.jobs
        self._cpus = jobs.cpus_per_gpu.tolist()
        self._memory_gb = jobs.host_memory_gb_per_gpu.tolist()
        self._share = jobs.gpu_fraction.tolist()
        self._pod = jobs.gpus_per_pod.tolist()
        self._per_node = problem.pools.gpus_per_node.tolist()
        wishes = {"packed": (Wish.PACKED, -1), "spread": (Wish.SPREAD, -1)}
        for number, level in enumerate(problem.levels):
            wishes[f"same_{level.name}"] = Wish.SAME, number
            wishes[f"prefer_{level.name}"] = Wish.PREFER, number
        self._wish = [wishes[name] for name in jobs.placement]
        rates = problem.rates
        shapes = np.flatnonzero(rates.nodes)
        columns = (rates.model[shapes], rates.gpu_type[shapes], rates.gpus[shapes])
        self._shaped = set(zip(*(column.tolist() for column in columns), strict=True))

    def of(
        self,
        job: int,
        pool: int,
        gpus: int,
        nodes: int = 0,
        leaves: tuple[tuple[int, int, int], ...] = (),
        avoids: frozenset[int] = NONE,
    ) -> Need:
        """Return what the job needs for this number of GPUs of the pool, with the last two.

        `nodes` is the number of nodes if rates.csv has a speed for the size on that many nodes, and
        this speed is used; otherwise it is 0. If it is 0 and there are such speeds for other
        numbers of nodes, the job gets as few nodes as possible, whatever placement it asks for.
        """
        share, (wish, level) = self._share[job], self._wish[job]
        pod = self._pod[job] if gpus % self._pod[job] == 0 else 1
        most = nodes or -(-gpus // (max(1, self._per_node[pool] // pod) * pod))
        least = nodes
        if self._shaped and not nodes:
            model, gpu_type = self.problem.jobs.model[job], self.problem.pools.gpu_type[pool]
            least = int((int(model), int(gpu_type), gpus) in self._shaped)
        return Need(
            pool,
            gpus,
            most,
            self._cpus[job],
            self._memory_gb[job],
            1.0 if math.isnan(share) else share,
            Wish.PACKED if least and wish is Wish.SPREAD else wish,
            level,
            least,
            leaves,
            pod,
            avoids,
        )

    def holes(self, every_state: bool | Bools = False) -> Holes:
        """Return the nodes that are up, or those of any state, as if no job held their GPUs."""
        nodes = self.problem.nodes
        return Holes(
            np.where(every_state | (nodes.state == UP), nodes.pool, -1).tolist(),
            nodes.gpus.tolist(),
            nodes.cpus.tolist(),
            nodes.host_memory_gb.tolist(),
            [level.domain.tolist() for level in self.problem.levels],
        )


def by_job(placements: Placements) -> dict[int, tuple[Place, ...]]:
    """Return the places of each job that has any: node, GPUs and number of the GPU."""
    places_of: dict[int, list[Place]] = {}
    columns = (placements.job, placements.node, placements.gpus, placements.gpu)
    for j, n, k, g in zip(*(column.tolist() for column in columns), strict=True):
        places_of.setdefault(j, []).append((n, k, g))
    return {j: tuple(places) for j, places in places_of.items()}


def as_placements(at: dict[int, tuple[Place, ...]]) -> Placements:
    """Return the places of jobs as arrays, sorted by job."""
    rows = [(j, *place) for j in sorted(at) for place in at[j]]
    columns: Ints = np.array(rows, np.int64).reshape(-1, 4).T
    return Placements(*columns)
