"""Quotas, guarantees and lending of tenants and of the trees below them (R17 to R20, R63 to R66).

The tree and the quotas are read independently of allocator/options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.audit.context import AuditContext, exceeds
from allocator.audit.guarantee import Claim, exact_gpus
from allocator.domain.problem import Bools, Floats, Ints, Market


@dataclass(frozen=True)
class _Quota:
    """One row of tenants.csv or quotas.csv.

    Attributes
    ----------
    of : str
        Words for the pools after "GPUs", empty for all.
    key : (int, int)
        GPU type and pool, -1 = any.
    """

    tenant: int
    of: str
    key: tuple[int, int]
    pools: Bools
    max_gpus: float
    guaranteed_gpus: int
    reserve: float


def faults(s: AuditContext, cost: Floats) -> Iterator[str]:
    """Yield every rule of tenants that the plan breaks; cost (J,) is in US dollars per hour."""
    tenants = s.problem.tenants
    quotas = list(_quotas(s))
    spent = _sum_by_tree(s, cost)
    for q, name in enumerate(tenants.tenant):
        if exceeds(spent[q], tenants.budget_per_hour[q]):
            yield (
                f'tenant "{name}" costs {spent[q]:g} $/h, its budget_per_hour is'
                f" {tenants.budget_per_hour[q]:g}"
            )
        yield from _exposure(s, q)
        jobs, most = int((s.has_gpus & (s.problem.jobs.tenant == q)).sum()), _read_most_jobs(s, q)
        if jobs > most:
            yield f'{jobs} jobs of tenant "{name}" run, its max_jobs is {tenants.max_jobs[q]:g}'
    pools = {q.key: q.pools for q in quotas}
    held = {key: _sum_by_tree(s, s.held * _is_in(s, where)) for key, where in pools.items()}
    for k, quota in enumerate(quotas):
        gpus = int(held[quota.key][quota.tenant])
        name = tenants.tenant[quota.tenant]
        words = f"{gpus} GPUs{quota.of}"
        if gpus > quota.max_gpus:
            yield f'tenant "{name}" gets {words}, its max_gpus is {quota.max_gpus:g}'
        if gpus < quota.guaranteed_gpus:
            needed = int(s.repairs.usable[k])
            # nodes may hold less than the pools
            if gpus >= needed and not s.problem.has_nodes.any():
                needed = exact_gpus(s, _claim(s, quotas, k), gpus) or 0
            if gpus < needed:
                yield (
                    f'tenant "{name}" gets {words}, its guarantee of'
                    f" {quota.guaranteed_gpus} amounts to {needed} that its jobs could hold"
                )
    yield from _lending(s, quotas)


def _sum_by_tree(s: AuditContext, amount: Ints | Floats) -> Floats:
    """Return the sum over the jobs of each tenant and of those below it, (Q,)."""
    tenants = s.problem.tenants
    total = np.zeros(len(tenants) + 1)  # the last is of no tenant
    for line in tenants.ancestors[:, s.problem.jobs.tenant]:
        np.add.at(total, line, amount)
    return total[:-1]


def _is_in(s: AuditContext, pools: Bools) -> Bools:
    """Return which jobs get GPUs of some pools, (J,)."""
    return np.append(pools, False)[np.where(s.has_gpus, s.pool, -1)]


def _below(s: AuditContext, q: int) -> Bools:
    """Return a mask (Q,) of a tenant and the tenants below it."""
    return np.asarray(np.any(s.problem.tenants.ancestors == q, axis=0))


def _quotas(s: AuditContext) -> Iterator[_Quota]:
    """List the rows of tenants.csv, then those of quotas.csv."""
    problem = s.problem
    tenants = problem.tenants
    pools = problem.pools
    by_hours, spent = _read_gpu_hours(s)
    for q in range(len(tenants)):
        most = min(float(tenants.max_gpus[q]), by_hours.get(q, np.inf))
        least = 0 if q in spent else int(tenants.guaranteed_gpus[q])
        yield _Quota(q, "", (-1, -1), np.ones(len(pools), dtype=bool), most, least, 0.0)
    rows = problem.quotas
    for q, kind, pool, most, least, lent in zip(
        *(rows.tenant.tolist(), rows.gpu_type.tolist(), rows.pool.tolist()),
        *(rows.max_gpus.tolist(), rows.guaranteed_gpus.tolist(), rows.lend_gpus.tolist()),
        strict=True,
    ):
        of = f' of pool "{pools.pool[pool]}"' if pool >= 0 else ""
        of = f' of type "{problem.gpu_types[kind]}"' if kind >= 0 else of
        where = (kind < 0) | (pools.gpu_type == kind)
        where &= (kind >= 0) | (pool < 0) | (np.arange(len(pools)) == pool)
        promised = 0 if q in spent else least
        yield _Quota(q, of, (kind, pool), where, most, promised, max(0.0, promised - lent))


def _read_gpu_hours(s: AuditContext) -> tuple[dict[int, int], set[int]]:
    """Return the GPUs at most of the tenants with a limit of GPU-hours, and those whose guarantees
    have ended for the month (R69).
    """
    problem = s.problem
    tenants, jobs, rows = problem.tenants, problem.jobs, problem.quotas
    most: dict[int, int] = {}
    spent: set[int] = set()
    bound = ~jobs.preemptible | (jobs.resizes_left == 0) | (problem.max_changes >= 0)
    bound &= s.running & (jobs.primary < 0)
    for q in np.flatnonzero(tenants.gpu_hours_per_month < np.inf).tolist():
        tree = _below(s, q)
        kept = int(jobs.gpus[bound & tree[jobs.tenant]].sum())
        promised = (
            tenants.guaranteed_gpus[tree].sum() + rows.guaranteed_gpus[tree[rows.tenant]].sum()
        )
        left_s = 3600.0 * float(tenants.gpu_hours_per_month[q] - tenants.gpu_hours_used[q])
        paid = max(0, int(left_s // (problem.interval_s * (1 - 1e-9))))
        most[q] = max(paid, kept)
        if paid < kept + promised:
            spent |= set(np.flatnonzero(tree).tolist())
    return most, spent


def _read_most_jobs(s: AuditContext, q: int) -> float:
    """Return how many jobs of a tenant may run: those that stay in any case, or its limit (R72)."""
    most = float(s.problem.tenants.max_jobs[q])
    jobs = s.problem.jobs
    stay = s.running & (jobs.tenant == q)
    if s.problem.max_changes < 0:
        stay &= ~jobs.preemptible | (jobs.resizes_left == 0)
    return most if most == np.inf else max(most, int(stay.sum()))


def _claim(s: AuditContext, quotas: list[_Quota], k: int) -> Claim:
    """Return what the guarantee of quota k is about."""
    below = _below(s, quotas[k].tenant)
    limits = tuple(
        (_below(s, other.tenant), other.pools, other.max_gpus)
        for n, other in enumerate(quotas)
        if n != k and below[other.tenant] and np.isfinite(other.max_gpus)
    )
    jobs = tuple(
        (np.arange(len(below)) == q, _read_most_jobs(s, q)) for q in np.flatnonzero(below).tolist()
    )
    return Claim(below, quotas[k].pools, quotas[k].guaranteed_gpus, limits, jobs)


def _lending(s: AuditContext, quotas: list[_Quota]) -> Iterator[str]:
    """Check that GPUs that tenants do not lend stay free where their own jobs do not use them."""
    for key in dict.fromkeys(quota.key for quota in quotas if quota.reserve > 0):
        of_key = [k for k, quota in enumerate(quotas) if quota.key == key]
        quota = quotas[of_key[0]]
        pools = quota.pools
        usable = {}
        for k in of_key:
            exact = None
            if quotas[k].guaranteed_gpus and not s.problem.has_nodes.any():
                exact = exact_gpus(s, _claim(s, quotas, k))
            usable[k] = int(s.repairs.usable[k]) if exact is None else exact
        kept, need = _kept_and_needed(s, {k: quotas[k] for k in of_key}, usable, pools)
        gpus = int(s.problem.pools.gpus[pools].sum())
        held = int(s.held[_is_in(s, pools)].sum())
        words = quota.of.removeprefix(" of ").replace('"', "") or "all GPUs"
        if held > max(gpus - kept, need) + s.problem.yielded.get(words, 0.0):
            yield (
                f"{held} GPUs{quota.of} are given, but of {gpus} tenants do not lend {kept:g} that"
                " their own jobs can not use"
            )


def _kept_and_needed(
    s: AuditContext, quotas: dict[int, _Quota], usable: dict[int, int], pools: Bools
) -> tuple[float, float]:
    """Return the GPUs of some pools that stay free, and those that rules need in any case (R65)."""
    jobs = s.problem.jobs
    parent = s.problem.tenants.parent.tolist()
    bound = s.running & ~jobs.preemptible & s.can_be_kept & ~s.repairs.released
    bound &= (jobs.primary < 0) & np.append(pools, False)[jobs.pool]
    depth = (s.problem.tenants.ancestors >= 0).sum(axis=0)
    order = np.argsort(depth, kind="stable").tolist()  # parents before children
    kept, need = ({-1: 0.0} | dict.fromkeys(order, 0.0) for _ in range(2))
    for t in reversed(order):
        own = [k for k, quota in quotas.items() if quota.tenant == t]
        need[t] += float(jobs.gpus[bound & (jobs.tenant == t)].sum())
        kept[parent[t]] += max([kept[t], *(quotas[k].reserve - usable[k] for k in own)])
        need[parent[t]] += max([need[t], *(float(usable[k]) for k in own)])
    return kept[-1], need[-1]


def _exposure(s: AuditContext, q: int) -> Iterator[str]:
    """Check the GPUs of a tenant in the spot pools of one region."""
    tenants = s.problem.tenants
    pools = s.problem.pools
    limit = tenants.max_spot_gpus[q]
    if np.isfinite(tenants.max_spot_share[q]):
        limit = min(limit, int(tenants.max_spot_share[q] * tenants.guaranteed_gpus[q] + 1e-9))
    if not (np.isfinite(limit) and len(pools)):
        return
    on_spot = s.has_gpus & (s.problem.jobs.tenant == q) & (pools.market[s.pool] == Market.SPOT)
    region_of = np.array(pools.region)[s.pool]
    for region in np.unique(region_of[on_spot]).tolist():
        held = int(s.held[on_spot & (region_of == region)].sum())
        if held > limit:
            yield (
                f'tenant "{tenants.tenant[q]}" gets {held} spot GPUs in region "{region}", its'
                f" max_spot_gpus is {limit:g}"
            )
