"""The time that a running job loses when its allocation changes: restart_s, or a row of pauses.csv.

Sizes that were set up in advance may cost nothing, others a checkpoint and a new start. A row of
the GPU type that the job changes to takes precedence over a row of any type. startup_s of the pool
is added in both cases.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem


def restart_s(
    problem: Problem, job: Ints, pool: Ints, gpus: Ints, held: Ints | None = None
) -> Floats:
    """Return the seconds that jobs lose when they change to gpus of pool, (n,), without start-up.

    held (n,) are the GPUs that they change from; the default is what they hold. 0 means none, and
    no row counts.
    """
    restart = problem.jobs.restart_s[job]
    if not len(problem.pauses.pause_s):
        return restart
    before = problem.jobs.gpus[job] if held is None else held
    found = problem.pauses.look_up(
        problem.jobs.model[job], problem.pools.gpu_type[pool], before, gpus
    )
    return np.where(np.isnan(found), restart, found)
