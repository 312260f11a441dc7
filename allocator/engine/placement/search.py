"""Find the best plan of a small round on nodes, by one model of its options and their places."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Ints
from allocator.engine.placement.openings import PlacedJobs
from allocator.options.instance_building import CompiledRound
from allocator.options.node_needs import NodeNeeds
from allocator.options.staying import Staying
from allocator.policies.base import Task
from allocator.policies.free_capacity import keeps_rules
from allocator.solvers import registry
from allocator.solvers.base import Termination
from formulations.placement.exact import place_options

SMALL = 800  # most places of options in a round that is searched
SEARCH_S = 2.0  # most seconds of a search
# both where the gap is to be 0
SMALL_AT_0 = 4000
SEARCH_AT_0_S = 30.0
SHARE = 0.45  # share of the gap that the search has to prove, as in policies/fallback.py


@dataclass(frozen=True)
class FoundPlan:
    """What a search found: a plan on nodes, or the proof that there is none.

    Attributes
    ----------
    choice : (J,) or None
        Columns of the round, None = no plan keeps the rules.
    at : PlacedJobs
        The places of its jobs, without those of secondary jobs.
    bound : float
        No plan on nodes has a higher value.
    is_cut : bool
        Whether time ended the search.
    """

    choice: Ints | None
    at: PlacedJobs
    bound: float
    is_cut: bool


def search_plan(task: Task, wide: CompiledRound) -> FoundPlan | None:
    """Return the best plan of a small round with moves, None if the round is too large.

    It is None, too, if the solver found no plan in time, or one that is wrong.
    """
    problem, i = wide.problem, wide.instance
    jobs = problem.jobs
    staying = Staying.of(problem)
    # the columns that take GPUs of nodes, and those of them that can have one set of places only
    columns = np.flatnonzero((i.primary < 0) & problem.has_nodes[i.pool])
    job, pool = i.job[columns], i.pool[columns]
    # where a preemptible job is whose nodes are unknown is free
    firm = ~staying.assumed | ~jobs.preemptible
    fixed = i.keep[columns] & firm[job] & np.isin(job, list(staying.held))
    places = np.bincount(problem.nodes.pool, minlength=len(problem.pools))
    gpus = np.bincount(problem.nodes.pool, problem.nodes.gpus, len(problem.pools))
    size = np.where(np.isnan(jobs.gpu_fraction[job]), places[pool], gpus[pool])[~fixed].sum()
    most, seconds = (SMALL, SEARCH_S) if task.limits.gap > 0 else (SMALL_AT_0, SEARCH_AT_0_S)
    if size > most or registry.available("highs") is None:
        return None
    needs = NodeNeeds(problem)
    needs_of = {c: wide.need_of(needs, c) for c in columns.tolist()}
    for c in columns[fixed & jobs.preemptible[job]].tolist():
        needs_of[c] = needs_of[c]._replace(leaves=())  # what it keeps need not be left
    stays = {c: staying.held[int(i.job[c])] for c in columns[fixed].tolist()}
    placed = place_options(wide.model, needs_of, stays, needs.holes())
    left = task.remaining()
    limits = dataclasses.replace(
        left, time_s=min(seconds, left.time_s), gap=SHARE * left.gap, watch=None
    )
    answer = registry.get("highs").solve(placed.model, limits)
    if answer.termination is Termination.INFEASIBLE:
        return FoundPlan(None, PlacedJobs(), -math.inf, False)
    if answer.values is None or not placed.model.feasible(np.round(answer.values)):
        return None
    spots = placed.places(answer.values) | stays
    choice = np.full(len(i.mandatory), -1)
    at = PlacedJobs()
    for c in np.flatnonzero(answer.values[: len(i.value)] > 0.5).tolist():
        choice[i.job[c]] = c
        if c in spots:
            at.put(int(i.job[c]), spots[c])
    is_cut = answer.termination is Termination.TIME_LIMIT
    return FoundPlan(choice, at, answer.bound, is_cut) if keeps_rules(wide, choice) else None
