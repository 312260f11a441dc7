"""The audit's own reading of a guarantee and of a job's options, written apart from allocator/options.

u = the most GPUs, not above `guaranteed_gpus`, that options of the tenant's own jobs could hold if it were alone in
the cluster (contract section 1, tenants.csv).
"""

from __future__ import annotations

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints, Market

WORK = 300_000        # extensions of sums per pool; beyond, the search gives up and the claim stands


def options(s: Scene, chosen: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """All options of the chosen jobs: job, pool, gpus, rate, each (n,), in order of job."""
    jobs, pools = s.problem.jobs, s.problem.pools
    found = [(j := chosen[s.keepable[chosen]], jobs.pool[j], jobs.gpus[j])]
    free = chosen[~s.barred[chosen] & ~s.frozen[chosen]]
    for code in np.unique(jobs.sizes[free]).tolist():
        same = free[jobs.sizes[free] == code]
        for p in range(len(pools)):
            able = same[s.types[same, pools.gpu_type[p]]]
            most = np.minimum(np.minimum(jobs.max_gpus[able], pools.gpus[p]), s.table.largest[jobs.model[able]])
            if pools.market[p] == Market.SPOT:
                most = np.minimum(most, jobs.max_spot_gpus[able]).astype(np.int64)
            node, top = int(pools.gpus_per_node[p]), int(most.max(initial=0))
            sizes = s.problem.size_lists[code] if code >= 0 else np.array(sorted(
                {1 << i for i in range(node.bit_length())} | set(range(node, top + 1, node))), dtype=np.int64)
            first = np.searchsorted(sizes, jobs.min_gpus[able])
            count = np.maximum(0, np.searchsorted(sizes, most, side="right") - first)
            job = np.repeat(able, count)
            gpus = sizes[np.arange(len(job)) + np.repeat(first - np.cumsum(count) + count, count)]
            new = ~(s.running[job] & (jobs.pool[job] == p) & (jobs.gpus[job] == gpus))
            found.append((job[new], np.full(int(new.sum()), p), gpus[new]))
    job, pool, gpus = (np.concatenate(part) for part in zip(*found, strict=True))
    holds = s.running[job] & (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
    rate, _ = s.table.rate(jobs.model[job], pools.gpu_type[pool], gpus, pools.memory_gb[pool], holds)
    order = np.flatnonzero(rate > 0)
    order = order[np.argsort(job[order], kind="stable")]
    return job[order], pool[order], gpus[order], rate[order]


def most_gpus(s: Scene, tenant: int, at_least: int) -> int:
    """A number of GPUs above `at_least` that the guarantee of the tenant amounts to, or `at_least` if there is none.

    Where the exact search would grow too large, `at_least`: the claim stands.
    """
    goal = int(s.problem.tenants.guaranteed_gpus[tenant])
    job, pool, gpus, _ = options(s, np.flatnonzero(s.problem.jobs.tenant == tenant))
    cuts = np.flatnonzero(np.diff(job)) + 1
    menus: list[list[tuple[int, int]]] = [list(zip(p.tolist(), k.tolist(), strict=True))
             for p, k in zip(np.split(pool, cuts), np.split(gpus, cuts), strict=True)]
    if _best_ignoring_pools(menus, goal) <= at_least:
        return at_least
    capacity: list[int] = s.problem.pools.gpus.tolist()
    states, work = {(0,) * len(capacity)}, 0          # GPUs taken of each pool
    for menu in menus:
        work += len(states) * len(menu)
        if work > WORK:
            return at_least
        new = set(states)
        for state in states:
            for p, k in menu:
                total = sum(state) + k
                if total <= goal and state[p] + k <= capacity[p]:
                    if total > at_least:
                        return total
                    new.add((*state[:p], state[p] + k, *state[p + 1:]))
        states = new
    return at_least


def _best_ignoring_pools(menus: list[list[tuple[int, int]]], goal: int) -> int:
    """The largest sum <= goal of at most one size per job, pools ignored: not below u. Bit n of `sums`: n is a sum."""
    sums, inside = 1, (1 << goal + 1) - 1
    for menu in menus:
        longer = sums
        for k in {k for _, k in menu if k <= goal}:
            longer |= sums << k
        sums = longer & inside
        if sums >> goal:
            break
    return sums.bit_length() - 1
