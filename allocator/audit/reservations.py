"""The audit's own reading of reservations: the GPUs that jobs which may not be stopped leave.

A reservation of k GPUs for a job that waits keeps them from the jobs that hold GPUs of its pool at
its start, because they may not be stopped and are not done by then at the speed that they have on
their GPUs alone. The same holds on each of its nodes. Jobs that may not be moved keep what they
hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Bools, Reservation

ROUNDING = 1e-9  # relative, of times


def faults(s: AuditContext) -> Iterator[str]:
    """Yield the reservations for which a plan does not leave the GPUs."""
    pools = s.problem.pools
    nodes = s.problem.nodes
    places = s.allocation.places
    gpus = s.allocation.held
    for r in s.problem.reservations:
        late = _still_there(s, r)
        stays = late & s.running & s.is_kept
        rooms = [(f'pool "{pools.pool[r.pool]}"', int(pools.gpus[r.pool]), r.gpus, gpus)]
        for n, kept in r.nodes:
            on = np.bincount(places.job, places.gpus * (places.node == n), len(gpus))
            rooms.append((f'node "{nodes.node[n]}"', int(nodes.gpus[n]), kept, on))
        for room, size, kept, held in rooms:
            taken = int(held[late].sum())
            if taken > max(size - kept, int(held[stays].sum())):
                yield (
                    f"{room} with {size} GPUs: jobs that may not be stopped still hold {taken}"
                    f" after {r.after_s:g} s, {kept} are kept for {s.name(r.job)}"
                )


def _still_there(s: AuditContext, r: Reservation) -> Bools:
    """Find the jobs that hold GPUs of the pool when the reservation begins, (J,)."""
    jobs = s.problem.jobs
    every = s.every
    late: Bools = s.has_gpus & (s.pool == r.pool) & ~jobs.preemptible & (s.allocation.held > 0)
    late[r.job] = False
    for j in np.flatnonzero(late).tolist():
        same = (every.job == j) & (every.pool == r.pool) & (every.gpus == s.gpus[j])
        rate = float(every.rate[same].max(initial=0.0))
        pause_s = 0.0 if s.is_kept[j] else float(s.problem.pools.startup_s[r.pool])
        end_s = pause_s + float(jobs.remaining_work[j]) / rate if rate > 0 else math.inf
        late[j] = end_s > r.after_s * (1 + ROUNDING)
    return late
