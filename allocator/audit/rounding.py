"""How far apart rounding alone may bring two accounts of what a plan is worth.

Most values are products. Two objectives are differences of what is expected with and without a
round: of dollars to the end of the job (cost), and of risks (tardiness). Where a job has a billion
rounds of work left, such a difference is lost in the rounding of its terms.
"""

from __future__ import annotations

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints
from allocator.performance.pipelines import due_s

EPSILON = 1e-12  # relative error of a term: some thousand units in its last place


def lost(s: Scene, name: str, job: Ints) -> float:
    """What rounding may do to the sum of the values of the jobs (n,) in an objective."""
    if name == "tardiness":
        return EPSILON * float((168.0 * s.problem.weight[job]).sum())
    return EPSILON * float(_dollars_to_the_end(s)[job].sum()) if name == "cost" else 0.0


def _dollars_to_the_end(s: Scene) -> Floats:
    """(J,) no smaller than any term of the objective cost: all work at the dearest and all hours
    of the slowest option, too late."""
    problem, pools = s.problem, s.problem.pools
    job, pool, gpus, rate = s.useful_options()
    hourly, hours = np.ones((2, len(problem.jobs)))
    np.maximum.at(hourly, job, gpus * pools.price_per_gpu_hour[pool])
    np.maximum.at(
        hours,
        job,
        pools.startup_s[pool] / 3600.0
        + problem.jobs.remaining_work[job] / rate / pools.availability[pool] / 3600.0,
    )
    due = np.nan_to_num(due_s(problem) - problem.now_s)
    worst = hours + (np.abs(due) + problem.interval_s + problem.jobs.restart_s) / 3600.0
    return np.asarray(hourly * (1.0 + 20.0 * problem.weight) * worst)
