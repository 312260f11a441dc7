"""Which jobs a plan leaves on the very GPUs they run on, where two jobs may share them.

The *primary job* holds the GPUs and pays for them, the *secondary job* runs on them. GPUs are known
by who holds them: a plan that has the two change places, or lets the secondary job hold them after
its primary job, moves nobody.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Ints


def find_unmoved_jobs(jobs: Ints, keeps_pool_and_size: Bools, primary: Ints, holder: Ints) -> Bools:
    """(n,) which of the jobs (n,) a plan leaves on the very GPUs they run on.

    keeps_pool_and_size (n,): same pool and size as now. primary (n,): the job on whose GPUs each is
    planned to run, -1 = its own. holder (n,): the job that holds the GPUs that each runs on now.
    Where a pair is split and
    both shall hold GPUs of that pool and size, the one that holds them stays.
    """
    place = {j: i for i, j in enumerate(jobs.tolist())}
    # who holds today the GPUs that each shall run on
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
