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
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import (
    SAME,
    Bools,
    Floats,
    Ints,
    Placements,
    Problem,
    Reservation,
    State,
)
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.leaving import needed_s
from allocator.options.kept.reservations import option_ends
from allocator.options.node_needs import NONE, UP, NodeNeeds, by_job
from allocator.options.staying import Staying
from allocator.policies.free_capacity import FreeCapacity
from formulations.model.ragged import begins_run
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
    staying = np.full(len(choice), -1)
    staying[i.job[stay]] = stay
    beside = FreeCapacity(round_, staying)
    held = Staying.of(problem).held if problem.has_nodes.any() else {}
    of_plan, at = choice[firm & (choice >= 0)], by_job(places)
    ends = _Ends.of(round_)
    urgency = jobs.weight * (age_s + problem.interval_s)
    # the smallest column with a value of each of the jobs in each pool
    column = np.flatnonzero(large[i.job] & (i.value > 0) & (i.primary < 0))
    column = column[np.lexsort((i.held[column], i.pool[column], i.job[column]))]
    column = column[begins_run(i.job[column], i.pool[column])]
    found: dict[int, Reservation] = {}
    tried: Counter[int] = Counter()
    for o in column[np.argsort(-urgency[i.job[column]], kind="stable")].tolist():
        j, p = int(i.job[o]), int(i.pool[o])
        if p in found or tried[p] >= TRIED or not beside.can_afford(o):
            continue
        tried[p] += 1
        after_s, nodes = ends.find_start(o, stay, held)
        if math.isfinite(after_s) and ends.find_start(o, of_plan, at)[0] > problem.interval_s:
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


@dataclass(frozen=True)
class _Ends:
    """When columns of a round (n,) leave their GPUs, and how long they need nodes, seconds."""

    round: CompiledRound
    end_s: Floats
    needed_s: Floats
    needs: NodeNeeds

    @classmethod
    def of(cls, round_: CompiledRound) -> _Ends:
        """Return the ends in whole rounds."""
        problem, m, option = round_.problem, round_.option_table, round_.option
        rounds = np.ceil(option_ends(problem, m)[option] / problem.interval_s - SAME)
        end_s, needs = rounds * problem.interval_s, NodeNeeds(problem)
        return cls(round_, end_s, needed_s(problem, m)[option], needs)

    def find_start(
        self, o: int, columns: Ints, places: Mapping[int, tuple[Place, ...]]
    ) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Return the seconds until there is room for a column, in whole rounds, and its nodes.

        The seconds are inf if there never is. columns (n,) are chosen and may not be stopped;
        `places` has the nodes of their jobs, where pools have nodes.
        """
        round_, i, problem = self.round, self.round.instance, self.round.problem
        nodes, needs = problem.nodes, self.needs
        pool, gpus = int(i.pool[o]), int(i.held[o])
        columns = columns[i.pool[columns] == pool]
        leave_s, back_s = (x - problem.now_s for x in (nodes.leaves_s, nodes.returns_s))
        back_s = np.ceil(back_s / problem.interval_s - SAME) * problem.interval_s
        holes = None
        spots = {}
        if problem.has_nodes[pool]:
            holes = needs.holes(np.isfinite(back_s))
            for c in columns.tolist():
                spots[c] = places.get(int(i.job[c]), ()), round_.need_of(needs, c)
                holes.take(*spots[c])
        mine = nodes.pool == pool
        free = int(i.capacity[pool]) - int(i.held[columns].sum())
        free += int(nodes.gpus[mine & np.isfinite(back_s)].sum())
        changes_s = np.append(self.end_s[columns], back_s[mine])
        for time_s in np.unique([0.0, *changes_s[np.isfinite(changes_s)]]).tolist():
            for c in columns[self.end_s[columns] == time_s].tolist():
                free += int(i.held[c])
                if holes is not None:
                    holes.release(*spots[c])
            if free >= gpus:
                need = round_.need_of(needs, o)._replace(avoids=NONE)
                # nodes that are away while the column needs them, if it starts then
                until_s = (time_s + float(self.needed_s[o])) * (1 - SAME)
                away = set(np.flatnonzero((leave_s < until_s) & (back_s > time_s)).tolist())
                found = () if holes is None else holes.find(need, away)
                if found is not None:
                    return time_s, tuple((n, k) for n, k, _ in found)
        return math.inf, ()
