"""Which options fit a plan by GPUs of pools but on no nodes, and what would open a hole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Ints, Problem, State
from allocator.engine.placement.openings import Openings, PlacedJobs
from allocator.options.node_needs import NodeNeeds, by_job
from formulations.placement.holes import Need, Place

MOST = 2000  # most jobs whose own GPUs are taken off to see whether they fit then
NAMED = 3  # most moves that a sentence names


class Fragments:
    """The holes that a plan leaves.

    Parameters
    ----------
    problem : Problem
        The round.
    plan : Allocation
        The plan on nodes.
    """

    def __init__(self, problem: Problem, plan: Allocation) -> None:
        self._problem = problem
        self._needs = NodeNeeds(problem)
        self._pool = plan.pool.tolist()
        self._gpus = plan.gpus.tolist()
        self._nodes = np.where(plan.row >= 0, np.append(problem.rates.nodes, 0)[plan.row], 0)
        self._holes = self._needs.holes()
        self._at = PlacedJobs()
        for j, places in by_job(plan.places).items():
            if plan.primary[j] < 0:  # the GPUs of two colocated jobs are taken once
                self._at.put(j, places)
                self._holes.take(places, self._need(j))

    def _need(self, j: int) -> Need:
        return self._needs.of(j, self._pool[j], self._gpus[j], int(self._nodes[j]))

    def find_placeable(
        self, job: Ints, pool: Ints, gpus: Ints, nodes: Ints, avoids: Sequence[frozenset[int]]
    ) -> Bools:
        """Find the options (job, pool, gpus, nodes of a spread shape) that nodes hold, (n,).

        The GPUs of the job itself count as free. `avoids` (n,) are nodes that leave too early.
        """
        out = np.ones(len(job), bool)
        known: dict[Need, bool] = {}
        tried = 0
        for at in np.flatnonzero(self._problem.has_nodes[pool]).tolist():
            j = int(job[at])
            need = self._needs.of(j, int(pool[at]), int(gpus[at]), int(nodes[at]), (), avoids[at])
            if need not in known:
                known[need] = self._holes.find(need) is not None
            out[at] = known[need]
            if not out[at] and self._pool[j] == pool[at] and j in self._at and tried < MOST:
                tried += 1
                self._holes.release(self._at[j], self._need(j))
                out[at] = self._holes.find(need) is not None
                self._holes.take(self._at[j], self._need(j))
        return out

    def describe(self, job: int, pool: int, gpus: int, shape: int) -> str:
        """Describe in numbers why there are no nodes for an option, and which moves open a hole."""
        problem = self._problem
        name = problem.pools.pool[pool]
        words = (
            f"{name_shape(gpus, name, shape)} fits no nodes: {self._holes.total(pool)} GPUs are"
            f" free, the largest hole has {self._holes.largest(pool)}"
        )
        need = self._needs.of(job, pool, gpus, shape)
        opening = Openings(self._holes, self._at, self._need, self._loss, lambda j: math.inf).find(
            need
        )
        if opening is None:
            return f"{words}; no move of jobs that was tried opens one for {gpus}"
        jobs = problem.jobs.job_id
        nodes = problem.nodes.node
        moves = [
            f'"{jobs[j]}" ({self._gpus[j]} GPUs) from {_name(nodes, self._at[j])} to'
            f" {_name(nodes, to)}"
            for j, to in list(opening.moves.items())[:NAMED]
        ]
        more = f" and {len(opening.moves) - NAMED} more" if len(opening.moves) > NAMED else ""
        return f"{words}; moving {', '.join(moves)}{more} would open one"

    def _loss(self, j: int) -> float:
        """Return 0 for a job that may move, else inf."""
        jobs = self._problem.jobs
        locked = not jobs.preemptible[j] or jobs.resizes_left[j] == 0
        return math.inf if jobs.state[j] == State.RUNNING and locked else 0.0


@lru_cache(maxsize=4096)
def name_shape(gpus: int, pool: str, nodes: int) -> str:
    """Return the words for GPUs of a pool, with the number of nodes of a spread shape."""
    return f"{gpus} x {pool}" + (f" on {nodes} nodes" if nodes else "")


def _name(nodes: Sequence[str], places: tuple[Place, ...]) -> str:
    """Return the nodes of a job, with GPUs if there are several nodes, or the GPU of a share."""
    if len(places) == 1 and places[0][2] < 0:
        return nodes[places[0][0]]
    return "+".join(f"{nodes[n]}:{k}" if g < 0 else f"{nodes[n]} GPU {g}" for n, k, g in places)
