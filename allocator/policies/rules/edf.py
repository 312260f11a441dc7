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
from formulations.model.linear import Floats


def edf(task: Task) -> Proposal:
    """Serve by deadline at the least sufficient size, then let the first ones grow."""
    round_ = task.round
    i = round_.instance
    jobs = round_.problem.jobs
    due = due_s(round_.problem)
    rate = option_rates(round_)
    needs = round_.option_table.pause_s[round_.option] + jobs.remaining_work[i.job] / rate
    in_time = needs <= (due - round_.problem.now_s)[i.job]  # no deadline: nan, never
    can = np.bincount(i.job[in_time], minlength=len(jobs)) > 0
    order = np.lexsort((jobs.submitted_s, np.where(can, due, 0.0), np.isnan(due), ~can))
    asked = np.zeros(len(i.job), dtype=bool)
    asked[options_at_requested_size(round_)] = True
    preferred = np.flatnonzero(can[i.job] | asked)
    ok = in_time[preferred]
    done = work_in_round(round_)
    size = np.where(ok, i.gpus[preferred], -rate[preferred])
    options = rank_options(round_, preferred, ~ok, size)

    def steps(free_capacity: FreeCapacity) -> None:
        serve(free_capacity, order, options)
        for j in free_capacity.movable(order).tolist():
            if not free_capacity.is_full:
                now = int(free_capacity.choice[j])
                better = np.arange(i.start[j], i.start[j + 1])
                better = better[(i.pool[better] == i.pool[now]) & (done[better] > done[now])]
                better = better[i.gpus[better] > i.gpus[now]]
                more = better[np.argsort(-done[better], kind="stable")]
                free_capacity.assign_first(j, more.tolist())

    return replan(task, order, steps)


def work_in_round(round_: CompiledRound) -> Floats:
    """Return the work that each option does in this round, after the pause of the change, (n,)."""
    p = round_.problem
    o = round_.option
    useful = np.maximum(0.0, p.interval_s - round_.option_table.pause_s[o])
    return np.minimum(
        round_.option_table.rate[o] * useful, p.jobs.remaining_work[round_.instance.job]
    )
