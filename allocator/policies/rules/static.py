"""Static first come, first served: what clusters do without an elastic scheduler, and the baseline
of most papers.

Source: static FIFO, the FIFO policy of most schedulers. A job gets the size it asked for (the
nearest it may have), keeps it to its end, and waits in strict order of submission: while the job at
the head does not fit, nobody overtakes it. Knows neither speeds nor lengths; speeds only choose
among pools.

Stated for one kind of GPU. With several pools there is one queue per pool; a job stands in the
queues of all pools it may use, starts in the fastest where it is first and fits, and blocks all of
them where it fits in none. Who is stopped by a budget or quota, not by GPUs, holds up nobody: that
wait may have no end. A guarantee goes before the order.
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
    serve_owed,
    serve_pinned,
)
from formulations.model.linear import Ints


def static(task: Task) -> Proposal:
    """Running jobs keep what they hold; waiting jobs start in order of submission at the
    requested size.
    """
    return serve_in_order(task, rank_options(task.round, options_at_requested_size(task.round)))


def serve_in_order(task: Task, preferred: OptionRanking) -> Proposal:
    """Running jobs keep what they hold; waiting jobs start in order of submission with an option
    they like.
    """
    round_ = task.round
    order = order_by_submission(round_)

    def steps(free_capacity: FreeCapacity) -> None:
        serve_pinned(round_, free_capacity, order, round_.instance.mandatory)
        serve_owed(round_, free_capacity, order, preferred)
        _start_waiting(
            free_capacity, order[free_capacity.choice[order] < 0], preferred, round_.instance.pool
        )

    return run_steps(task, steps, start=round_.unchanged_choice(), guaranteed=False)


def _start_waiting(
    free_capacity: FreeCapacity, waiting: Ints, preferred: OptionRanking, pool: Ints
) -> None:
    """Start waiting jobs, first in the order first, in pools whose queue nobody before them
    blocks.
    """
    open_ = {p for p, free in enumerate(free_capacity.free) if free > 0}
    for j in waiting.tolist():
        if not open_:
            return
        able = [(o, int(pool[o])) for o in preferred.of(j)]
        if not free_capacity.assign_first(j, (o for o, p in able if p in open_)):
            open_ -= {p for o, p in able if free_capacity.can_afford(j, o)}
