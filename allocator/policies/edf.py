"""Earliest deadline first, elastic: in the order of deadlines, each job the fewest GPUs that keep
its own.

Source: the classic discipline (Liu and Layland 1973; on one machine it keeps all deadlines that can
be kept), made elastic in the plainest way. A job takes its smallest size at which, kept from now
on, it is done in time, the pause of the change included; where that is not free, the fastest that
is. GPUs left over go, in the same order, to whoever gets more done with them in this round.
Preempts. Knows speeds and lengths, looks at one job at a time.

Jobs that cannot keep their deadline even alone come after those that can, and jobs without one
last; both by submission, at the requested size. (With late jobs at the head, as on one machine, the
policy collapses under overload.) Several pools: the fewest GPUs, then as in `wishes`. max_changes:
see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.options.round import Round
from allocator.performance.pipelines import due_s
from allocator.policies.base import Decision, Task
from allocator.policies.room import Room
from allocator.policies.steps import at_requested, rates, replan, serve, wishes
from formulations.linear import Bools, Floats, Ints


def edf(task: Task) -> Decision:
    """Serve by deadline at the least sufficient size, then let the first ones grow."""
    round_ = task.round
    i, jobs = round_.instance, round_.problem.jobs
    in_time = sufficient(round_)
    can = np.bincount(i.job[in_time], minlength=len(jobs)) > 0
    due = due_s(round_.problem)
    order = np.lexsort((jobs.submitted_s, np.where(can, due, 0.0), np.isnan(due), ~can))
    asked = np.zeros(len(i.job), dtype=bool)
    asked[at_requested(round_)] = True
    liked = np.flatnonzero(can[i.job] | asked)
    rate, ok = rates(round_)[liked], in_time[liked]
    options = wishes(round_, liked, ~ok, np.where(ok, i.gpus[liked], -rate))

    def steps(room: Room, pinned: Bools) -> None:
        serve(round_, room, order, options, pinned)
        grow(round_, room, order[~pinned[order]])

    return replan(task, order, steps)


def sufficient(round_: Round) -> Bools:
    """(n,) options that, kept from now on, end the job by its deadline."""
    i, p = round_.instance, round_.problem
    rate = rates(round_)
    needs = round_.menu.pause_s[round_.option] + p.jobs.remaining_work[i.job] / rate
    return np.asarray(needs <= (due_s(p) - p.now_s)[i.job])  # no deadline: nan, never


def done_in_round(round_: Round) -> Floats:
    """(n,) work that each option does in this round, the pause of the change included."""
    p, o = round_.problem, round_.option
    useful = np.maximum(0.0, p.interval_s - round_.menu.pause_s[o])
    return np.minimum(round_.menu.rate[o] * useful, p.jobs.remaining_work[round_.instance.job])


def grow(round_: Round, room: Room, order: Ints) -> None:
    """Each job that holds something, in this order, takes the size of its pool that does most in
    this round.
    """
    i, done = round_.instance, done_in_round(round_)
    for j in order.tolist():
        now = int(room.choice[j])
        if now < 0 or not any(room.free):
            continue
        mine = np.arange(i.start[j], i.start[j + 1])
        better = mine[
            (i.pool[mine] == i.pool[now]) & (done[mine] > done[now]) & (i.gpus[mine] > i.gpus[now])
        ]
        room.take_first(j, better[np.argsort(-done[better], kind="stable")].tolist())
