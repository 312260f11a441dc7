"""The audit's own reading of interactive.csv: the GPUs that batch jobs must leave or give back.

With N ~ Poisson(sessions_per_hour x (session_s + interval_s) / 3600) a pool keeps GPUs for the
least number of sessions c with P(N >= c) <= late_share. If headroom_gpus is given, it keeps that
number. It never keeps more than the jobs that may not be moved leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from allocator.audit.context import AuditContext


def faults(s: AuditContext) -> Iterator[str]:
    """Yield the pools in which jobs that are not interactive hold too much."""
    rows = s.problem.interactive
    pools = s.problem.pools
    jobs = s.problem.jobs
    gpus = s.allocation.held
    stay = s.can_be_kept & ~jobs.interactive & (jobs.primary < 0)
    stay &= ~jobs.preemptible & ~s.repairs.released
    gives = jobs.shrinkable & jobs.preemptible & (jobs.resizes_left != 0)
    for r, p in enumerate(rows.pool.tolist()):
        size = int(pools.gpus[p])
        here = s.has_gpus & (s.pool == p) & ~jobs.interactive
        stays = int(jobs.gpus[stay & (jobs.pool == p)].sum())
        held = int(gpus[here].sum())
        firm = int(np.where(gives, np.minimum(gpus, jobs.min_gpus), gpus)[here].sum())
        kept = max(0, min(_wanted(s, r), size - stays))
        share = float(rows.shrinkable_share[r])
        idle = math.ceil((1.0 - share) * kept - 1e-9)
        name = f'pool "{pools.pool[p]}" with {size} GPUs'
        if idle > 0 and held > size - idle:
            yield f"{name}: other jobs get {held}, {idle} are kept idle for interactive ones"
        if share > 0 and kept > 0 and firm > size - kept:
            yield (
                f"{name}: other jobs get {firm} that they cannot give back, {kept} are kept for"
                " interactive ones"
            )


def _wanted(s: AuditContext, row: int) -> int:
    rows = s.problem.interactive
    size = int(s.problem.pools.gpus[rows.pool[row]])
    if rows.headroom_gpus[row] >= 0:
        return min(size, int(rows.headroom_gpus[row]))
    mean = (
        float(rows.sessions_per_hour[row])
        * (float(rows.session_s[row]) + s.problem.interval_s)
        / 3600.0
    )
    each = int(rows.session_gpus[row])
    enough = 1.0 - float(rows.late_share[row])
    c = 0
    below = 0.0
    while mean > 0 and below < enough and c * each < size:
        below += math.exp(c * math.log(mean) - mean - math.lgamma(c + 1))
        c += 1
    return min(size, c * each)
