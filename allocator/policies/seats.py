"""Whom the rules bind, before the order of a policy that fills the cluster from nothing.

Room keeps every `at most` rule at every step. The rules of the other kind are served first here: jobs that must run, as
many running jobs as the limit on changes binds to what they hold, and jobs of tenants that are owed GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from allocator.options.round import Round
from allocator.policies.room import Room
from formulations.linear import Bools, Ints

Owed = Callable[[int, int], Iterable[int]]      # (job, GPUs its tenant is owed) -> its options, best first


def serve_bound(round_: Round, room: Room, order: Ints, owed: Owed) -> Bools:
    """Serve whom rules bind; order (J,): all jobs, first served first. (J,) True for jobs that must stay as they are.

    Where only M of R running jobs may change, the first R - M of them in the order keep what they hold.
    """
    i = round_.instance
    fixed = i.must.copy()
    for j in order[i.must[order]].tolist():
        room.take_first(j, range(int(i.start[j]), int(i.start[j + 1])))
    keep = round_.stay()
    bound = i.least_kept - int((fixed & (keep >= 0)).sum())
    for j in order[(keep[order] >= 0) & ~fixed[order]].tolist() if bound > 0 else ():
        if bound > 0 and room.take(j, int(keep[j])):
            fixed[j], bound = True, bound - 1
    for j in order[(i.guarantee[i.tenant[order]] > 0) & ~fixed[order]].tolist():
        missing = room.owed[i.tenant[j]]
        if missing > 0 and room.choice[j] < 0:
            room.take_first(j, owed(j, missing))
    return np.asarray(fixed, dtype=np.bool_)
