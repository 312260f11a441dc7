"""Which running jobs may stay on the nodes where they are.

A job that is not preemptible stays on a node of any state. Any other job must leave a node that is
drained or down, and nodes that its `placement` does not allow together. Where nodes hold less than
the jobs that are placed there need, jobs leave until the others fit: those that are preemptible
first, and of these the latest submitted. Jobs whose nodes are unknown are taken to be where best
fit puts them. If they are not preemptible, other jobs leave for them, and if that is not enough,
they are on any nodes of the pool, also drained ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Placements, Problem, State
from allocator.options.node_needs import NodeNeeds, as_placements, by_job
from formulations.placement.holes import Place, Wish

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
        placed, held = problem.placements, dict[int, tuple[Place, ...]]()
        if problem.has_nodes.any():
            placed = _assume_firm(problem)
        stays = _find_known(problem, placed)
        known_stays = stays.copy()
        if problem.has_nodes.any():
            held = by_job(placed)
            both = (_find_unknown(problem, False), _find_unknown(problem, True))
            unknown = [j for jobs in both for j in jobs if j not in held]
            stays[_fit(NodeNeeds(problem), unknown, stays, held)] = False
        assumed = np.zeros(len(stays), bool)
        assumed[list(held)] = True
        assumed[problem.placements.job] = False
        _last[:] = [(problem, cls(stays, known_stays & ~stays, assumed, held))]
        return _last[0][1]

    @cached_property
    def nodes(self) -> Ints:
        """On how many nodes each job is, (J,), 0 = on none that is known."""
        out = np.zeros(len(self.stays), np.int64)
        for j, places in self.held.items():
            out[j] = len({n for n, _, _ in places})
        return out


_last: list[tuple[Problem, Staying]] = []


def _find_unknown(problem: Problem, preemptible: bool) -> list[int]:
    """Find the running jobs without places in pools with nodes, the largest first."""
    jobs = problem.jobs
    unknown: Bools = (jobs.state == State.RUNNING) & (jobs.primary < 0)
    unknown &= jobs.preemptible == preemptible
    unknown[problem.placements.job] = False
    job = np.flatnonzero(unknown)
    job = job[problem.has_nodes[jobs.pool[job]]]
    order: list[int] = job[np.argsort(-jobs.gpus[job], kind="stable")].tolist()
    return order


def _assume_firm(problem: Problem) -> Placements:
    """Return all known places, and those of unknown jobs that are not preemptible.

    Such a job is where all others stay, or else where the preemptible ones leave, or else spread
    over any up nodes, or over any nodes.
    """
    left = _find_unknown(problem, preemptible=False)
    if not left:
        return problem.placements
    jobs = problem.jobs
    needs = NodeNeeds(problem)
    stays = _find_known(problem, problem.placements)
    held = by_job(problem.placements)
    firm = stays & ~jobs.preemptible
    anywhere: dict[str, Any] = {"wish": Wish.PACKED, "most_nodes": len(problem.nodes), "pod": 1}
    for who, every_state, free in (
        (stays, False, {}),
        (firm, False, {}),
        (firm, False, anywhere),
        (firm, True, anywhere),
    ):
        left = _fit(needs, left, who, held, every_state, **free)
    return as_placements(held)


def _fit(
    needs: NodeNeeds,
    unknown: list[int],
    stays: Bools,
    held: dict[int, tuple[Place, ...]],
    every_state: bool = False,
    **free: Any,
) -> list[int]:
    """Add best places of unknown jobs to those of jobs that stay, and return who finds none."""
    jobs, left = needs.problem.jobs, list[int]()
    if not unknown:
        return left
    holes = needs.holes(every_state)
    for j, places in held.items():
        need = needs.of(j, int(jobs.pool[j]), int(jobs.gpus[j]))
        if stays[j] and jobs.primary[j] < 0 and holes.can_take(places, need):
            holes.take(places, need)
    for j in unknown:
        need = needs.of(j, int(jobs.pool[j]), int(jobs.gpus[j]))._replace(**free)
        best = holes.find(need)
        if best is None:
            left.append(j)
        else:
            holes.take(best, need)
            held[j] = best
    return left


def _find_known(problem: Problem, placed: Placements) -> Bools:
    """Find the running jobs that may stay, (J,); jobs without places may."""
    jobs = problem.jobs
    nodes = problem.nodes
    stays: Bools = jobs.state == State.RUNNING
    if not len(placed.job):
        return stays
    off = nodes.state[placed.node] != UP
    stays[placed.job[off & jobs.preemptible[placed.job]]] = False
    stays[placed.job[placed.gpu >= nodes.gpus[placed.node]]] = False  # a GPU that is gone
    for name, level in ((f"same_{level.name}", level) for level in problem.levels):
        domain = level.domain[placed.node]
        for j in np.flatnonzero(np.array(jobs.placement, object) == name).tolist():
            if jobs.preemptible[j] and len(np.unique(domain[placed.job == j])) > 1:
                stays[j] = False
    # latest first, preemptible jobs before the others
    order = np.lexsort((-jobs.submitted_s, ~jobs.preemptible))
    rank = np.empty(len(jobs), np.int64)
    rank[order] = np.arange(len(jobs))
    for n in find_crowded_nodes(problem, placed, stays[placed.job]).tolist():
        here = np.flatnonzero(placed.node == n)
        for row in here[np.argsort(rank[placed.job[here]])].tolist():
            if len(find_crowded_nodes(problem, placed, stays[placed.job] & (placed.node == n))):
                stays[placed.job[row]] = False
    return stays


def find_crowded_nodes(problem: Problem, placed: Placements, rows: Bools) -> Ints:
    """Find the nodes that hold less than some rows (L,) of `placed` need."""
    jobs = problem.jobs
    nodes = problem.nodes
    own = rows & (jobs.primary[placed.job] < 0)
    whole = own & (placed.gpu < 0)
    part = np.flatnonzero(own & (placed.gpu >= 0))
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
    return np.flatnonzero(crowded)
