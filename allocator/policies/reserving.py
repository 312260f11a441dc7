"""Who gets a reservation: a large job that smaller, later ones would pass over for ever (R67).

A round sees no later round, and the few GPUs that get free at a time always go to smaller jobs. So
a job that the plan of a round without reservations passes over may get one
(allocator/options/kept/reservations.py). Another job passes it over if it was submitted later, has
no more weight and needs fewer GPUs. The large job has to need more GPUs than are free by the next
round: a smaller one waits for its turn, not for room. There are two cases:

  - It starts, and may not be stopped: each such start delays the large job for a whole run. T is
    when the jobs that run and may not be stopped leave k GPUs, in whole rounds. Of several in a
    pool, the one with the largest weight x time since it was submitted gets the reservation.
  - It can be stopped. That costs the large job no more than the round, and short jobs may come
    first. But once the large job has been there for `due_after_runs` times its run alone, it is
    due: it starts now if those that pass it over, and have no earlier deadline that counts, hold
    enough GPUs for it. If it runs, it is not stopped from half of that time on. This holds for as
    many jobs as fit.

Quotas and budgets have to allow the job beside those that may not be stopped. A reservation is not
kept in any state: as long as the job would be passed over, each round finds it again.

The first case is backfill with one reservation (EASY: Lifka, "The ANL/IBM SP scheduling system",
JSSPP 1995), with the objective in place of the order of the queue. The second bounds the slowdown
of jobs where shorter ones come first (Feitelson et al., "Theory and practice in parallel job
scheduling", JSSPP 1997).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.domain.objectives import parse_objectives
from allocator.domain.problem import SAME, Bools, Floats, Ints, Placements, Reservation, State
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.reservations import count_kept, ends_after, needed_s, option_ends
from allocator.options.node_needs import NONE, NodeNeeds, by_job
from allocator.options.staying import Staying
from allocator.policies.free_capacity import FreeCapacity
from formulations.model.linear import begins_run
from formulations.placement.holes import Place

TRIED = 20  # most jobs for each pool that are looked at


def find_reservations(
    round_: CompiledRound, choice: Ints, places: Placements
) -> tuple[Reservation, ...]:
    """Return the reservations that large jobs need, found from a plan without reservations.

    The most urgent one comes first.

    choice (J,) are columns of the round, `places` the nodes that the plan gives its jobs.
    """
    problem, i = round_.problem, round_.instance
    jobs = problem.jobs
    age_s = problem.now_s - jobs.submitted_s
    taken = _Taken.of(round_, choice)
    firm, soon = ~jobs.preemptible, taken.count_free(problem.interval_s)
    passed = taken.large & (jobs.state != State.RUNNING) & (age_s >= problem.reserve_after_s)
    passed &= taken.is_passed_over(taken.ends & firm)
    due = taken.due_s <= 0
    if not (passed | due).any():
        return ()
    stay = np.flatnonzero(i.keep & i.mandatory[i.job] & (i.primary < 0))
    staying = np.full(len(choice), -1)
    staying[i.job[stay]] = stay
    beside = FreeCapacity(round_, staying)
    held = Staying.of(problem).held if problem.has_nodes.any() else {}
    of_plan, at, needs = choice[firm & (choice >= 0)], by_job(places), NodeNeeds(problem)
    urgency = jobs.weight * (age_s + problem.interval_s)
    # the smallest column with a value of each of the jobs in each pool
    column = np.flatnonzero((passed | due)[i.job] & (i.value > 0) & (i.primary < 0))
    column = column[np.lexsort((i.held[column], i.pool[column], i.job[column]))]
    column = column[begins_run(i.job[column], i.pool[column])]
    start: list[Reservation] = []
    reservations: dict[int, Reservation] = {}
    tried: Counter[int] = Counter()
    for o in column[np.argsort(-urgency[i.job[column]], kind="stable")].tolist():
        j, p, gpus = int(i.job[o]), int(i.pool[o]), int(i.held[o])
        if beside.choice[j] >= 0 or tried[p] >= TRIED or not beside.can_afford(o):
            continue
        tried[p] += 1
        after_s, nodes = _find_start(round_, needs, o, stay, held)
        if due[j] and after_s == 0 and gpus > soon[p] and beside.assign(j, o):
            if taken.give(j, p, gpus):
                start.append(Reservation(j, p, gpus, after_s))
                tried[p] -= 1
                continue
            beside.withdraw(j)
        if not passed[j] or p in reservations:
            continue
        soonest_s, _ = _find_start(round_, needs, o, of_plan, at)
        if soonest_s > problem.interval_s and math.isfinite(after_s):
            reservations[p] = Reservation(j, p, gpus, after_s, nodes)
    first: dict[int, Reservation] = {}
    for r in (*start, *sorted(reservations.values(), key=lambda r: r.after_s)):
        first.setdefault(r.job, r)
    return tuple(first.values())


def find_due_starts(round_: CompiledRound, choice: Ints) -> Floats:
    """Return the seconds, in whole rounds, until each waiting job is due and starts, (J,).

    inf = not known: no job passes it over in the plan, or those that do not still hold too much
    then. choice (J,) are columns of the round.
    """
    i, interval_s, taken = round_.instance, round_.problem.interval_s, _Taken.of(round_, choice)
    due_s = np.where(round_.problem.jobs.state != State.RUNNING, taken.due_s, np.inf)
    out = np.full(len(due_s), np.inf)
    column = np.flatnonzero(np.isfinite(due_s)[i.job] & (i.value > 0) & (i.primary < 0))
    for o in column[np.lexsort((i.held[column], due_s[i.job[column]]))].tolist():
        j = int(i.job[o])
        after_s = max(1, math.ceil(due_s[j] / interval_s - SAME)) * interval_s
        if out[j] == np.inf and taken.give(j, int(i.pool[o]), int(i.held[o]), after_s):
            out[j] = after_s
    return out


@dataclass(frozen=True)
class _Taken:
    """What the jobs of a plan hold, (J,), and what jobs that are due have taken of it.

    `needs` are the GPUs that they hold, or, if they can be stopped, could do with. `ends` marks
    those that can be stopped or do not run yet, `large` those that hold nothing and need more than
    a GPU. `free` are the GPUs that nobody holds, (P,).
    """

    round: CompiledRound
    pool: Ints
    gpus: Ints
    needs: Ints
    end_s: Floats
    deadline_s: Floats
    ends: Bools
    large: Bools

    @classmethod
    def of(cls, round_: CompiledRound, choice: Ints) -> _Taken:
        """Return what a choice of columns gives."""
        problem, i, on = round_.problem, round_.instance, choice >= 0
        jobs = problem.jobs
        pool, gpus = np.append(i.pool, -1)[choice], np.append(i.held, 0)[choice]
        counts = any(o.counts_deadlines for o in parse_objectives(problem.objective))
        end_s = np.zeros(len(jobs))
        end_s[on] = option_ends(problem, round_.option_table, round_.option[choice[on]])
        return cls(
            round_,
            pool,
            gpus,
            np.where(jobs.preemptible, np.minimum(gpus, jobs.min_gpus), gpus),
            end_s,
            np.where(counts & ~np.isnan(jobs.deadline_s), jobs.deadline_s, np.inf),
            on & (jobs.preemptible | (jobs.state != State.RUNNING)),
            ~on & (jobs.min_gpus > 1),
        )

    def count_free(self, after_s: float) -> Ints:
        """Return the GPUs that are free after so many seconds, (P,)."""
        there, capacity = ends_after(self.end_s, after_s), self.round.instance.capacity
        used = np.bincount(self.pool[there], self.gpus[there], len(capacity))
        return capacity - used.astype(np.int64)

    @cached_property
    def free(self) -> Ints:
        """The GPUs that nobody holds, (P,)."""
        return self.count_free(0.0)

    @cached_property
    def due_s(self) -> Floats:
        """Seconds until jobs that are passed over are due, (J,), inf = never."""
        problem, m = self.round.problem, self.round.option_table
        jobs = problem.jobs
        waiting = jobs.state != State.RUNNING
        soon = self.count_free(problem.interval_s).min(initial=jobs.min_gpus.max(initial=0))
        due = self.large & (waiting | jobs.preemptible) & (jobs.min_gpus > soon)
        if not (due.any() and math.isfinite(problem.due_after_runs)):
            return np.full(len(due), np.inf)
        own = np.flatnonzero(due[m.job] & (m.primary < 0))
        fastest = np.zeros(len(due))
        np.maximum.at(fastest, m.job[own], m.rate[own])
        with np.errstate(divide="ignore"):
            alone_s = jobs.total_work / fastest
        # the guessed size of a running job grows, which is no reason to stop it
        share = problem.due_after_runs * np.where(waiting, 1.0, 0.5)
        since_s = np.maximum(share * alone_s, problem.reserve_after_s) + jobs.submitted_s
        return np.where(due & self.is_passed_over(self.ends), since_s - problem.now_s, np.inf)

    def is_passed_over(self, others: Bools) -> Bools:
        """Find the jobs that some of others (J,) pass over, (J,)."""
        jobs = self.round.problem.jobs
        out = np.zeros(len(jobs), dtype=bool)
        if not (others.any() and self.large.any()):
            return out
        columns = (x[others].tolist() for x in (jobs.weight, self.needs, jobs.submitted_s))
        latest = {(weight, k): at_s for weight, k, at_s in sorted(zip(*columns, strict=True))}
        for (weight, k), submitted_s in latest.items():
            later = (jobs.submitted_s < submitted_s) & (jobs.weight >= weight)
            out |= later & (jobs.min_gpus > k)
        return out

    def give(self, j: int, pool: int, gpus: int, after_s: float = 0.0) -> bool:
        """Give GPUs that are free then, or that jobs which pass j over hold, the latest first.

        Return False, without a change, if these are too few.
        """
        jobs = self.round.problem.jobs
        over = self.ends & (jobs.submitted_s > jobs.submitted_s[j])
        over &= (jobs.weight <= jobs.weight[j]) & (self.needs < jobs.min_gpus[j])
        over &= self.deadline_s >= self.deadline_s[j]
        latest = np.flatnonzero((over | ~ends_after(self.end_s, after_s)) & (self.pool == pool))
        latest = latest[np.argsort(-jobs.submitted_s[latest], kind="stable")]
        free = self.free[pool] + np.append(0, np.cumsum(self.gpus[latest]))
        if free[-1] < gpus:
            return False
        count = int(np.searchsorted(free, gpus))
        self.free[pool] = free[count] - gpus
        self.gpus[latest[:count]] = 0
        return True


def _find_start(
    round_: CompiledRound,
    needs: NodeNeeds,
    o: int,
    columns: Ints,
    places: Mapping[int, tuple[Place, ...]],
) -> tuple[float, tuple[tuple[int, int], ...]]:
    """Return the seconds until there is room for a column, in whole rounds, and its nodes.

    The seconds are inf if there never is. columns (n,) are chosen and may not be stopped; `places`
    has the nodes of their jobs, where pools have nodes.
    """
    i, m, problem = round_.instance, round_.option_table, round_.problem
    nodes, asked, D = problem.nodes, problem.asked, problem.interval_s
    pool, gpus = int(i.pool[o]), int(i.held[o])
    columns = columns[i.pool[columns] == pool]
    end_s, back_s, over_s = (
        np.ceil(at_s / D - SAME) * D
        for at_s in (
            option_ends(problem, m, round_.option[columns]),
            nodes.returns_s - problem.now_s,
            asked.until_s - problem.now_s,
        )
    )
    holes = None
    spots = {}
    if problem.has_nodes[pool]:
        holes = needs.holes(np.isfinite(back_s))
        for c in columns.tolist():
            spots[c] = places.get(int(i.job[c]), ()), round_.need_of(needs, c)
            holes.take(*spots[c])
    free = int(i.capacity[pool]) - int(i.held[columns].sum())
    free += int(nodes.gpus[(nodes.pool == pool) & np.isfinite(back_s)].sum())
    held = np.bincount(i.job[columns], i.held[columns], len(problem.jobs))
    changes_s = np.concatenate([[0.0], end_s, back_s, over_s])
    for time_s in np.unique(changes_s[np.isfinite(changes_s)]).tolist():
        for c in columns[end_s == time_s].tolist():
            free += int(i.held[c])
            held[i.job[c]] = 0
            if holes is not None:
                holes.release(*spots[c])
        # until when the column needs its GPUs, if it starts then
        until_s = (time_s + needed_s(problem, m, round_.option[[o]])[0]) * (1 - SAME)
        kept = (asked.at_s - problem.now_s < until_s) & (over_s > time_s)
        rows = np.flatnonzero((asked.pool == pool) & kept)
        if free - count_kept(problem, rows, int(i.job[o]), held) >= gpus:
            need = round_.need_of(needs, o)._replace(avoids=NONE)
            # nodes that are away then
            away = (nodes.leaves_s - problem.now_s < until_s) & (back_s > time_s)
            out = set(np.flatnonzero(away).tolist())
            hole = () if holes is None else holes.find(need, out)
            if hole is not None:
                return time_s, tuple((n, k) for n, k, _ in hole)
    return math.inf, ()
