"""The audit's own computation of a guarantee, independent of allocator/options.

The guarantee is u, the most GPUs, at most `guaranteed_gpus`, that options of the tenant's own jobs
could hold if the tenant were alone in the cluster (R18).
"""

from __future__ import annotations

import numpy as np

from allocator.audit.context import AuditContext

# largest number of sums per pool that are extended; after that the claim is accepted
WORK = 300_000


def most_gpus(s: AuditContext, tenant: int, at_least: int) -> int:
    """Return a number of GPUs above `at_least` that the tenant's guarantee amounts to.

    `at_least` is returned if there is no larger number, or if the exact search would grow too
    large; then the claim is accepted.
    """
    goal = int(s.problem.tenants.guaranteed_gpus[tenant])
    job, pool, gpus, _ = s.options(np.flatnonzero(s.problem.jobs.tenant == tenant))
    cuts = np.flatnonzero(np.diff(job)) + 1
    sizes_of_jobs: list[list[tuple[int, int]]] = [
        list(zip(p.tolist(), k.tolist(), strict=True))
        for p, k in zip(np.split(pool, cuts), np.split(gpus, cuts), strict=True)
    ]
    if _best_ignoring_pools(sizes_of_jobs, goal) <= at_least:
        return at_least
    capacity: list[int] = s.problem.pools.gpus.tolist()
    states, work = {(0,) * len(capacity)}, 0  # GPUs taken of each pool
    for sizes in sizes_of_jobs:
        work += len(states) * len(sizes)
        if work > WORK:
            return at_least
        new = set(states)
        for state in states:
            for p, k in sizes:
                total = sum(state) + k
                if total <= goal and state[p] + k <= capacity[p]:
                    if total > at_least:
                        return total
                    new.add((*state[:p], state[p] + k, *state[p + 1 :]))
        states = new
    return at_least


def _best_ignoring_pools(sizes_of_jobs: list[list[tuple[int, int]]], goal: int) -> int:
    """Return the largest sum <= goal of at most one size per job, with pools ignored.

    It is at least u. Bit n of `sums` means that n is a sum.
    """
    sums, inside = 1, (1 << goal + 1) - 1
    for sizes in sizes_of_jobs:
        longer = sums
        for k in {k for _, k in sizes if k <= goal}:
            longer |= sums << k
        sums = longer & inside
        if sums >> goal:
            break
    return sums.bit_length() - 1
