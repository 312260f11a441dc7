"""The GPUs that a guarantee amounts to: the most, up to g, that one tenant's jobs could hold alone.

    u = max sum_j k_j   s.t.  one option (p, k) or none per job,  sum_{j in p} k_j <= capacity_p,
        sum_j k_j <= g

A guarantee of g GPUs can hold u GPUs only, because jobs have whole sizes. This is a bounded
subset-sum problem with pools. A bit set of reachable sums gives an upper bound in microseconds. It
is exact unless several pools are smaller than g; then a search over sums per pool decides.
"""

from __future__ import annotations

from collections.abc import Sequence

JobSizes = Sequence[tuple[int, int]]  # (pool, gpus) of one job, gpus >= 1

STATES = 200_000  # sums per pool that the search may hold


def usable_guarantee(g: int, jobs: Sequence[JobSizes], capacity: Sequence[int]) -> int:
    """Return u for a guarantee of g GPUs.

    Beyond STATES sums per pool the result is the best sum found so far, which is at most u.
    """
    if g <= 0:
        return 0
    best = _reachable(g, jobs)
    pools = sorted({p for options in jobs for p, _ in options})
    if all(capacity[p] >= g for p in pools) or best == 0:
        return best
    return _search(best, g, jobs, pools, capacity)


def _reachable(g: int, jobs: Sequence[JobSizes]) -> int:
    """Return the largest sum <= g without the limits of pools."""
    mask, sums = (1 << (g + 1)) - 1, 1
    for options in jobs:
        new = sums
        for k in {k for _, k in options}:
            new |= sums << k
        sums = new & mask
        if sums >> g:
            break
    return sums.bit_length() - 1


def _search(
    target: int, g: int, jobs: Sequence[JobSizes], pools: Sequence[int], capacity: Sequence[int]
) -> int:
    """Return the best sum within the pools, searched breadth first over the sums per pool."""
    place = {p: i for i, p in enumerate(pools)}
    free_capacity = [min(capacity[p], g) for p in pools]
    states = {(0,) * len(pools)}
    best = 0
    for options in jobs:
        new = set(states)
        for state in states:
            total = sum(state)
            for p, k in options:
                i = place[p]
                if state[i] + k <= free_capacity[i] and total + k <= g:
                    new.add((*state[:i], state[i] + k, *state[i + 1 :]))
                    best = max(best, total + k)
        states = new
        if best >= target or len(states) > STATES:
            break
    return best
