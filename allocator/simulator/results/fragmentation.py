"""How much of a simulated cluster is free and of no use, because it is scattered over nodes.

After each round, waiting jobs are taken in the order of their submission, each at the size that its
user asked for, and get free GPUs by number: those of the first pool where so many are free. The
GPUs of those of them for which best fit, the largest first, then finds no nodes are *unusable*:
if the free GPUs were together, these jobs could run on them. They count until the next round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from allocator.domain.problem import Problem
from allocator.options.node_needs import NodeNeeds
from allocator.options.option_table import find_blocked_jobs
from allocator.simulator.revocations import HOUR
from allocator.simulator.world import World
from formulations.placement.holes import Need

FRAGMENTATION = ("round", "at_s", "pool", "free", "largest", "unusable", "moves")


def fragmentation_rows(number: int, problem: Problem, world: World) -> list[tuple[object, ...]]:
    """Return a row of fragmentation.csv for each pool with nodes, after a round.

    `problem` is that of the round; its jobs are `world.active`.
    """
    pools = np.flatnonzero(world.has_nodes).tolist()
    if not pools:
        return []
    needs = NodeNeeds(problem)
    active = world.active.tolist()
    holes = needs.holes()
    for i, j in enumerate(active):
        if j in world.places and world.primary[j] < 0:
            need = needs.of(i, int(world.pool[j]), int(world.gpus[j]))
            holes.take(world.places[j], need)
    free = {p: holes.total(p) for p in pools}
    largest = {p: holes.largest(p) for p in pools}
    unusable = dict.fromkeys(pools, 0)
    for need in sorted(_wanted(problem, world, needs, free), key=lambda need: -need.gpus):
        places = holes.find(need)
        if places is None:
            unusable[need.pool] += need.gpus
        else:
            holes.take(places, need)
    names = problem.pools.pool
    return [
        (number, world.now, names[p], free[p], largest[p], unusable[p], int(world.moves[p]))
        for p in pools
    ]


def _wanted(problem: Problem, world: World, needs: NodeNeeds, free: dict[int, int]) -> list[Need]:
    """Return what waiting jobs could have if free GPUs counted by number only.

    Jobs that have a share of a GPU are left out: no node is too small for them.
    """
    jobs = problem.jobs
    left = dict(free)
    types = problem.allowed_types
    waits = (world.pool[world.active] < 0) & ~find_blocked_jobs(problem)
    waits &= np.isnan(jobs.gpu_fraction)
    wanted = []
    for i in np.flatnonzero(waits).tolist():
        gpus = int(jobs.requested_gpus[i])
        for p, many in left.items():
            if gpus <= many and types[i, problem.pools.gpu_type[p]]:
                left[p] -= gpus
                wanted.append(needs.of(i, p, gpus))
                break
    return wanted


def unusable_gpu_hours(
    columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]], end_s: float
) -> float:
    """Return the GPU-hours that were free and unusable, by the columns of fragmentation.csv."""
    times, row = np.unique(np.asarray(columns["at_s"], np.float64), return_inverse=True)
    hours = np.diff(times, append=end_s)[row] / HOUR
    return float((hours * np.asarray(columns["unusable"], np.float64)).sum())
