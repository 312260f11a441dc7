"""Find the jobs that a plan leaves on the same GPUs, where two jobs may share GPUs.

The *primary job* holds the GPUs and pays for them, and the *secondary job* runs on them. GPUs are
identified by the job that holds them. So a plan moves no job if it exchanges the roles of two jobs,
or lets the secondary job hold the GPUs after its primary job.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Ints


def find_unmoved_jobs(jobs: Ints, keeps_pool_and_size: Bools, primary: Ints, holder: Ints) -> Bools:
    """Find the jobs that a plan leaves on the same GPUs.

    Where a colocation is split and both jobs shall hold GPUs of that pool and size, the job that
    holds the GPUs now stays.

    Parameters
    ----------
    jobs : (n,)
        Numbers of the jobs.
    keeps_pool_and_size : (n,)
        The job gets the same pool and size as now.
    primary : (n,)
        The planned primary job of each job, -1 if it gets its own GPUs.
    holder : (n,)
        The job that holds the GPUs on which each job runs now.

    Returns
    -------
    (n,)
        True for the jobs that stay on the same GPUs.
    """
    place = {j: i for i, j in enumerate(jobs.tolist())}
    # today's holder of the GPUs on which each job shall run
    target = np.where(keeps_pool_and_size & (primary < 0), holder, -1)
    for i in np.flatnonzero((target >= 0) & (holder != jobs)).tolist():
        h = place.get(int(holder[i]), -1)
        if h >= 0 and keeps_pool_and_size[h] and primary[h] < 0:
            target[i] = -1
    for i in np.flatnonzero(primary >= 0).tolist():
        h = place[int(primary[i])]
        if target[h] < 0 and keeps_pool_and_size[i] and not (target == holder[i]).any():
            target[h] = holder[i]  # the primary job comes to its secondary job
        target[i] = target[h]
    return np.asarray(keeps_pool_and_size & (target == holder))


def find_groups(jobs: Ints, gpus: Ints, secondary: Ints) -> set[int]:
    """Find the secondary jobs that have several primary jobs, or GPUs besides theirs.

    Parameters
    ----------
    jobs, gpus : (n,)
        Numbers of the jobs, and their GPUs.
    secondary : (n,)
        The number of the secondary job of each job, -1 = none.
    """
    h = np.flatnonzero(secondary >= 0)
    shared = np.zeros(int(jobs.max(initial=0)) + 1, dtype=np.int64)
    count = np.zeros_like(shared)
    np.add.at(shared, secondary[h], gpus[h])
    np.add.at(count, secondary[h], 1)
    some = (count[jobs] > 0) & ((count[jobs] > 1) | (shared[jobs] < gpus))
    return set(jobs[some].tolist())


def find_unmoved_in_groups(
    jobs: Ints,
    keeps_pool_and_size: Bools,
    primary: Ints,
    holder: Ints,
    secondary: Ints,
    secondary_now: Ints,
    groups: set[int],
) -> Bools:
    """Find the jobs that a plan leaves on the same GPUs, where a job may have several primary jobs.

    A secondary job with several primary jobs, or with GPUs besides theirs, stays on its GPUs if the
    plan gives it exactly those of its primary jobs that stay; it then holds the GPUs of the others.
    A primary job of such a group does not stay as a secondary job.

    Parameters
    ----------
    jobs, keeps_pool_and_size, primary, holder : (n,)
        As of `find_unmoved_jobs`.
    secondary, secondary_now : (n,)
        The planned secondary job of each job, and the present one, -1 = none.
    groups : set of int
        The secondary jobs that have several primary jobs, or GPUs besides theirs, now or in the
        plan.

    Returns
    -------
    (n,)
        True for the jobs that stay on the same GPUs.
    """
    in_group = np.isin(jobs, list(groups))
    leaves = np.isin(secondary_now, jobs[in_group]) & (primary >= 0)
    outside = ~in_group & ~np.isin(primary, jobs[in_group]) & ~leaves
    unmoved = np.zeros(len(jobs), dtype=bool)
    unmoved[outside] = find_unmoved_jobs(
        jobs[outside], keeps_pool_and_size[outside], primary[outside], holder[outside]
    )
    for i in np.flatnonzero(in_group & keeps_pool_and_size).tolist():
        j = int(jobs[i])
        stay = (secondary_now == j) & unmoved & (primary < 0)
        unmoved[i] = np.array_equal(stay, secondary == j)
    return unmoved
