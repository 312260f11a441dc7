"""The audit's own reading of pauses.csv: the pause of a running job that changes."""

from __future__ import annotations

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Floats, Ints


def restart_s(s: AuditContext, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the seconds that each change takes, (n,).

    It is pause_s of the row for the job's model and the change from what it holds: the row of the
    GPU type of the new pool, or the row of any type. Without a row it is restart_s of the job.
    """
    table = s.problem.pauses
    jobs = s.problem.jobs
    out = jobs.restart_s[job].copy()
    rows = {
        row[:4]: row[4]
        for row in zip(
            table.model.tolist(),
            table.gpu_type.tolist(),
            table.from_gpus.tolist(),
            table.to_gpus.tolist(),
            table.pause_s.tolist(),
            strict=True,
        )
    }
    for n in np.flatnonzero(s.running[job] & np.isin(jobs.model[job], table.model)).tolist():
        model = int(jobs.model[job[n]])
        change = (int(jobs.gpus[job[n]]), int(gpus[n]))
        for kind in (-1, int(s.problem.pools.gpu_type[pool[n]])):
            out[n] = rows.get((model, kind, *change), out[n])
    return out
