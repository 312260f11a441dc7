"""Rules over all jobs: capacity, money, quotas, guarantees, changes, and justified repairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.audit import quotas
from allocator.audit.context import AuditContext, exceeds
from allocator.domain.problem import Floats


def faults(s: AuditContext, cost: Floats) -> Iterator[str]:
    """Yield every rule that the jobs break together.

    cost (J,) is the US dollars per hour of what the plan gives each job.
    """
    yield from _capacity(s)
    yield from _money(s, cost)
    yield from quotas.faults(s, cost)
    yield from _releases(s)
    yield from _changes(s)


def _capacity(s: AuditContext) -> Iterator[str]:
    pools = s.problem.pools
    # a job larger than its pool is a separate fault
    fits = s.gpus <= pools.gpus[s.pool] if len(pools) else s.has_gpus
    taken = s.held * s.problem.gpu_share(np.arange(len(s.pool)), s.pool)
    used = np.bincount(s.pool, taken * fits, len(pools))[: len(pools)]
    for p in np.flatnonzero(used > pools.gpus + 1e-6):
        yield f'pool "{pools.pool[p]}": {used[p]:g} GPUs are given, it has {pools.gpus[p]}'


def _money(s: AuditContext, cost: Floats) -> Iterator[str]:
    spent = float(cost.sum())
    if exceeds(spent, s.problem.budget_per_hour):
        yield f"the plan costs {spent:g} $/h, budget_per_hour is {s.problem.budget_per_hour:g}"


def _releases(s: AuditContext) -> Iterator[str]:
    """Check that non-preemptible jobs are released only where their pool cannot hold them all.

    No more GPUs may be released than necessary.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    released = s.repairs.released
    bound = s.running & ~jobs.preemptible & s.can_be_kept
    for j in np.flatnonzero(released & ~bound).tolist():
        yield f"{s.name(j)} is released, although no rule binds it to GPUs it could keep"
    if not (released & bound).any():
        return
    staying = np.unique(s.unit[bound & ~released])
    stay = np.bincount(jobs.pool[staying], jobs.gpus[staying], len(pools))
    for j in np.flatnonzero(released & bound).tolist():
        p = jobs.pool[j]
        more = 0 if s.unit[j] in staying else jobs.gpus[j]
        if stay[p] + more <= pools.gpus[p]:
            yield (
                f'{s.name(j)} is released, although pool "{pools.pool[p]}" with {pools.gpus[p]}'
                f" GPUs can hold its {jobs.gpus[j]} and the {stay[p]:.0f} of the others that"
                " must stay"
            )


def _changes(s: AuditContext) -> Iterator[str]:
    limit = s.problem.max_changes
    lifted = s.repairs.max_changes
    if limit < 0:
        return
    if lifted != limit:
        forced = _forced(s)
        if lifted < 0 or lifted > max(limit, forced):
            yield (
                f"max_changes {limit} is lifted to {lifted if lifted >= 0 else 'no limit'}, lost"
                f" GPUs force {forced}"
            )
        limit = max(limit, min(lifted, forced))
    changed = int((s.running & ~s.is_kept).sum())
    if changed > limit:
        yield f"{changed} running jobs change, max_changes is {limit}"


def _forced(s: AuditContext) -> int:
    """Return the number of running jobs that must change because GPUs were lost.

    These are the jobs that cannot keep what they hold, and in each pool the jobs that must go so
    that the others fit, together with all that must stay. Jobs with most GPUs go first; pairs go
    together.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    lost = ~s.can_be_kept | (s.nodes.is_unknown & ~s.is_kept)
    forced = int((s.running & lost).sum())
    members = np.bincount(s.unit[s.can_be_kept], minlength=len(jobs))
    firm = np.zeros(len(jobs), dtype=bool)
    firm[s.unit[s.can_be_kept & ~jobs.preemptible]] = True
    let = np.zeros(len(jobs), dtype=bool)  # jobs that do not fit with those that must stay
    let[s.unit[s.can_be_kept & s.repairs.released]] = True
    for p in range(len(pools)):
        here = np.flatnonzero((members > 0) & (jobs.pool == p))
        excess = int(jobs.gpus[here].sum() - pools.gpus[p])
        if excess <= 0:
            continue
        forced += int(members[here[let[here]]].sum())
        excess -= int(jobs.gpus[here[let[here]]].sum())
        loose = here[~firm[here]]
        for h in loose[np.argsort(-jobs.gpus[loose] / members[loose], kind="stable")].tolist():
            if excess > 0:
                forced = forced + int(members[h])
                excess = excess - int(jobs.gpus[h])
    return forced
