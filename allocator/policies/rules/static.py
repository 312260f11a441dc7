"""Static first come, first served: the usual policy of clusters without an elastic scheduler.

It is the baseline of most papers. A job gets the size it asked for (the nearest it may have), keeps
it to its end, and waits in strict order of submission: while the first job in the queue does not
fit, no other job starts. The policy knows neither speeds nor lengths. Speeds only choose among
pools.

The rule is stated for one kind of GPU. With several pools there is one queue per pool, and a job is
in the queues of all pools it may use. It starts in the fastest pool where it is first and fits. If
it fits in none of them, it blocks them all. A job that is stopped by a budget or quota, and not by
GPUs, blocks no queue, because its wait may have no end. Guarantees take precedence over the order.
"""

from __future__ import annotations

from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    OptionRanking,
    options_at_requested_size,
    order_by_submission,
    rank_options,
    run_steps,
    serve_first,
)
from formulations.model.linear import Bools


def static(task: Task) -> Proposal:
    """Start waiting jobs in order of submission at the requested size; running jobs stay."""
    return serve_in_order(task, rank_options(task.round, options_at_requested_size(task.round)))


def serve_in_order(task: Task, preferred: OptionRanking, changing: Bools | None = None) -> Proposal:
    """Start waiting jobs in order of submission with a preferred option; running jobs stay.

    Running jobs `changing` (J,) get a preferred option where it fits, before jobs that wait.
    """
    round_ = task.round
    order = order_by_submission(round_)
    start = round_.unchanged_choice()
    moving = order[changing[order]] if changing is not None else order[:0]
    held = dict(zip(moving.tolist(), start[moving].tolist(), strict=True))
    start[moving] = -1

    def steps(free_capacity: FreeCapacity) -> None:
        serve_first(free_capacity, order, preferred)
        for j, present in held.items():
            if free_capacity.choice[j] < 0:
                free_capacity.assign_first(j, [*preferred[j], present])
        # each pool has a queue, until an earlier job blocks it
        open_ = {p for p, free in enumerate(free_capacity.free) if free > 0}
        for j in free_capacity.waiting(order):
            if not open_:
                break
            able = [(o, int(round_.instance.pool[o])) for o in preferred[j]]
            if not free_capacity.assign_first(j, (o for o, p in able if p in open_)):
                open_ -= {p for o, p in able if free_capacity.can_afford(o)}

    return run_steps(task, steps, start=start, guaranteed=False)
