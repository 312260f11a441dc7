"""Who gets a reservation: a large job that smaller, later ones would pass over for ever (R67).

A round sees no later round. So where jobs may not be stopped, a job of many GPUs never starts: the
few that get free at a time always go to smaller jobs. It gets a reservation
(allocator/options/kept/reservations.py) if, in the plan of the round without one,

  - it waits, and has waited for `reserve_after_s`;
  - a job starts that may not be stopped, was submitted later, has no more weight and needs fewer
    GPUs;
  - the jobs of the plan that may not be stopped do not leave it enough GPUs by the next round;
  - quotas and budgets allow it beside the jobs that may not be stopped.

Of several in a pool, the one with the largest weight x time since it was submitted gets it. T is
when the jobs that run and may not be stopped leave k GPUs, in whole rounds. A reservation is not
kept in any state: as long as the job would be passed over, each round finds it again.

The rule is that of backfill with one reservation (EASY: Lifka, "The ANL/IBM SP scheduling system",
JSSPP 1995), with the objective in place of the order of the queue, and with jobs that can be
stopped left to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

from allocator.domain.problem import SAME, Bools, Ints, Placements, Problem, Reservation, State
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.leaving import needed_s
from allocator.options.kept.reservations import option_ends
from allocator.options.node_needs import NONE, UP, NodeNeeds, by_job
from allocator.options.staying import Staying
from allocator.policies.free_capacity import FreeCapacity
from formulations.placement.holes import Place

TRIED = 20  # most jobs for each pool that are looked at


def find_reservations(
    round_: CompiledRound, choice: Ints, places: Placements
) -> tuple[Reservation, ...]:
    """Return the reservations that a plan without any calls for, one for each pool at most.

    choice (J,) are columns of the round, `places` the nodes that the plan gives its jobs.
    """
    problem = round_.problem
    i = round_.instance
    jobs = problem.jobs
    waiting = jobs.state != State.RUNNING
    firm = ~jobs.preemptible
    starts = np.flatnonzero(firm & waiting & (choice >= 0))
    age_s = problem.now_s - jobs.submitted_s
    large = (choice < 0) & waiting & (age_s >= problem.reserve_after_s)
    large &= _is_passed_over(problem, i.held[choice[starts]], starts)
    if not large.any():
        return ()
    stay = np.flatnonzero(i.keep & i.mandatory[i.job] & (i.primary < 0))
    ends = _Ends(round_, stay, Staying.of(problem).held if problem.has_nodes.any() else {})
    ends_of_plan = _Ends(round_, choice[firm & (choice >= 0)], by_job(places))
    beside = FreeCapacity(round_, _choice_of(round_, stay))
    urgency = jobs.weight * (age_s + problem.interval_s)
    column = _smallest_columns(round_, large)
    found: dict[int, Reservation] = {}
    tried: Counter[int] = Counter()
    for o in column[np.argsort(-urgency[i.job[column]], kind="stable")].tolist():
        j, p = int(i.job[o]), int(i.pool[o])
        if p in found or tried[p] >= TRIED or not beside.can_afford(o):
            continue
        tried[p] += 1
        after_s, nodes = ends.find_start(o)
        if math.isfinite(after_s) and ends_of_plan.find_start(o)[0] > problem.interval_s:
            up = problem.nodes.state == UP
            kept = sum(k for n, k in nodes if up[n]) if nodes else int(i.held[o])
            found[p] = Reservation(j, p, kept, after_s, nodes)
    first: dict[int, Reservation] = {}
    for r in sorted(found.values(), key=lambda r: r.after_s):
        first.setdefault(r.job, r)
    return tuple(first.values())


def _is_passed_over(problem: Problem, gpus: Ints, starts: Ints) -> Bools:
    """Find the jobs later than which a job of no more weight and fewer GPUs starts, (J,).

    starts (n,) are the jobs that start and may not be stopped, with their GPUs.
    """
    jobs = problem.jobs
    out = np.zeros(len(jobs), dtype=bool)
    kinds, kind = np.unique(
        np.column_stack([jobs.weight[starts], gpus]), axis=0, return_inverse=True
    )
    latest_s = np.full(len(kinds), -np.inf)
    np.maximum.at(latest_s, kind.ravel(), jobs.submitted_s[starts])
    for (weight, k), submitted_s in zip(kinds.tolist(), latest_s.tolist(), strict=True):
        out |= (jobs.submitted_s < submitted_s) & (jobs.weight >= weight) & (jobs.min_gpus > k)
    return out


def _smallest_columns(round_: CompiledRound, of: Bools) -> Ints:
    """Return the smallest column with a value of each of these jobs in each pool, (n,)."""
    i = round_.instance
    able = np.flatnonzero(of[i.job] & (i.value > 0) & (i.primary < 0))
    able = able[np.lexsort((i.held[able], i.pool[able], i.job[able]))]
    key = i.job[able] * len(i.capacity) + i.pool[able]
    return able[np.flatnonzero(np.diff(key, prepend=-1))]


def _choice_of(round_: CompiledRound, columns: Ints) -> Ints:
    choice = np.full(len(round_.problem.jobs), -1)
    choice[round_.instance.job[columns]] = columns
    return choice


class _Ends:
    """When columns (n,) that are chosen and may not be stopped leave their GPUs.

    `places` has the nodes of their jobs, where pools have nodes.
    """

    def __init__(
        self, round_: CompiledRound, columns: Ints, places: Mapping[int, tuple[Place, ...]]
    ) -> None:
        end_s = option_ends(round_.problem, round_.option_table)[round_.option[columns]]
        interval_s = round_.problem.interval_s
        order = np.argsort(end_s, kind="stable")
        self._round = round_
        self._columns = columns[order]
        self._end_s = np.ceil(end_s[order] / interval_s - SAME) * interval_s
        self._places = places
        self._needs = NodeNeeds(round_.problem)
        self._needed_s = needed_s(round_.problem, round_.option_table)[round_.option]
        nodes = round_.problem.nodes
        self._leave_s, back_s = (
            x - round_.problem.now_s for x in (nodes.leaves_s, nodes.returns_s)
        )
        self._back_s = np.ceil(back_s / interval_s - SAME) * interval_s

    def _away(self, o: int, time_s: float) -> set[int]:
        """Return the nodes that are away while a column needs them, if it starts then."""
        until_s = (time_s + float(self._needed_s[o])) * (1 - SAME)
        away = (self._leave_s < until_s) & (self._back_s > time_s)
        return set(np.flatnonzero(away).tolist())

    def find_start(self, o: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Return the seconds until there is room for a column, in whole rounds, and its nodes.

        The seconds are inf if there never is.
        """
        round_ = self._round
        i = round_.instance
        pool, gpus = int(i.pool[o]), int(i.held[o])
        here = i.pool[self._columns] == pool
        columns, end_s = self._columns[here], self._end_s[here]
        holes = None
        if round_.problem.has_nodes[pool]:
            holes = self._needs.holes(np.isfinite(self._back_s))
            for c in columns.tolist():
                holes.take(self._places.get(int(i.job[c]), ()), round_.need_of(self._needs, c))
        mine = round_.problem.nodes.pool == pool
        back = mine & np.isfinite(self._back_s)
        free = int(i.capacity[pool]) - int(i.held[columns].sum())
        free += int(round_.problem.nodes.gpus[back].sum())
        changes_s = np.append(end_s, self._back_s[mine])
        for time_s in np.unique([0.0, *changes_s[np.isfinite(changes_s)]]).tolist():
            for c in columns[end_s == time_s].tolist():
                free += int(i.held[c])
                if holes is not None:
                    holes.release(
                        self._places.get(int(i.job[c]), ()), round_.need_of(self._needs, c)
                    )
            if free >= gpus:
                need = round_.need_of(self._needs, o)._replace(avoids=NONE)
                spot = () if holes is None else holes.find(need, self._away(o, time_s))
                if spot is not None:
                    return time_s, tuple((n, k) for n, k, _ in spot)
        return math.inf, ()
