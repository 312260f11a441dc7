"""Views of tenants: place in the tree, share, quotas, present use, and dollars by day."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from allocator.queue.costs import RECENT_DAYS, DailyCost, list_days, read_daily_costs
from allocator.queue.database.bulk import query
from allocator.queue.database.schema import ACTIVE, DEFAULT_TENANT, OPEN
from allocator.queue.tenants import read_tenants

DAYS = RECENT_DAYS
_JOBS = f"SELECT tenant, state, COUNT(*) FROM jobs WHERE state IN {ACTIVE} GROUP BY tenant, state"
_USE = (
    "SELECT j.tenant, SUM(a.held_gpus), SUM(a.held_gpus * (COALESCE(p.price_per_gpu_hour, 0)"
    " + COALESCE(p.price_per_gb_hour, 0) * a.memory_gb))"
    " FROM allocations a JOIN jobs j ON j.job_id = a.job_id LEFT JOIN pools p ON p.pool = a.pool"
    f" WHERE a.phase IN {OPEN} AND a.held_gpus > 0 GROUP BY j.tenant"
)


@dataclass(frozen=True)
class QuotaRow:
    """One quota of a tenant: on all GPUs, on those of a type, or on those of a pool."""

    gpu_type: str
    pool: str
    max_gpus: int | None
    guaranteed_gpus: int
    lend_gpus: int | None


@dataclass(frozen=True)
class TenantRow:
    """A tenant.

    Attributes
    ----------
    level : int
        Depth in the tree, 0 = no parent.
    weight, share : float
        Its weight, and its part of the weights of the tenants with the same parent.
    max_gpus, guaranteed_gpus : int or None, and int
        Quota and guarantee over all GPUs; None: no limit.
    budget_per_hour : float or None
        US dollars per hour; None: no limit.
    gpus, dollars_per_hour, jobs
        What its jobs, and those of the tenants below it, hold now, cost per hour, and their
        number by state.
    today, recent : float
        US dollars of today, and of the days shown, with those of the tenants below it.
    """

    tenant: str
    parent: str
    level: int
    weight: float
    share: float
    max_gpus: int | None
    guaranteed_gpus: int
    budget_per_hour: float | None
    quotas: tuple[QuotaRow, ...]
    gpus: int
    dollars_per_hour: float
    jobs: Mapping[str, int]
    today: float
    recent: float


@dataclass
class _Use:
    """What a tenant and those below it use; filled while the tree is added up."""

    gpus: int = 0
    dollars_per_hour: float = 0.0
    jobs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    today: float = 0.0
    recent: float = 0.0


@dataclass(frozen=True)
class TenantsView:
    """All tenants in the order of the tree, and their costs by day, the oldest day first."""

    tenants: tuple[TenantRow, ...]
    days: tuple[str, ...]
    daily: tuple[DailyCost, ...]

    def find(self, tenant: str) -> TenantRow | None:
        """Return the row of a tenant, None if there is no such tenant."""
        return next((row for row in self.tenants if row.tenant == tenant), None)

    def list_costs(self, tenant: str) -> tuple[DailyCost, ...]:
        """Return the costs of a tenant and of those below it by day."""
        names = {tenant}
        for row in self.tenants:  # a parent comes before its children
            if row.parent in names:
                names.add(row.tenant)
        return tuple(cost for cost in self.daily if cost.tenant in names)


def read_tenants_view(
    connection: Connection, now_s: float, *, days: int = DAYS, tenant: str | None = None
) -> TenantsView:
    """Return the tenants, those of the jobs included.

    Parameters
    ----------
    now_s : float
        The present, unix seconds.
    days : int
        Days for which costs are shown, today included.
    tenant : str, optional
        Only this tenant can be seen.
    """
    stored = read_tenants(connection)
    rows = {row["tenant"]: row for row in stored["tenants"]}
    daily = read_daily_costs(connection, now_s, days, tenant)
    shown = tuple(list_days(now_s, days))
    counted = query(connection, _JOBS)
    used = query(connection, _USE)
    names = dict.fromkeys(
        [*rows, *(row[0] or DEFAULT_TENANT for row in counted), *(cost.tenant for cost in daily)]
    )
    parents = {name: rows.get(name, {}).get("parent") or "" for name in names}
    uses = {name: _Use() for name in names}

    def chain(name: str) -> Iterable[_Use]:
        """Yield the use of a tenant, and of every tenant above it."""
        seen = set[str]()
        while name in uses and name not in seen:
            seen.add(name)
            yield uses[name]
            name = parents[name]

    for owner, state, number in counted:
        for use in chain(owner or DEFAULT_TENANT):
            use.jobs[state] += number
    for owner, gpus, dollars in used:
        for use in chain(owner or DEFAULT_TENANT):
            use.gpus += int(gpus)
            use.dollars_per_hour += float(dollars)
    for cost in daily:
        for use in chain(cost.tenant):
            use.recent += cost.dollars
            use.today += cost.dollars if cost.day == shown[-1] else 0.0
    ordered = list(_walk_tree(parents, ""))
    weights = {name: float(rows.get(name, {}).get("weight") or 1.0) for name in names}
    sums: dict[str, float] = defaultdict(float)
    for name in names:
        sums[parents[name]] += weights[name]
    found = tuple(
        _build_row(
            rows.get(name, {}),
            name,
            parents[name],
            level,
            weights[name],
            weights[name] / sums[parents[name]],
            uses[name],
            [row for row in stored["quotas"] if row["tenant"] == name],
        )
        for name, level in ordered
        if tenant in (None, name)
    )
    return TenantsView(found, shown, tuple(daily))


def _walk_tree(parents: Mapping[str, str], above: str, level: int = 0) -> Iterable[tuple[str, int]]:
    """Yield the tenants below one with their depth; a parent that is no tenant counts as none."""
    for name, parent in parents.items():
        if (parent if parent in parents else "") == above:
            yield name, level
            yield from _walk_tree(parents, name, level + 1)


def _build_row(
    row: Mapping[str, Any],
    name: str,
    parent: str,
    level: int,
    weight: float,
    share: float,
    use: _Use,
    quotas: Sequence[Mapping[str, Any]],
) -> TenantRow:
    return TenantRow(
        name,
        parent,
        level,
        weight,
        share,
        _whole(row.get("max_gpus")),
        _whole(row.get("guaranteed_gpus")) or 0,
        row.get("budget_per_hour"),
        tuple(
            QuotaRow(
                quota["gpu_type"] or "",
                quota["pool"] or "",
                _whole(quota["max_gpus"]),
                _whole(quota["guaranteed_gpus"]) or 0,
                _whole(quota["lend_gpus"]),
            )
            for quota in quotas
        ),
        use.gpus,
        use.dollars_per_hour,
        dict(use.jobs),
        use.today,
        use.recent,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def format_showback(daily: Sequence[DailyCost]) -> str:
    """Return what tenants used by day as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("day", "tenant", "gpu_hours", "dollars"))
    for cost in daily:
        writer.writerow((cost.day, cost.tenant, f"{cost.gpu_hours:.4f}", f"{cost.dollars:.4f}"))
    return out.getvalue()
