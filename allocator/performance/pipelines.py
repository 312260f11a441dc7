"""When jobs are due: their own deadline, or earlier where jobs with a deadline come after them.

The formula is that of formulations/deadlines/pipelines.py. Objectives, policies, the audit and
explanations all use this function.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.table import RateTable
from formulations.deadlines.pipelines import split_deadlines


def due_s(problem: Problem) -> Floats:
    """Return when each job should be done, (J,), nan = at no certain time.

    It is deadline_s; for stages of a pipeline the share of the time that later deadlines leave.
    """
    return due(problem)[0]


def due(problem: Problem) -> tuple[Floats, Ints]:
    """Return when each job is due, and the job whose deadline that is (-1 = none), (J,) each.

    Predecessors that are no longer in the problem are done. Successors that are not yet in it are
    unknown.
    """
    jobs = problem.jobs
    own = np.where(np.isnan(jobs.deadline_s), -1, np.arange(len(jobs)))
    if not any(jobs.after) or (own < 0).all():
        return jobs.deadline_s, own
    number = {name: j for j, name in enumerate(jobs.job_id)}
    after = {
        j: [number[name] for name in names if name in number]
        for j, names in enumerate(jobs.after)
        if names
    }
    after = {j: before for j, before in after.items() if before}
    if not after:
        return jobs.deadline_s, own
    stages = np.array(sorted({*after, *(i for before in after.values() for i in before)}), np.int64)
    need = np.zeros(len(jobs))
    need[stages] = least_seconds_left(problem, stages)
    return split_deadlines(after, need, jobs.deadline_s, problem.now_s)


def least_seconds_left(problem: Problem, job: Ints) -> Floats:
    """Return the least seconds that the jobs (n,) still need, (n,), 0 where no speed is known.

    They run on the fastest GPUs that they may use, at the sizes they list, else at powers of two
    from min_gpus on and the largest size that fits the pool.
    """
    jobs = problem.jobs
    pools = problem.pools
    table = RateTable.of(problem)
    types = problem.allowed_types[job]
    listed = jobs.sizes[job]
    fastest = np.zeros(len(job))
    for p in range(len(pools)):
        most = np.minimum(
            np.minimum(jobs.max_gpus[job], pools.gpus[p]), table.largest[jobs.model[job]]
        )
        doublings = 2 ** np.arange(int(most.max(initial=0)).bit_length())
        tried = (
            [(np.full(len(job), k), listed < 0) for k in doublings.tolist()]
            + [(most, listed < 0)]
            + [
                (np.full(len(job), k), listed == code)
                for code in np.unique(listed[listed >= 0]).tolist()
                for k in problem.size_lists[code].tolist()
            ]
        )
        for gpus, may in tried:
            at = np.flatnonzero(
                may & types[:, pools.gpu_type[p]] & (gpus >= jobs.min_gpus[job]) & (gpus <= most)
            )
            rate, _ = table.rate_in_pools(pools, jobs.model[job[at]], np.full(len(at), p), gpus[at])
            fastest[at] = np.fmax(fastest[at], rate)
    return np.divide(jobs.remaining_work[job], fastest, out=np.zeros(len(job)), where=fastest > 0)
