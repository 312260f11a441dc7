"""Steps that rule-based policies share: who is served first, in which order a job likes its options, and what happens
when a guarantee or the limit on changes is not met in the end.

Order of service in every baseline: jobs that may not move; then jobs of tenants below their guarantee; then all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.rescue import last_resort
from allocator.policies.room import Room, keeps_rules
from formulations.linear import Bools, Floats, Ints
from formulations.rounding import repair


@dataclass(frozen=True)
class Wishes:
    """The options each job would like, best first; those of job j are option[start[j] : start[j + 1]]."""

    start: list[int]
    option: list[int]

    def of(self, j: int) -> list[int]:
        """The options of job j, best first."""
        return self.option[self.start[j]:self.start[j + 1]]


def wishes(round_: Round, liked: Ints, *keys: Ints | Floats | Bools) -> Wishes:
    """The options `liked` (k,) job by job, in the order of the keys (each (k,), smallest first).

    What the keys leave open: the pool a job runs in first, then the faster option, then the earlier pool.
    """
    i, jobs = round_.instance, round_.problem.jobs
    job, pool = i.job[liked], i.pool[liked]
    away = pool != jobs.pool[job]
    order = np.lexsort((pool, -rates(round_)[liked], away, *keys[::-1], job))
    start = np.searchsorted(job[order], np.arange(len(jobs) + 1))
    return Wishes(start.tolist(), liked[order].tolist())


def rates(round_: Round) -> Floats:
    """(n,) work per second of every option of the instance."""
    return round_.menu.rate[round_.option]


def oldest_first(round_: Round) -> Ints:
    """(J,) jobs by time of submission, in file order where equal."""
    return np.argsort(round_.problem.jobs.submitted_s, kind="stable")


def serve(round_: Round, room: Room, order: Ints, liked: Wishes) -> None:
    """Give jobs, in the order (J,) within each class (top of this file), the first option they like that fits."""
    i = round_.instance
    for j in order[i.must[order]].tolist():
        room.take_first(j, range(int(i.start[j]), int(i.start[j + 1])))
    served = serve_owed(round_, room, order, liked)
    now = room.choice.data
    for j in order[~i.must[order]].tolist():
        if (now[j] >= 0 or any(room.free)) and j not in served:
            room.take_first(j, liked.of(j))


def serve_owed(round_: Round, room: Room, order: Ints, liked: Wishes) -> set[int]:
    """Serve jobs of tenants below their guarantee until it is met; returns the jobs that had their turn."""
    i = round_.instance
    if not i.guarantee.any():
        return set()
    served = set()
    for j in order[(i.guarantee[i.tenant[order]] > 0) & ~i.must[order]].tolist():
        if room.owed[i.tenant[j]] > 0 and room.choice[j] < 0:
            room.take_first(j, liked.of(j))
            served.add(j)
    return served


def decide(task: Task, steps: Callable[[Room], None], start: Ints | None = None) -> Decision:
    """Run the steps from the start (None: from nothing); where a rule is broken in the end, repair the plan with the
    least loss of value (formulations/rounding) and run the steps again for what is left.

    Raises Infeasible or NoPlanInTime (policies/rescue) where no plan is found at all.
    """
    instance = task.round.instance
    if start is not None and not keeps_rules(instance, start):
        start = repair(task.choices, start, task.dual.prices)
    room = Room(task.round, start)
    steps(room)
    if keeps_rules(instance, room.choice):
        return Decision(room.choice)
    mended = repair(task.choices, room.choice, task.dual.prices)
    if mended is None:
        return last_resort(task)
    room = Room(task.round, mended)
    steps(room)
    choice = room.choice if keeps_rules(instance, room.choice) else mended
    return Decision(choice, detail="guarantees or the limit on changes made the policy deviate from its own plan")
