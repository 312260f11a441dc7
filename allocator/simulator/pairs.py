"""Two jobs on the same GPUs in the simulated cluster: who may stay where, and how fast a job runs in its company.

The *host* holds the GPUs and pays for them, the *guest* runs on them. GPUs are known by who holds them: a plan that has
the two change places, or lets the guest hold them after its host, moves nobody.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.performance.beside import beside
from allocator.performance.interference import Measured
from allocator.performance.table import RateTable

Slowdowns = Measured


def believed(problem: Problem, slowdowns: Slowdowns, jobs: Ints, pool: Ints, gpus: Ints, host: Ints,
             mate: Ints) -> Floats:
    """(n,) work per second of the jobs (n,) on so many GPUs, beside their mates where they have one (-1 = none).
    host (n,): whose guest each is, -1 = it holds the GPUs itself."""
    pools = problem.pools
    rate, _ = RateTable.of(problem).rate(problem.jobs.model[jobs], pools.gpu_type[pool], gpus, pools.memory_gb[pool])
    both = np.flatnonzero(mate >= 0)
    if len(both):
        guest = host[both] >= 0
        found = beside(problem, np.where(guest, mate[both], jobs[both]), np.where(guest, jobs[both], mate[both]),
                       pool[both], gpus[both], slowdowns)
        rate[both] = np.where(guest, found.rate_guest, found.rate_host)
    return rate


def staying(jobs: Ints, alike: Bools, host: Ints, holder: Ints) -> Bools:
    """(n,) which of the jobs (n,) a plan leaves on the very GPUs they run on.

    alike (n,): same pool and size as now. host (n,): whose guest each is planned to be, -1 = none. holder (n,): who
    holds the GPUs that each runs on now. Where a pair is split and both shall hold GPUs of that pool and size, the one
    that holds them stays.
    """
    place = {j: i for i, j in enumerate(jobs.tolist())}
    target = np.where(alike & (host < 0), holder, -1)            # who holds today the GPUs that each shall run on
    for i in np.flatnonzero((target >= 0) & (holder != jobs)).tolist():
        h = place.get(int(holder[i]), -1)
        if h >= 0 and alike[h] and host[h] < 0:
            target[i] = -1
    for i in np.flatnonzero(host >= 0).tolist():
        h = place[int(host[i])]
        if target[h] < 0 and alike[i] and not (target == holder[i]).any():
            target[h] = holder[i]                                # the host comes to its guest
        target[i] = target[h]
    return np.asarray(alike & (target == holder))
