"""Place a plan on nodes: whatever policy chose it, its jobs get nodes here.

    1. Jobs that keep their GPUs stay where they are.
    2. All others are placed by best fit, the largest first (formulations/placement/holes.py).
    3. A job that finds no nodes gets a hole that other jobs open by moving, if that gains value
       (openings.py); or its next best option for which there are nodes; or nothing.
    4. GPUs that are then free are offered to all jobs: the option that gains most value for its
       GPUs first.

Placement only restricts what a plan may do. So a bound on the value of plans that count GPUs by
pool holds for plans on nodes, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from allocator.domain.allocation import PlacedPlan
from allocator.domain.problem import Floats, Ints, State
from allocator.engine.placement.bound import bound_round
from allocator.engine.placement.openings import Opening, Openings, PlacedJobs
from allocator.engine.placement.search import search_plan
from allocator.options.instance_building import CompiledRound, same_columns
from allocator.options.node_needs import NONE, NodeNeeds, as_placements
from allocator.options.staying import Staying
from allocator.policies.base import Proposal, Task, relative_gap
from allocator.policies.free_capacity import FreeCapacity
from formulations.placement.holes import Need, Place, Wish

OFFERS = 4000  # most options that are tried for the GPUs that are free in the end
OPENINGS = 20  # most options for which holes are opened in the end
PASSES = 3
EPS = 1e-12
GAP_OF_ROUNDING = 1e-9
DEVIATES = "guarantees made the policy deviate from its own plan, so that nodes hold it"


PlacePlan = Callable[[Task, Proposal], tuple[Task, Proposal]]


def place_plan(task: Task, proposal: Proposal) -> tuple[Task, Proposal]:
    """Return the task and the plan of a policy on nodes, where pools have some.

    `proposal.choice` are columns of the task's round before and of the returned task's round after.
    """
    round_ = task.round
    if proposal.placed is not None:
        return task, proposal
    value_before = _value(round_, proposal.choice)
    work = _Placing(round_, proposal.choice)
    failed = work.place_all()
    if not failed:
        placed = PlacedPlan(as_placements(work.at), value_before, 0, 0, np.zeros(0, np.int64))
        return task, dataclasses.replace(proposal, placed=placed)
    wide = round_.with_moves()
    work.repair(wide, same_columns(round_, proposal.choice, wide), failed)
    proposal = _search_better(task, proposal, work)
    choice = work.choice
    unmet = work.capacity.owed
    moved = int(np.isin(choice, list(work.move_of.values())).sum())
    known = same_columns(round_, np.arange(len(round_.option)), wide)
    if wide.nodes.any() or not np.isin(choice[choice >= 0], known).all():
        task = dataclasses.replace(
            task, round=wide, known_dual=task.dual if task.has_dual else None
        )
    else:
        choice = same_columns(wide, choice, round_)
    (before, *others), after = _shapes(round_, proposal.choice), _shapes(task.round, choice)
    differs = np.any([a != b for a, b in zip((before, *others), after, strict=True)], axis=0)
    reduced = int(((before > 0) & differs).sum())
    placed = PlacedPlan(as_placements(work.at), value_before, moved, reduced, unmet)
    return task, dataclasses.replace(proposal, choice=choice, placed=placed)


def place_or_wait(task: Task, proposal: Proposal) -> tuple[Task, Proposal]:
    """Place a plan as somebody does who knows nothing of nodes when he plans.

    Jobs are placed by best fit. A job for which there are no nodes then waits and holds nothing.
    Parameters and result are those of `place_plan`; simulations compare the two.
    """
    round_ = task.round
    work = _Placing(round_, proposal.choice)
    failed = np.array(work.place_all(), np.int64)
    i = round_.instance
    choice = proposal.choice.copy()
    choice[failed] = -1
    primary = np.append(i.primary, -1)[choice]
    choice[(primary >= 0) & (choice[np.append(i.job, -1)[primary]] < 0)] = -1
    for j in np.flatnonzero(choice < 0).tolist():
        work.at.end(j)
    unmet = FreeCapacity(round_, choice).owed
    placed = PlacedPlan(
        as_placements(work.at), _value(round_, proposal.choice), 0, len(failed), unmet
    )
    return task, dataclasses.replace(proposal, choice=choice, placed=placed)


def _search_better(task: Task, proposal: Proposal, work: _Placing) -> Proposal:
    """Search a small round for a better plan on nodes, and return what is proven then.

    This is for plans that their policy proved to be the best by counts, and for guarantees that
    were not met. What a search leaves open, prices of holes may prove.
    """
    is_owed = bool(work.capacity.owed.any())
    is_proven = proposal.termination == "gap" and math.isfinite(proposal.bound)
    if not is_owed and (not is_proven or not _is_open(task, proposal, work)):
        return proposal
    better = search_plan(task, work.round)
    if better is not None and better.choice is not None:
        value = _value(work.round, work.choice)
        if is_owed or _value(work.round, better.choice) > value + EPS:
            work.take(better.choice, better.at)
        if not is_proven:
            return dataclasses.replace(proposal, detail=DEVIATES)
        if better.is_cut:
            proposal = dataclasses.replace(proposal, termination="time_limit")
        proposal = _with_bound(task, proposal, work, better.bound)
    if is_owed or not _is_open(task, proposal, work):
        return proposal
    bound = bound_round(task, work.round, _value(work.round, work.choice))
    return _with_bound(task, proposal, work, bound)


def _is_open(task: Task, proposal: Proposal, work: _Placing) -> bool:
    """Return whether the plan is not proven to be within the gap."""
    bound = min(task.bound, proposal.bound)
    gap = relative_gap(bound, _value(work.round, work.choice))
    return gap > max(task.limits.gap, GAP_OF_ROUNDING)


def _with_bound(task: Task, proposal: Proposal, work: _Placing, bound: float) -> Proposal:
    """Return the proposal with this upper bound, if the one that it has is higher.

    The bound may leave out the pairs of jobs that the round does not list. The task has a bound
    that counts them, and the larger of the two holds for all plans.
    """
    bound = max(bound, task.bound_with_other_pairs, _value(work.round, work.choice))
    if bound >= min(task.bound, proposal.bound):
        return proposal
    return dataclasses.replace(proposal, bound=bound, bound_by="placement")


def _shapes(round_: CompiledRound, choice: Ints) -> tuple[Ints, Ints, Ints]:
    """Return GPUs, pool and nodes of a spread shape that each job gets, (J,) each."""
    m = round_.option_table
    chosen = round_.chosen(choice)
    columns = ((m.gpus, 0), (m.pool, -1), (m.nodes, 0))
    gpus, pool, nodes = (np.append(column, nothing)[chosen] for column, nothing in columns)
    return gpus, pool, nodes


def _value(round_: CompiledRound, choice: Ints) -> float:
    return float(round_.instance.value[choice[choice >= 0]].sum())


class _Placing:
    """A plan while its jobs are placed.

    Attributes
    ----------
    choice : (J,)
        Columns of the round, -1 = nothing.
    at : dict
        The places of each job in pools with nodes.
    """

    def __init__(self, round_: CompiledRound, choice: Ints) -> None:
        self.round = round_
        self.choice = choice
        self.problem = round_.problem
        self.needs, self.held = NodeNeeds(self.problem), Staying.of(self.problem).held
        self.holes = self.needs.holes()
        self.at = PlacedJobs()
        self._has_nodes = self.problem.has_nodes.tolist()
        # needs for which no hole opened at this loss, since GPUs were last given up
        self._closed = dict[Need, float]()

    def place_all(self) -> list[int]:
        """Place the jobs of the plan, and return those for which there are no nodes."""
        i = self.round.instance
        on = np.flatnonzero(self.choice >= 0)
        own = i.primary[self.choice[on]] < 0
        on = on[own & self.problem.has_nodes[i.pool[self.choice[on]]]]
        stays = i.keep[self.choice[on]] & np.isin(on, list(self.held))
        for j in on[stays].tolist():
            self.holes.take(self.held[j], self._need_of(int(self.choice[j])))
            self.at.put(j, self.held[j])
        on = on[~stays]
        column = self.choice[on]
        in_domain = np.array([self.needs.of(j, 0, 1).wish is Wish.SAME for j in on.tolist()], bool)
        size = i.load[column]
        density = i.value[column] / np.maximum(size, EPS)
        owed = i.is_guaranteed[column]  # what a guarantee may need
        failed = []
        for j in on[np.lexsort((on, -density, -size, ~in_domain, ~owed))].tolist():
            need = self._need_of(int(self.choice[j]))
            places = self._find(int(self.choice[j]), need)
            if places is None:
                failed.append(j)
            else:
                self.holes.take(places, need)
                self.at.put(j, places)
        return failed + self._join_secondaries()

    def _join_secondaries(self) -> list[int]:
        """Put secondary jobs where their primary jobs are; return those that may not be there."""
        i = self.round.instance
        failed = []
        for j in np.flatnonzero(self.choice >= 0).tolist():
            primary = int(i.primary[self.choice[j]])
            if primary >= 0:
                self.at.end(j)
                places = self.at.get(int(i.job[primary]), ())
                if not places:
                    continue
                if i.keep[self.choice[j]] or self.holes.suits(places, self._need(j)):
                    self.at.put(j, places)
                else:
                    failed.append(j)
        return failed

    def repair(self, wide: CompiledRound, choice: Ints, failed: list[int]) -> None:
        """Serve jobs without nodes in another way, and offer what is free to all jobs.

        Parameters
        ----------
        wide : CompiledRound
            The round with moves; `choice` are its columns.
        failed : list of int
            The jobs of the plan that have no nodes.
        """
        i = wide.instance
        self.round = wide
        wanted = choice.copy()
        start = choice.copy()
        gone = np.zeros(len(start), bool)
        gone[failed] = True
        secondary = np.append(i.primary, -1)[start]
        gone |= (secondary >= 0) & gone[np.append(i.job, -1)[secondary]]
        start[gone] = -1
        for j in np.flatnonzero(gone).tolist():
            self.at.end(j)
        self.capacity = FreeCapacity(wide, start)
        self.choice = self.capacity.choice
        owed = np.array([self.capacity.owes(o) for o in wanted[failed].tolist()], bool)
        value = i.value[wanted[failed]]
        order = np.lexsort(
            (-value / np.maximum(i.load[wanted[failed]], EPS), ~owed, ~i.mandatory[failed])
        )
        for j in np.array(failed)[order].tolist():
            self._serve(j, int(wanted[j]))
        for _ in range(PASSES):
            if not self._offer():
                break
        self._meet_guarantees()
        self._finish()

    def take(self, choice: Ints, at: PlacedJobs) -> None:
        """Take over another plan of the round with moves, and its places."""
        self.capacity = FreeCapacity(self.round, choice)
        self.choice = self.capacity.choice
        self.at = at
        self._finish()

    def _finish(self) -> None:
        """Let jobs keep their GPUs that moved back to where they were; place secondary jobs."""
        i = self.round.instance
        keep = dict(zip(i.job[i.keep].tolist(), np.flatnonzero(i.keep).tolist(), strict=True))
        for j, column in self.move_of.items():
            if self.choice[j] == column and set(self.at.get(j, ())) == set(self.held.get(j, ())):
                self.choice[j] = keep[j]
        for j in self._join_secondaries():
            self.capacity.withdraw(j)

    @cached_property
    def move_of(self) -> dict[int, int]:
        """The column that moves each running job within its pool."""
        i = self.round.instance
        jobs = self.problem.jobs
        same = (i.pool == jobs.pool[i.job]) & (i.gpus == jobs.gpus[i.job]) & (i.primary < 0)
        # a job that has to leave its nodes does not move for others
        same &= np.isin(i.job, i.job[i.keep])
        shape = np.zeros(len(i.mandatory), np.int64)
        shape[i.job[i.keep]] = self.round.nodes[i.keep]
        same &= self.round.nodes == shape[i.job]
        moves = np.flatnonzero(same & ~i.keep & (jobs.state[i.job] == State.RUNNING))
        return dict(zip(i.job[moves].tolist(), moves.tolist(), strict=True))

    def _loss(self, j: int) -> float:
        """Return what job j loses if it gets other nodes, inf if it may not."""
        i = self.round.instance
        now = int(self.choice[j])
        if j in self._primaries:
            return math.inf
        if not i.keep[now] or j not in self.held:
            return 0.0
        move = self.move_of.get(j, -1)
        return math.inf if move < 0 else float(i.value[now] - i.value[move])

    @cached_property
    def _openings(self) -> Openings:
        """The openings of the round with moves."""
        return Openings(self.holes, self.at, self._need, self._loss, self._end_loss)

    @cached_property
    def _primaries(self) -> set[int]:
        """Jobs of the plan on whose GPUs another job runs, and those that run there."""
        i = self.round.instance
        on = self.choice[self.choice >= 0]
        secondary = on[i.primary[on] >= 0]
        return {*i.job[i.primary[secondary]].tolist(), *i.job[secondary].tolist()}

    def _need(self, j: int) -> Need:
        column = int(self.choice[j])
        need = self._need_of(column)
        if not self.round.avoids or not self.round.instance.keep[column]:
            return need
        # a job that keeps its GPUs may be where it is, but it may not go to all nodes
        return need._replace(avoids=self.round.avoids.get(self.move_of.get(j, -1), NONE))

    def _need_of(self, column: int) -> Need:
        """Return what a column needs of nodes."""
        return self.round.need_of(self.needs, column)

    def _end_loss(self, j: int) -> float:
        """Return what job j loses if it gets nothing, inf if it must get something."""
        i = self.round.instance
        firm = i.mandatory[j] or j in self._primaries
        firm |= self.capacity.needs(int(self.choice[j]))
        return math.inf if firm else max(0.0, float(i.value[self.choice[j]]))

    def _serve(self, j: int, wanted: int) -> None:
        """Give job j what it was to get by moving others, or else its next best option."""
        i = self.round.instance
        others = self._find_others(j, wanted)
        other = next(others, None)
        least = float(i.value[other[0]]) if other else 0.0
        is_secondary = i.primary[wanted] >= 0
        # a guarantee is met at whatever cost, while what the plan leaves free is still free
        is_owed = other is None and (i.mandatory[j] or self.capacity.owes(wanted))
        gain = math.inf if is_owed else float(i.value[wanted]) - least
        if is_secondary or not self._open(j, wanted, gain):
            while other is not None and not self.capacity.assign(j, other[0]):
                other = next(others, None)
            if other is not None:
                self._settle(j, other[1])

    def _open(self, j: int, column: int, gain: float) -> bool:
        """Open a hole for a column of a job if other jobs lose less than the gain."""
        i = self.round.instance
        need = self._need_of(column)
        stays = i.keep[column] and j in self.held  # these nodes and no others
        if gain <= EPS or stays or not self._has_nodes[i.pool[column]]:
            return False
        if gain <= self._closed.get(need, 0.0):
            return False
        opening = self._openings.find(need, gain)
        if opening is None:
            self._closed[need] = gain
        if opening is None or not self._carry_out(opening, j, column):
            return False
        self._settle(j, opening.places)
        return True

    def _carry_out(self, opening: Opening, job: int, wanted: int) -> bool:
        """Move jobs and give `job` its column.

        Return False, without a change, if a rule such as the limit on changes forbids it.
        """
        i = self.round.instance
        before = self.capacity.copy()
        needs = {j: self._need(j) for j in opening.moves}
        for j, to in opening.moves.items():
            leaves = i.keep[self.choice[j]] and j in self.held
            if not to:
                fine = self.capacity.withdraw(j)
            else:
                fine = not leaves or self.capacity.assign(j, self.move_of[j])
            if not fine:
                break
        else:
            fine = self.capacity.assign(job, wanted)
        if not fine:
            self.capacity = before
            self.choice = before.choice
            return False
        self._closed.clear()
        for j in opening.moves:
            self.holes.release(self.at.end(j), needs[j])
        for j, to in opening.moves.items():
            if to:
                self.holes.take(to, needs[j])
                self.at.put(j, to)
        return True

    def _settle(self, j: int, places: tuple[Place, ...]) -> None:
        if places:
            self.holes.take(places, self._need(j))
            self.at.put(j, places)

    def _find_others(self, j: int, wanted: int) -> Iterator[tuple[int, tuple[Place, ...]]]:
        """Yield other columns for which there are nodes and GPUs, with places, the best first."""
        i = self.round.instance
        columns = np.arange(i.start[j], i.start[j + 1])
        columns = columns[(columns != wanted) & (i.primary[columns] < 0)]
        for o in columns[np.argsort(-i.value[columns], kind="stable")].tolist():
            if i.value[o] <= 0 and not i.mandatory[j]:
                break
            if i.load[o] <= self.capacity.free[i.pool[o]] + EPS:
                places = self._places_of(j, o)
                if places is not None:
                    yield o, places

    def _places_of(self, j: int, o: int) -> tuple[Place, ...] | None:
        """Return places for a column of a job, () in a pool without nodes, None = nowhere."""
        i = self.round.instance
        pool = int(i.pool[o])
        if not self._has_nodes[pool]:
            return ()
        need = self._need_of(o)
        held = self.held.get(j)
        if i.keep[o] and held is not None:
            return held if self.holes.can_take(held, need) else None
        return self._find(o, need)

    def _find(self, o: int, need: Need) -> tuple[Place, ...] | None:
        """Return places for a column, if possible on nodes that stay until its job is done."""
        shuns = self.round.shuns.get(o)
        places = self.holes.find(need, shuns) if shuns else None
        return self.holes.find(need) if places is None else places

    def _offer(self) -> int:
        """Offer free GPUs to all jobs, and return how many took some."""
        i = self.round.instance
        now = self.choice
        has = np.append(i.value, 0.0)[now]
        same = np.append(i.pool, -1)[now][i.job] == i.pool
        extra = i.load - np.where(same, np.append(i.load, 0)[now][i.job], 0)
        free = np.array(self.capacity.free)
        gain = i.value - has[i.job]
        bound_to = np.zeros(len(now), bool)
        bound_to[list(self._primaries)] = True
        could = (gain > EPS) & (extra <= free[i.pool] + EPS) & (i.primary < 0) & ~bound_to[i.job]
        offers: Ints = np.flatnonzero(could)
        density: Floats = gain[offers] / np.maximum(extra[offers], EPS)
        taken = 0
        left = OPENINGS
        for o in offers[np.argsort(-density, kind="stable")][:OFFERS].tolist():
            j = int(i.job[o])
            before = int(self.choice[j])
            if i.value[o] <= (i.value[before] if before >= 0 else 0.0) + EPS:
                continue
            done = self._swap(j, before, o)
            if not done and before < 0 and left > 0:
                left -= 1
                done = self._open(j, o, float(i.value[o]))
            taken += done
        return taken

    def _meet_guarantees(self) -> None:
        """Serve tenants that lack GPUs of their guarantee, at whatever cost to other tenants."""
        i = self.round.instance
        for q in np.flatnonzero(self.capacity.owed).tolist():
            columns = np.flatnonzero((i.account == q).any(axis=0) & (i.primary < 0))
            for o in columns[np.argsort(-i.value[columns], kind="stable")].tolist():
                if self.capacity.owed[q] <= 0:
                    break
                j = int(i.job[o])
                before = int(self.choice[j])
                if i.gpus[o] <= (i.gpus[before] if before >= 0 else 0):
                    continue
                if not self._swap(j, before, o) and before < 0:
                    self._open(j, o, math.inf)

    def _swap(self, j: int, before: int, o: int) -> bool:
        """Give job j column o in place of column `before` if there are GPUs and nodes for it."""
        old = self.at.end(j)
        need = self._need(j) if before >= 0 else None
        if need is not None and old:
            self.holes.release(old, need)
        places = self._places_of(j, o)
        if places is not None and self.capacity.assign(j, o):
            if old:
                self._closed.clear()
            self._settle(j, places)
            return True
        if need is not None and old:
            self.holes.take(old, need)
            self.at.put(j, old)
        return False
