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

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, Reservation, State
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.reservations import SAME, option_ends
from allocator.policies.free_capacity import FreeCapacity


def find_reservations(round_: CompiledRound, choice: Ints) -> tuple[Reservation, ...]:
    """Return the reservations that a plan without any calls for, one for each pool at most.

    choice (J,) are columns of the round.
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
    end_s = option_ends(problem, round_.option_table)[round_.option]
    stay = np.flatnonzero(i.keep & i.mandatory[i.job] & (i.primary < 0))
    plan = choice[firm & (choice >= 0)]
    column = _smallest_columns(round_, large)
    beside = FreeCapacity(round_, _choice_of(round_, stay))
    urgency = jobs.weight * (age_s + problem.interval_s)
    best: dict[int, tuple[float, Reservation]] = {}
    for o in column.tolist():
        j, p, k = int(i.job[o]), int(i.pool[o]), int(i.held[o])
        next_s = _free_after(round_, plan, end_s, p, k)
        after_s = _free_after(round_, stay, end_s, p, k)
        if next_s <= problem.interval_s or math.isinf(after_s) or not beside.can_afford(j, o):
            continue
        if p not in best or urgency[j] > best[p][0]:
            best[p] = (float(urgency[j]), Reservation(j, p, k, after_s))
    first: dict[int, Reservation] = {}
    for _, r in sorted(best.values(), key=lambda x: x[1].after_s):
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


def _free_after(round_: CompiledRound, held: Ints, end_s: Floats, pool: int, gpus: int) -> float:
    """Return the seconds until columns (n,) leave GPUs of a pool, in whole rounds, inf = never."""
    i = round_.instance
    interval_s = round_.problem.interval_s
    here = held[i.pool[held] == pool]
    here = here[np.argsort(end_s[here], kind="stable")]
    free = int(i.capacity[pool]) - int(i.held[here].sum())
    if free >= gpus:
        return 0.0
    enough = free + np.cumsum(i.held[here]) >= gpus
    if not enough.any():
        return math.inf
    return math.ceil(float(end_s[here[np.argmax(enough)]]) / interval_s - SAME) * interval_s
