"""Which running jobs may stay on the nodes where they are.

A job that is not preemptible stays on a node of any state. Any other job must leave a node that is
drained or down, and nodes that its `placement` does not allow together. Where nodes hold less than
the jobs that are placed there need, jobs leave until the others fit: those that are preemptible
first, and of these the latest submitted. Jobs whose nodes are unknown are taken to be where best
fit puts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.options.node_needs import NodeNeeds, by_job
from formulations.placement.holes import Place

UP = 0  # nodes.csv `state`
TOLERANCE = 1e-9  # CPUs, GB or shares of a GPU that do not count


@dataclass(frozen=True)
class Staying:
    """The running jobs that may stay where they are.

    Attributes
    ----------
    stays : (J,)
        True for these jobs.
    homeless : (J,)
        True for running jobs whose nodes are unknown and that no nodes hold.
    assumed : (J,)
        True for those whose nodes are not known.
    held : dict
        The places of each running job in a pool with nodes, known or assumed.
    """

    stays: Bools
    homeless: Bools
    assumed: Bools
    held: Mapping[int, tuple[Place, ...]]

    @classmethod
    def of(cls, problem: Problem) -> Staying:
        """Find these jobs; the last answer is kept, because a round asks several times."""
        for known, answer in _last:
            if known is problem:
                return answer
        stays = _find_known(problem)
        held, assumed = by_job(problem.placements), np.zeros(len(stays), dtype=bool)
        known_stays = stays.copy()
        if problem.has_nodes.any():
            held, assumed = _assume_places(problem, stays, held)
        _last[:] = [(problem, cls(stays, known_stays & ~stays, assumed, held))]
        return _last[0][1]


_last: list[tuple[Problem, Staying]] = []


def _assume_places(
    problem: Problem, stays: Bools, held: dict[int, tuple[Place, ...]]
) -> tuple[dict[int, tuple[Place, ...]], Bools]:
    """Return all places, and the jobs whose places are assumed, (J,).

    Jobs whose nodes are unknown are taken to be where best fit puts them, those that are not
    preemptible and the largest first. `stays` becomes False for jobs that find no nodes.
    """
    jobs, needs = problem.jobs, NodeNeeds(problem)
    assumed = np.zeros(len(jobs), dtype=bool)
    unknown = np.flatnonzero(stays & (jobs.primary < 0))
    unknown = unknown[problem.has_nodes[jobs.pool[unknown]]]
    unknown = np.array([j for j in unknown.tolist() if j not in held], dtype=np.int64)
    if not len(unknown):
        return held, assumed
    holes = needs.holes()
    for j, places in held.items():
        if stays[j] and jobs.primary[j] < 0:
            holes.take(places, needs.of(j, int(jobs.pool[j]), int(jobs.gpus[j])))
    order = np.lexsort((unknown, -jobs.gpus[unknown], jobs.preemptible[unknown]))
    for j in unknown[order].tolist():
        need = needs.of(j, int(jobs.pool[j]), int(jobs.gpus[j]))
        found = holes.find(need)
        if found is None:
            stays[j] = False
        else:
            holes.take(found, need)
            held[j], assumed[j] = found, True
    return held, assumed


def _find_known(problem: Problem) -> Bools:
    """Find the running jobs that may stay as far as their nodes are known, (J,)."""
    jobs, nodes, placed = problem.jobs, problem.nodes, problem.placements
    stays: Bools = jobs.state == State.RUNNING
    if not len(placed.job):
        return stays
    off = nodes.state[placed.node] != UP
    stays[placed.job[off & jobs.preemptible[placed.job]]] = False
    for name, level in ((f"same_{level.name}", level) for level in problem.levels):
        domain = level.domain[placed.node]
        for j in np.flatnonzero(np.array(jobs.placement, dtype=object) == name).tolist():
            if jobs.preemptible[j] and len(np.unique(domain[placed.job == j])) > 1:
                stays[j] = False
    # latest first, preemptible jobs before the others
    order = np.lexsort((-jobs.submitted_s, ~jobs.preemptible))
    rank = np.empty(len(jobs), dtype=np.int64)
    rank[order] = np.arange(len(jobs))
    for n in find_crowded_nodes(problem, stays[placed.job]).tolist():
        here = np.flatnonzero(placed.node == n)
        for row in here[np.argsort(rank[placed.job[here]])].tolist():
            if len(find_crowded_nodes(problem, stays[placed.job] & (placed.node == n))):
                stays[placed.job[row]] = False
    return stays


def find_crowded_nodes(problem: Problem, rows: Bools) -> Ints:
    """Find the up nodes that hold less than some rows (L,) of placements.csv need."""
    jobs, nodes, placed = problem.jobs, problem.nodes, problem.placements
    own = rows & (jobs.primary[placed.job] < 0)
    whole, part = own & (placed.gpu < 0), np.flatnonzero(own & (placed.gpu >= 0))
    N = len(nodes)

    def total(weight: Floats | Ints, which: Bools) -> Floats:
        return np.bincount(placed.node[which], weight[which], minlength=N).astype(np.float64)

    used = total(placed.gpus, whole)
    slot, index = np.unique(
        np.stack([placed.node[part], placed.gpu[part]], axis=1), axis=0, return_inverse=True
    )
    used += np.bincount(slot[:, 0], minlength=N)
    share = np.bincount(index.reshape(-1), jobs.gpu_fraction[placed.job[part]], minlength=len(slot))
    crowded: Bools = used > nodes.gpus
    crowded[slot[share > 1 + TOLERANCE, 0]] = True
    for need, limit in (
        (jobs.cpus_per_gpu, nodes.cpus),
        (jobs.host_memory_gb_per_gpu, nodes.host_memory_gb),
    ):
        needed = total(placed.gpus * need[placed.job], own)
        crowded |= needed > limit + TOLERANCE * np.maximum(1.0, needed)
    return np.flatnonzero(crowded & (nodes.state == UP))
