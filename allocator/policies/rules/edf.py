"""Earliest deadline first, elastic: each job, by deadline, gets the fewest GPUs that keep it.

Source: the classic discipline (Liu and Layland 1973; on one machine it keeps all deadlines that can
be kept), made elastic in the simplest way. A job takes the smallest size at which, kept from now
on, it is done in time, with the pause of the change. If that size is not free, it takes the fastest
that is. The remaining GPUs go, in the same order, to jobs that do more work with them in this
round. The policy preempts. It knows speeds and lengths, and looks at one job at a time.

Jobs that cannot keep their deadline even alone come after those that can, and jobs without a
deadline come last. Both are ordered by submission, and run at the requested size. (With late jobs
first, as on one machine, the policy collapses under overload.) With several pools a job takes the
option with the fewest GPUs, then as in `rank_options`. max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.performance.pipelines import due_s
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    rank_options,
    replan,
    serve,
)
from formulations.model.linear import Bools, Floats, Ints


def edf(task: Task) -> Proposal:
    """Serve by deadline at the least sufficient size, then let the first ones grow."""
    round_ = task.round
    i = round_.instance
    jobs = round_.problem.jobs
    in_time = meets_deadline(round_)
    can = np.bincount(i.job[in_time], minlength=len(jobs)) > 0
    due = due_s(round_.problem)
    order = np.lexsort((jobs.submitted_s, np.where(can, due, 0.0), np.isnan(due), ~can))
    asked = np.zeros(len(i.job), dtype=bool)
    asked[options_at_requested_size(round_)] = True
    preferred = np.flatnonzero(can[i.job] | asked)
    rate = option_rates(round_)[preferred]
    ok = in_time[preferred]
    options = rank_options(round_, preferred, ~ok, np.where(ok, i.gpus[preferred], -rate))

    def steps(free_capacity: FreeCapacity, pinned: Bools) -> None:
        serve(round_, free_capacity, order, options, pinned)
        grow_to_most_work(round_, free_capacity, order[~pinned[order]])

    return replan(task, order, steps)


def meets_deadline(round_: CompiledRound) -> Bools:
    """Return which options, kept from now on, end their job by its deadline, (n,)."""
    i = round_.instance
    p = round_.problem
    rate = option_rates(round_)
    needs = round_.option_table.pause_s[round_.option] + p.jobs.remaining_work[i.job] / rate
    return needs <= (due_s(p) - p.now_s)[i.job]  # no deadline: nan, never


def work_in_round(round_: CompiledRound) -> Floats:
    """Return the work that each option does in this round, after the pause of the change, (n,)."""
    p = round_.problem
    o = round_.option
    useful = np.maximum(0.0, p.interval_s - round_.option_table.pause_s[o])
    return np.minimum(
        round_.option_table.rate[o] * useful, p.jobs.remaining_work[round_.instance.job]
    )


def grow_to_most_work(round_: CompiledRound, free_capacity: FreeCapacity, order: Ints) -> None:
    """Give each job that holds something, in order, the size of its pool with most work now."""
    i = round_.instance
    done = work_in_round(round_)
    for j in order.tolist():
        now = int(free_capacity.choice[j])
        if now < 0 or not any(free_capacity.free):
            continue
        mine = np.arange(i.start[j], i.start[j + 1])
        better = mine[
            (i.pool[mine] == i.pool[now]) & (done[mine] > done[now]) & (i.gpus[mine] > i.gpus[now])
        ]
        free_capacity.assign_first(j, better[np.argsort(-done[better], kind="stable")].tolist())
