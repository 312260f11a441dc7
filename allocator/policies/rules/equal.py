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

from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    is_least_of_job,
    order_by_submission,
    rank_options,
    replan,
    serve,
)


def equal(task: Task) -> Proposal:
    """Give each job its share, oldest first, then let the oldest grow."""
    round_ = task.round
    i = round_.instance
    order = order_by_submission(round_)
    active = int((np.diff(i.start) > 0).sum())
    share = int(i.capacity.sum()) // max(1, active)
    within = np.flatnonzero((i.gpus <= share) | is_least_of_job(i.start, i.gpus))
    preferred = rank_options(round_, within, -i.gpus[within])
    last = np.flatnonzero(np.diff(i.job * len(i.capacity) + i.pool, append=-1))  # of job and pool

    def steps(free_capacity: FreeCapacity) -> None:
        serve(free_capacity, order, preferred)
        for j in free_capacity.movable(order).tolist():
            now = int(free_capacity.choice[j])
            if free_capacity.free[i.pool[now]] > 0:
                largest = int(last[np.searchsorted(last, now)])
                free_capacity.assign_first(j, range(largest, now, -1))

    return replan(task, order, steps)
