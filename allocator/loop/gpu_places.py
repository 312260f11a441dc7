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
