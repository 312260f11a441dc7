"""Equal share: every job gets the same number of GPUs, and the rest goes to the oldest jobs.

Source: the comparison heuristic of BFTrainer. The share is GPUs / active jobs, rounded down and
limited to a job's range. The rest goes to the oldest job up to its maximum, then to the next. The
policy knows neither speeds nor lengths; speeds only choose among pools.

Simplified: the share is one of the job's sizes, the largest not above it (its smallest size where
all are above). Several pools: one share for all GPUs together. A job takes it in the pool it runs
in, else in the fastest with free GPUs, smaller where nothing else fits, and the rest in the pool it
got. max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    OptionRanking,
    is_least_of_job,
    order_by_submission,
    rank_options,
    replan,
    serve,
)
from formulations.model.linear import Bools, Ints


def equal(task: Task) -> Proposal:
    """Give each job its share, oldest first, then let the oldest grow."""
    round_ = task.round
    order = order_by_submission(round_)
    preferred = _sizes_within_share(round_)

    def steps(free_capacity: FreeCapacity, pinned: Bools) -> None:
        serve(round_, free_capacity, order, preferred, pinned)
        _grow_to_largest(round_, free_capacity, order[~pinned[order]])

    return replan(task, order, steps)


def _sizes_within_share(round_: CompiledRound) -> OptionRanking:
    """Return the sizes of each job that do not exceed its share, largest first.

    If all sizes exceed it, the smallest size is returned.
    """
    i = round_.instance
    active = int((np.diff(i.start) > 0).sum())
    share = int(i.capacity.sum()) // max(1, active)
    preferred = np.flatnonzero((i.gpus <= share) | is_least_of_job(i.start, i.gpus))
    return rank_options(round_, preferred, -i.gpus[preferred])


def _grow_to_largest(round_: CompiledRound, free_capacity: FreeCapacity, order: Ints) -> None:
    """Grow each job that holds something, in this order, to its pool's largest size that fits."""
    i = round_.instance
    # last option of a job and pool
    block = np.flatnonzero(np.diff(i.job * len(i.capacity) + i.pool, append=-1))
    largest = (
        block[np.searchsorted(block, free_capacity.choice[order])].tolist() if len(block) else []
    )
    for j, last in zip(order.tolist(), largest, strict=False):
        now = int(free_capacity.choice[j])
        if now >= 0 and last > now and free_capacity.free[i.pool[now]] > 0:
            free_capacity.assign_first(j, range(last, now, -1))
