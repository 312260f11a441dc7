"""Steps that rule-based policies share: who is served first, in which order a job likes its
options, and what happens when a guarantee or the limit on changes is not met in the end.

Order of service in every baseline: jobs that may not move; then jobs of tenants below their
guarantee; then all others.
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
    """The options each job would like, best first; those of job j are option[start[j] : start[j
    + 1]].
    """

    start: list[int]
    option: list[int]

    def of(self, j: int) -> list[int]:
        """The options of job j, best first."""
        return self.option[self.start[j] : self.start[j + 1]]


def wishes(round_: Round, liked: Ints, *keys: Ints | Floats | Bools) -> Wishes:
    """The options `liked` (k,) job by job, in the order of the keys (each (k,), smallest first).

    What the keys leave open: the pool a job runs in first, then the faster option, then the earlier
    pool.
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


def at_requested(round_: Round) -> Ints:
    """(k,) options at the size asked for: of a job's sizes the one nearest to requested_gpus, the
    smaller of two as near (as in the contract's `throughput`), in every pool that offers it. One
    option at most per job and pool."""
    i = round_.instance
    asked = round_.problem.jobs.requested_gpus[i.job]
    return np.flatnonzero(least(i.start, 2 * np.abs(i.gpus - asked) + (i.gpus > asked)))


def least(start: Ints, key: Ints) -> Bools:
    """(n,) True for the options whose key (n,) is the smallest of their job."""
    filled = np.flatnonzero(np.diff(start) > 0)
    if not len(filled):
        return np.zeros(0, dtype=bool)
    smallest = np.minimum.reduceat(key, start[filled])
    return np.asarray(key == np.repeat(smallest, np.diff(start)[filled]))


def serve(
    round_: Round,
    room: Room,
    order: Ints,
    liked: Wishes,
    pinned: Bools | None = None,
    grows: bool = True,
) -> None:
    """Give jobs, in the order (J,) within each class (top of this file), the first option they like
    that fits.

    pinned (J,): jobs that keep what they hold, the non-preemptible ones included; None = those
    only. grows: as of serve_owed.
    """
    first = round_.instance.must if pinned is None else pinned
    serve_pinned(round_, room, order, first)
    served = serve_owed(round_, room, order[~first[order]], liked, grows)
    now = room.choice.data
    for j in order[~first[order]].tolist():
        if (now[j] >= 0 or any(room.free)) and j not in served:
            room.take_first(j, liked.of(j))


def serve_pinned(round_: Round, room: Room, order: Ints, pinned: Bools) -> None:
    """Let the pinned jobs (J,) keep what they hold, and the hosts of guests among them: hosts
    first.
    """
    stay, i = round_.stay(), round_.instance
    # of each job as it is, -1 = none
    host = np.append(i.job, -1)[np.append(i.host, -1)[stay]]
    first = np.zeros(len(stay), dtype=bool)
    first[host[pinned & (host >= 0)]] = True
    for j in [*order[first[order]].tolist(), *order[pinned[order]].tolist()]:
        room.take(j, int(stay[j]))


def serve_owed(
    round_: Round, room: Room, order: Ints, liked: Wishes, grows: bool = True
) -> set[int]:
    """Serve jobs, in this order, of tenants below their guarantee until it is met; returns those
    that had a turn.

    grows: where that is not enough, they then get more than they like, in their pool and in the
    same order.
    """
    i = round_.instance
    if not i.guarantee.any():
        return set()
    served = set()
    tenant, now = i.tenant.data, room.choice.data
    entitled = order[i.guarantee[i.tenant[order]] > 0].tolist()
    for j in entitled:
        if room.owed[tenant[j]] > 0 and now[j] < 0:
            room.take_first(j, liked.of(j))
            served.add(j)
    for j in entitled if grows else ():
        while (
            room.owed[tenant[j]] > 0
            and now[j] >= 0
            and (o := larger(round_, now[j])) >= 0
            and room.take(j, o)
        ):
            pass
    return served


def larger(round_: Round, o: int) -> int:
    """The option with the next larger size of the same job and pool; -1 if there is none."""
    # options lie job by job, then by pool and size, those of guests last
    i, nxt = round_.instance, o + 1
    while (
        nxt < len(i.job) and i.job[nxt] == i.job[o] and i.pool[nxt] == i.pool[o] and i.host[nxt] < 0
    ):
        if i.gpus[nxt] > i.gpus[o]:
            return nxt
        nxt += 1
    return -1


def replan(task: Task, order: Ints, steps: Callable[[Room, Bools], None]) -> Decision:
    """A plan from nothing by `steps(room, pinned)`, for policies that preempt; errors as of
    `decide`.

    Where it would change more running jobs than max_changes allows, those that come first in the
    order (J,) are pinned, as many as it takes, with all that the plan keeps anyway, and the steps
    plan around them. So at most max_changes jobs give way, the last of the order first.
    """
    i, pinned = task.round.instance, task.round.instance.must
    if i.least_kept > 0:
        trial = Room(task.round)
        steps(trial, pinned)
        stay = task.round.stay()
        kept = (stay >= 0) & (trial.choice == stay)
        could = order[(stay[order] >= 0) & ~kept[order]]
        missing = i.least_kept - int(kept.sum())
        if missing > 0:
            pinned = pinned | kept
            pinned[could[:missing]] = True
    return decide(task, lambda room: steps(room, pinned))


def decide(
    task: Task, steps: Callable[[Room], None], start: Ints | None = None, guaranteed: bool = True
) -> Decision:
    """Run the steps from the start (None: from nothing); where a rule is broken in the end, repair
    the plan with the least loss of value (formulations/rounding) and run the steps again for what
    is left.

    A start that breaks a rule is repaired first; guaranteed=False: not where only guarantees are
    short. Raises Infeasible or NoPlanInTime (policies/rescue) where no plan is found at all.
    """
    instance = task.round.instance
    if start is not None and not keeps_rules(instance, start, guaranteed):
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
    return Decision(
        choice,
        detail="guarantees or the limit on changes made the policy deviate from its own plan",
    )
