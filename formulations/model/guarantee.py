"""The GPUs that a guarantee amounts to: the most, up to g, that jobs could hold by themselves.

    u = max sum_j k_j   s.t.  one option (p, k) or none per job,  sum_{j in p} k_j <= capacity_p,
        sum_j k_j <= g,  sum_{j of s in h} k_j <= most  for every limit (s, h, most)

The jobs are those of a tenant and of all tenants below it, and the limits those of these tenants s
in sets of pools h. A guarantee of g GPUs can hold u GPUs only, because jobs have whole sizes. This
is a bounded subset-sum problem. If jobs taken one by one do not add up to g, bit sets of reachable
sums, added up along the tree of tenants, give an upper bound. It is exact unless pools are smaller
than g, or limits concern some of the pools only; then a search over sums decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

JobSizes = Sequence[tuple[int, int]]  # (pool, gpus) of one job, gpus >= 1

STATES = 200_000  # sums that the search may hold


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
    """

    owner: Sequence[int]
    parent: Sequence[int]
    rows: Sequence[tuple[int, Collection[int], int]]

    def line(self, tenant: int) -> list[int]:
        """Return a tenant and those above it."""
        out = []
        while tenant >= 0:
            out.append(tenant)
            tenant = self.parent[tenant]
        return out


def usable_guarantee(
    g: int, jobs: Sequence[JobSizes], capacity: Sequence[int], limits: Limits | None = None
) -> int:
    """Return u for a guarantee of g GPUs.

    Beyond STATES sums the result is the best sum found so far, which is at most u.
    """
    if g <= 0:
        return 0
    if limits is None or not limits.rows:
        limits = Limits([0] * len(jobs), [-1], ())
    dimensions = _Dimensions(capacity, limits)
    known = _take_one_by_one(g, jobs, dimensions)
    if known == g:
        return g
    pools = {p for options in jobs for p, _ in options}
    best = _reachable(g, jobs, limits, pools)
    partial = any(not pools.issubset(h) for _, h, _ in limits.rows)
    if best == known or (all(capacity[p] >= g for p in pools) and not partial):
        return best
    return max(known, _search(best, g, jobs, dimensions))


class _Dimensions:
    """What sums are limited: the GPUs of each pool, and the limits of tenants."""

    def __init__(self, capacity: Sequence[int], limits: Limits) -> None:
        self.most = [*capacity, *(most for _, _, most in limits.rows)]
        self.pools = len(capacity)
        self._limits = limits
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def of(self, job: int, pool: int) -> tuple[int, ...]:
        """Return what GPUs of a job in a pool count for."""
        owner = self._limits.owner[job]
        if (owner, pool) not in self._known:
            line = set(self._limits.line(owner))
            rows = enumerate(self._limits.rows, self.pools)
            self._known[owner, pool] = (
                pool,
                *(n for n, (tenant, pools, _) in rows if tenant in line and pool in pools),
            )
        return self._known[owner, pool]


def _take_one_by_one(g: int, jobs: Iterable[JobSizes], dimensions: _Dimensions) -> int:
    """Return the sum if each job in turn takes the largest option that fits."""
    left, missing = list(dimensions.most), g
    for j, options in enumerate(jobs):
        for p, k in sorted(options, key=lambda option: -option[1]):
            used = dimensions.of(j, p)
            if k <= missing and all(k <= left[n] for n in used):
                missing -= k
                for n in used:
                    left[n] -= k
                break
        if not missing:
            break
    return g - missing


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


def _search(target: int, g: int, jobs: Sequence[JobSizes], dimensions: _Dimensions) -> int:
    """Return the best sum within all limits, searched breadth first over what is used."""
    most, pools = dimensions.most, dimensions.pools
    states = {(0,) * len(most)}
    best = 0
    for j, options in enumerate(jobs):
        new = set(states)
        for state in states:
            total = sum(state[:pools])
            for p, k in options:
                used = dimensions.of(j, p)
                if total + k <= g and all(state[n] + k <= most[n] for n in used):
                    new.add(tuple(x + k if n in used else x for n, x in enumerate(state)))
                    best = max(best, total + k)
        states = new
        if best >= target or len(states) > STATES:
            break
    return best
