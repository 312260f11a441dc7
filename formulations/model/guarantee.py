"""The GPUs that a guarantee amounts to: the most, up to g, that jobs could hold by themselves.

    u = max sum_j k_j   s.t.  one option (p, k) or none per job,  sum_{j in p} f_j k_j <= GPUs_p,
        sum_j k_j <= g,  sum_{j of s in h} k_j <= most  for every limit (s, h, most),
        at most n_s jobs of tenant s

f_j is 1, or the share of its GPU that job j takes.

The jobs are those of a tenant and of all tenants below it, and the limits those of these tenants s
in sets of pools h. A guarantee of g GPUs can hold u GPUs only, because jobs have whole sizes. This
is a bounded subset-sum problem. If jobs taken one by one do not add up to g, bit sets of reachable
sums, added up along the tree of tenants, give an upper bound. It is exact unless pools are smaller
than g, or limits concern some of the pools only, or the number of jobs; then a search over sums
decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

JobSizes = Sequence[tuple[int, int]]  # (pool, gpus) of one job, gpus >= 1

STATES = 200_000  # sums that the search may hold
ROUNDING = 1e-9  # GPUs that sums of shares may miss by


@dataclass(frozen=True)
class Limits:
    """Limits on some jobs of a guarantee, besides those of pools.

    Attributes
    ----------
    owner : sequence of int
        Number of the tenant of each job.
    parent : sequence of int
        Parent of each tenant, -1 = none.
    rows : sequence of (int, collection of int, int)
        Tenant, pools, and the most GPUs of the jobs of the tenant and of those below it there.
    jobs : sequence of float
        Most jobs of each tenant, without those below it; inf = no limit.
    """

    owner: Sequence[int]
    parent: Sequence[int]
    rows: Sequence[tuple[int, Collection[int], int]]
    jobs: Sequence[float]

    @property
    def counts_jobs(self) -> bool:
        """Whether any tenant has a limit on jobs."""
        return min(self.jobs, default=math.inf) < math.inf

    def line(self, tenant: int) -> list[int]:
        """Return a tenant and those above it."""
        out = []
        while tenant >= 0:
            out.append(tenant)
            tenant = self.parent[tenant]
        return out


def usable_guarantee(
    g: int,
    jobs: Sequence[JobSizes],
    capacity: Sequence[int],
    limits: Limits | None = None,
    share: Callable[[int, int], float] | None = None,
) -> int:
    """Return u for a guarantee of g GPUs.

    `share` gives f_j for (number of the job, pool), None = 1. Beyond STATES sums the result is the
    best sum found so far, which is at most u.
    """
    if g <= 0:
        return 0
    if limits is None or not (limits.rows or limits.counts_jobs):
        limits = Limits([0] * len(jobs), [-1], (), [math.inf])
    dimensions = _Dimensions(capacity, g, limits, share or (lambda job, pool: 1.0))
    order: Sequence[int] = range(len(jobs))
    if limits.counts_jobs:
        largest = [max((k for _, k in options), default=0) for options in jobs]
        order = sorted(order, key=lambda j: -largest[j])
    known = _take_one_by_one(g, jobs, order, dimensions)
    if known == g:
        return g
    pools = {p for options in jobs for p, _ in options}
    best = _reachable(g, jobs, limits, pools)
    if limits.counts_jobs:
        best = min(best, sum(largest[j] for j in _first_of_tenants(order, limits)))
    partial = limits.counts_jobs or any(not pools.issubset(h) for _, h, _ in limits.rows)
    if best == known or (all(capacity[p] >= g for p in pools) and not partial):
        return best
    return max(known, _search(best, jobs, dimensions))


class _Dimensions:
    """What sums are limited: the GPUs of each pool, all GPUs, and the limits of tenants."""

    def __init__(
        self,
        capacity: Sequence[int],
        g: int,
        limits: Limits,
        share: Callable[[int, int], float],
    ) -> None:
        self.most: list[float] = [*capacity, g, *(most for _, _, most in limits.rows)]
        self.total = len(capacity)
        self._of_jobs = {}
        for tenant, most in enumerate(limits.jobs):
            if most < math.inf:
                self._of_jobs[tenant] = len(self.most)
                self.most.append(most)
        self._limits = limits
        self._share = share
        self._known: dict[tuple[int, int], list[int]] = {}

    def used(self, job: int, pool: int, gpus: int) -> list[tuple[int, float]]:
        """Return (dimension, how much) of what an option of a job uses."""
        owner = self._limits.owner[job]
        if (owner, pool) not in self._known:
            line = set(self._limits.line(owner))
            rows = enumerate(self._limits.rows, self.total + 1)
            counts = [n for n, (t, pools, _) in rows if t in line and pool in pools]
            self._known[owner, pool] = [self.total, *counts]
        return [
            (pool, gpus * self._share(job, pool)),
            *((n, gpus) for n in self._known[owner, pool]),
            *([(self._of_jobs[owner], 1)] if owner in self._of_jobs else ()),
        ]


def _first_of_tenants(order: Sequence[int], limits: Limits) -> Iterator[int]:
    """List the first jobs of each tenant, as many as its limit allows."""
    left = list(limits.jobs)
    for j in order:
        if left[limits.owner[j]] >= 1:
            left[limits.owner[j]] -= 1
            yield j


def _take_one_by_one(
    g: int, jobs: Sequence[JobSizes], order: Sequence[int], dimensions: _Dimensions
) -> int:
    """Return the sum if each job in turn takes the largest option that fits."""
    left = list(dimensions.most)
    for j in order:
        for p, k in sorted(jobs[j], key=lambda option: -option[1]):
            used = dimensions.used(j, p, k)
            if all(amount <= left[n] + ROUNDING for n, amount in used):
                for n, amount in used:
                    left[n] -= amount
                break
        if not left[dimensions.total]:
            break
    return g - int(left[dimensions.total])


def _reachable(g: int, jobs: Sequence[JobSizes], limits: Limits, pools: Collection[int]) -> int:
    """Return the largest sum <= g without the limits of pools, and without those of some pools.

    Bit n of a number means that n is a sum.
    """
    most = [g] * len(limits.parent)
    for tenant, h, limit in limits.rows:
        if set(pools).issubset(h):
            most[tenant] = min(most[tenant], max(0, int(limit)))
    sums = [1] * len(most)
    for options, tenant in zip(jobs, limits.owner, strict=True):
        now = sums[tenant]
        if now.bit_length() - 1 == most[tenant] and now == (1 << most[tenant] + 1) - 1:
            continue
        new = now
        for k in {k for _, k in options}:
            new |= now << k
        sums[tenant] = new & ((1 << most[tenant] + 1) - 1)
    total = 1
    for tenant in sorted(range(len(most)), key=lambda t: -len(limits.line(t))):
        above = limits.parent[tenant]
        if above >= 0:
            sums[above] = _add(sums[above], sums[tenant]) & ((1 << most[above] + 1) - 1)
        else:
            total = _add(total, sums[tenant]) & ((1 << g + 1) - 1)
    return total.bit_length() - 1


def _add(a: int, b: int) -> int:
    """Return the sums of one number of `a` and one of `b`."""
    out = 0
    while b:
        lowest = b & -b
        out |= a * lowest
        b ^= lowest
    return out


def _search(target: int, jobs: Sequence[JobSizes], dimensions: _Dimensions) -> int:
    """Return the best sum within all limits, searched breadth first over what is used."""
    most = dimensions.most
    total = dimensions.total
    states: set[tuple[float, ...]] = {(0,) * len(most)}
    best = 0
    for j, options in enumerate(jobs):
        new = set(states)
        for p, k in options:
            step = [0.0] * len(most)
            for n, amount in dimensions.used(j, p, k):
                step[n] = amount
            for state in states:
                now = tuple(a + b for a, b in zip(state, step, strict=True))
                if all(a <= b + ROUNDING for a, b in zip(now, most, strict=True)):
                    new.add(now)
                    best = max(best, int(now[total]))
        states = new
        if best >= target or len(states) > STATES:
            break
    return best
