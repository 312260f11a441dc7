"""Find the best plan of a small round on nodes, by one model of its options and their places."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

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
from formulations.placement.holes import Need, Place

SMALL = 800  # most places of options in a round that is searched
SEARCH_S = 2.0  # most seconds of a search
# both where the gap is to be 0
SMALL_AT_0 = 4000
SEARCH_AT_0_S = 30.0
SHARE = 0.45  # share of the gap that the search has to prove, as in policies/mip.py


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
    search = _Search(wide)
    most, seconds = (SMALL, SEARCH_S) if task.limits.gap > 0 else (SMALL_AT_0, SEARCH_AT_0_S)
    if search.size > most or registry.available("highs") is None:
        return None
    placed = place_options(wide.model, search.needs_of, search.stays, search.needs.holes())
    left = task.remaining()
    limits = dataclasses.replace(
        left, time_s=min(seconds, left.time_s), gap=SHARE * left.gap, watch=None
    )
    answer = registry.get("highs").solve(placed.model, limits)
    is_cut = answer.termination is Termination.TIME_LIMIT
    if answer.termination is Termination.INFEASIBLE:
        return FoundPlan(None, PlacedJobs(), -math.inf, False)
    if answer.values is None or not placed.model.feasible(np.round(answer.values)):
        return None
    return search.read(placed.places(answer.values), answer.values, answer.bound, is_cut)


class _Search:
    """The columns of a round that take GPUs of nodes, what they need, and those that stay."""

    def __init__(self, wide: CompiledRound) -> None:
        self.round = wide
        problem = wide.problem
        i = wide.instance
        jobs = problem.jobs
        staying = Staying.of(problem)
        self.needs = NodeNeeds(problem)
        self._held = staying.held
        self._columns = np.flatnonzero((i.primary < 0) & problem.has_nodes[i.pool])
        job = i.job[self._columns]
        pool = i.pool[self._columns]
        # where a preemptible job is whose nodes are unknown is free
        firm = ~staying.assumed | ~jobs.preemptible
        firm &= np.isin(np.arange(len(jobs)), list(staying.held))
        self._stays = i.keep[self._columns] & firm[job]
        places = np.bincount(problem.nodes.pool, minlength=len(problem.pools))
        gpus = np.bincount(problem.nodes.pool, problem.nodes.gpus, len(problem.pools))
        each = np.where(np.isnan(jobs.gpu_fraction[job]), places[pool], gpus[pool])
        self.size = int(each[~self._stays].sum())

    @cached_property
    def needs_of(self) -> dict[int, Need]:
        """What each column needs."""
        return {c: self.round.need_of(self.needs, c) for c in self._columns.tolist()}

    @cached_property
    def stays(self) -> dict[int, tuple[Place, ...]]:
        """The places of the columns that can have these places only."""
        job = self.round.instance.job
        return {c: self._held[int(job[c])] for c in self._columns[self._stays].tolist()}

    def read(
        self, places: dict[int, tuple[Place, ...]], x: np.ndarray, bound: float, is_cut: bool
    ) -> FoundPlan | None:
        """Return the plan of an answer, None if it breaks a rule."""
        i = self.round.instance
        choice = np.full(len(i.mandatory), -1)
        at = PlacedJobs()
        chosen = np.flatnonzero(x[: len(i.value)] > 0.5)
        choice[i.job[chosen]] = chosen
        for c in chosen.tolist():
            j = int(i.job[c])
            spot = self.stays.get(c) or places.get(c)
            if spot is not None:
                at.put(j, spot)
        return FoundPlan(choice, at, bound, is_cut) if keeps_rules(self.round, choice) else None
