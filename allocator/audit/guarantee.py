"""The audit's own computation of a guarantee.

The guarantee is u, the most GPUs, at most `guaranteed_gpus`, that options of the jobs of a tenant
and of those below it could hold if they were alone in the cluster (R18, R64).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Bools

# largest number of sums that are extended; after that the claim is accepted
WORK = 300_000

Sizes = list[tuple[int, int]]  # (pool, gpus) of one job


@dataclass(frozen=True)
class Claim:
    """What a guarantee is about.

    Attributes
    ----------
    tenants : (Q,)
        The tenant and all below it.
    pools : (P,)
        Pools whose GPUs count.
    goal : int
        Its guaranteed_gpus.
    limits : tuple of ((Q,), (P,), float)
        Tenants, pools and most GPUs of every other limit of these tenants.
    jobs : tuple of ((Q,), float)
        Tenants and most of their jobs.
    """

    tenants: Bools
    pools: Bools
    goal: int
    limits: tuple[tuple[Bools, Bools, float], ...] = ()
    jobs: tuple[tuple[Bools, float], ...] = ()


def exact_gpus(s: AuditContext, claim: Claim, at_least: int = 0) -> int | None:
    """Return what the guarantee amounts to, `at_least` where that is no more.

    It is None if the exact search would grow too large.
    """
    tenant, every = s.problem.jobs.tenant, s.every
    counts = claim.tenants[tenant[every.job]] & claim.pools[every.pool]
    sizes: dict[int, Sizes] = {}  # of the jobs that have options in the pools
    rows = (every.job[counts], every.pool[counts], every.gpus[counts])
    for j, p, k in zip(*(row.tolist() for row in rows), strict=True):
        sizes.setdefault(j, []).append((p, k))
    top = at_least
    if _best_ignoring_pools(list(sizes.values()), claim.goal) <= top:
        return top
    for best in _sums(s, claim, sizes):
        if best is None:
            return None
        top = max(top, best)
        if top == claim.goal:
            break
    return top


def _sums(s: AuditContext, claim: Claim, sizes_of_jobs: dict[int, Sizes]) -> Iterator[int | None]:
    """Yield every sum of GPUs that the jobs could hold within pools and limits.

    None means that there are too many.
    """
    capacity: list[float] = s.problem.pools.gpus.tolist()
    counted = [(who, limit) for who, limit in claim.jobs if limit < np.inf]
    most = [*capacity, *(limit for _, _, limit in claim.limits), *(n for _, n in counted)]
    states, work = {(0,) * len(most)}, 0  # GPUs taken of each pool and limit
    for j, sizes in sizes_of_jobs.items():
        owner = int(s.problem.jobs.tenant[j])
        work += len(states) * len(sizes)
        if work > WORK:
            yield None
            return
        new = set(states)
        for p, k in sizes:
            step = [k if n == p else 0 for n in range(len(capacity))]
            step += [k if who[owner] and where[p] else 0 for who, where, _ in claim.limits]
            step += [int(who[owner]) for who, _ in counted]
            for state in states:
                now = tuple(a + b for a, b in zip(state, step, strict=True))
                total = sum(now[: len(capacity)])
                if total <= claim.goal and all(a <= b for a, b in zip(now, most, strict=True)):
                    yield total
                    new.add(now)
        states = new


def _best_ignoring_pools(sizes_of_jobs: list[Sizes], goal: int) -> int:
    """Return the largest sum <= goal of at most one size per job, with pools ignored.

    It is at least u. Bit n of `sums` means that n is a sum.
    """
    sums = 1
    inside = (1 << goal + 1) - 1
    for sizes in sizes_of_jobs:
        longer = sums
        for k in {k for _, k in sizes if k <= goal}:
            longer |= sums << k
        sums = longer & inside
        if sums >> goal:
            break
    return sums.bit_length() - 1
