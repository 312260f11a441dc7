"""Equal share: every job the same number of GPUs, what is left over first come, first served.

Source: the comparison heuristic of BFTrainer (design page systems.md section 2.4). Share = GPUs /
active jobs, rounded down and clipped to a job's range; the rest goes to the oldest job up to its
maximum, then to the next. Knows neither speeds nor lengths; speeds only choose among pools.

Simplified: the share is a size of the job's menu, the largest not above it (its smallest size where
all are above). Several pools: one share for all GPUs together; a job takes it in the pool it runs
in, else in the fastest with room, smaller where nothing else fits, and what is left over in the
pool it got. max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.room import Room
from allocator.policies.steps import Wishes, least, oldest_first, replan, serve, wishes
from formulations.linear import Bools, Ints


def equal(task: Task) -> Decision:
    """Give each job its share, oldest first, then let the oldest grow."""
    round_ = task.round
    order, liked = oldest_first(round_), _shares(round_)

    def steps(room: Room, pinned: Bools) -> None:
        serve(round_, room, order, liked, pinned)
        _grow(round_, room, order[~pinned[order]])

    return replan(task, order, steps)


def _shares(round_: Round) -> Wishes:
    """The sizes of each job that do not exceed its share, largest first; at least its smallest
    one.
    """
    i = round_.instance
    active = int((np.diff(i.start) > 0).sum())
    share = int(i.capacity.sum()) // max(1, active)
    liked = np.flatnonzero((i.gpus <= share) | least(i.start, i.gpus))
    return wishes(round_, liked, -i.gpus[liked])


def _grow(round_: Round, room: Room, order: Ints) -> None:
    """Each job that holds something, in this order, grows to the largest size of its pool that
    fits.
    """
    i = round_.instance
    # last option of a job and pool
    block = np.flatnonzero(np.diff(i.job * len(i.capacity) + i.pool, append=-1))
    largest = block[np.searchsorted(block, room.choice[order])].tolist() if len(block) else []
    for j, last in zip(order.tolist(), largest, strict=False):
        now = int(room.choice[j])
        if now >= 0 and last > now and room.free[i.pool[now]] > 0:
            room.take_first(j, range(last, now, -1))
