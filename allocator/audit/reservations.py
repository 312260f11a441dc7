"""The audit's own reading of reservations: the GPUs that jobs which may not be stopped leave.

A reservation of k GPUs for a job that waits keeps them from the jobs that hold GPUs of its pool at
its start, because they may not be stopped and are not done by then at the speed that they have on
their GPUs alone. Jobs that may not be moved keep what they hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from allocator.audit.context import AuditContext

ROUNDING = 1e-9  # relative, of times


def faults(s: AuditContext) -> Iterator[str]:
    """Yield the reservations for which a plan does not leave the GPUs."""
    problem = s.problem
    jobs = problem.jobs
    on_nodes: dict[int, set[int]] = {}
    if any(r.nodes for r in problem.reservations):
        places = s.allocation.places
        for j, n in zip(places.job.tolist(), places.node.tolist(), strict=True):
            on_nodes.setdefault(j, set()).add(n)
    for r in problem.reservations:
        held = stays = 0
        here = s.has_gpus & (s.pool == r.pool) & ~jobs.preemptible
        for j in np.flatnonzero(here & (s.allocation.held > 0)).tolist():
            if j == r.job or _end_s(s, j) <= r.after_s * (1 + ROUNDING):
                continue
            held += int(s.allocation.held[j])
            if s.running[j] and s.is_kept[j]:
                stays += int(s.allocation.held[j])
            elif kept := on_nodes.get(j, set()) & set(r.nodes):
                node = problem.nodes.node[min(kept)]
                yield f'{s.name(j)} is on node "{node}", which is kept for {s.name(r.job)}'
        size = int(problem.pools.gpus[r.pool])
        if held > max(size - r.gpus, stays):
            yield (
                f'pool "{problem.pools.pool[r.pool]}" with {size} GPUs: jobs that may not be'
                f" stopped still hold {held} after {r.after_s:g} s, {r.gpus} are kept for"
                f" {s.name(r.job)}"
            )


def _end_s(s: AuditContext, j: int) -> float:
    """Return the seconds until job j is done on the GPUs of the plan, if it has them alone."""
    job, pool, gpus, rates = s.options(np.array([j]))
    same = (job == j) & (pool == s.pool[j]) & (gpus == s.gpus[j])
    rate = float(rates[same].max(initial=0.0))
    pause_s = 0.0 if s.is_kept[j] else float(s.problem.pools.startup_s[s.pool[j]])
    return pause_s + float(s.problem.jobs.remaining_work[j]) / rate if rate > 0 else math.inf
