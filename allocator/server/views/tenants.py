"""Views of tenants: place in the tree, share, quotas, present use, and dollars by day."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from allocator.controller import spending
from allocator.io.tables.csv_table import csv_text
from allocator.objects import Json, Record
from allocator.queue.costs import RECENT_DAYS, DailyCost, list_days, read_daily_costs
from allocator.queue.database.rows import query
from allocator.queue.database.schema import ACTIVE, DEFAULT_TENANT, OPEN
from allocator.queue.tenants import read_tenants
from allocator.server.views.sight import Sight

DAYS = RECENT_DAYS
_JOBS = f"SELECT tenant, state, COUNT(*) FROM jobs WHERE state IN {ACTIVE} GROUP BY tenant, state"
_USE = (
    "SELECT j.tenant, SUM(a.held_gpus), SUM(a.held_gpus * (COALESCE(p.price_per_gpu_hour, 0)"
    " + COALESCE(p.price_per_gb_hour, 0) * a.memory_gb))"
    " FROM allocations a JOIN jobs j ON j.job_id = a.job_id LEFT JOIN pools p ON p.pool = a.pool"
    f" WHERE a.phase IN {OPEN} AND a.held_gpus > 0 GROUP BY j.tenant"
)


@dataclass
class TenantRow:
    """A tenant; what it uses is filled in while the tree is added up.

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
    quotas : list of dict
        Its rows of quotas.csv.
    month : dict or None
        Its limit of GPU-hours, their use and the forecast (market/books.py); None: no limit.
    gpus, dollars_per_hour, jobs
        What its jobs, and those of the tenants below it, hold now, cost per hour, and their
        number by state.
    today, recent : float
        US dollars of today, and of the days shown, with those of the tenants below it.
    """

    tenant: str
    parent: str
    weight: float
    max_gpus: int | None
    guaranteed_gpus: int
    budget_per_hour: float | None
    quotas: list[Json]
    month: Record | None = None
    level: int = 0
    share: float = 1.0
    gpus: int = 0
    dollars_per_hour: float = 0.0
    jobs: Counter[str] = field(default_factory=Counter)
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


def read_tenants_view(sight: Sight, days: int = DAYS) -> TenantsView:
    """Return the tenants, those of the jobs included; a member sees its own.

    `days` are those for which costs are shown, today included.
    """
    connection, now_s, tenant = sight.connection, sight.now_s, sight.tenant
    stored = read_tenants(connection)
    given = {row["tenant"]: row for row in stored["tenants"]}
    daily = read_daily_costs(connection, now_s, days, tenant)
    shown = tuple(list_days(now_s, days))
    counted = query(connection, _JOBS)
    months = spending.report_months(connection)
    names = dict.fromkeys(
        [*given, *(row[0] or DEFAULT_TENANT for row in counted), *(cost.tenant for cost in daily)]
    )
    rows = {
        name: TenantRow(
            name,
            row.get("parent") or "",
            row.get("weight") or 1.0,
            row.get("max_gpus"),
            row.get("guaranteed_gpus") or 0,
            row.get("budget_per_hour"),
            [quota for quota in stored["quotas"] if quota["tenant"] == name],
            months.get(name),
        )
        for name in names
        for row in [given.get(name, {})]
    }
    sums: dict[str, float] = defaultdict(float)
    for row in rows.values():
        sums[row.parent] += row.weight
    ordered = list(_walk_tree(rows, ""))
    for row in ordered:
        row.share = row.weight / sums[row.parent]

    def chain(name: str) -> Iterable[TenantRow]:
        """Yield a tenant, and every tenant above it."""
        seen = set[str]()
        while name in rows and name not in seen:
            seen.add(name)
            yield rows[name]
            name = rows[name].parent

    for owner, state, number in counted:
        for row in chain(owner or DEFAULT_TENANT):
            row.jobs[state] += number
    for owner, gpus, dollars in query(connection, _USE):
        for row in chain(owner or DEFAULT_TENANT):
            row.gpus += int(gpus)
            row.dollars_per_hour += dollars
    for cost in daily:
        for row in chain(cost.tenant):
            row.recent += cost.dollars
            row.today += cost.dollars if cost.day == shown[-1] else 0.0
    visible = tuple(row for row in ordered if tenant in (None, row.tenant))
    return TenantsView(visible, shown, tuple(daily))


def _walk_tree(rows: Mapping[str, TenantRow], above: str, level: int = 0) -> Iterable[TenantRow]:
    """Yield the tenants below one, with their depth; a parent that is no tenant counts as none."""
    for name, row in rows.items():
        if (row.parent if row.parent in rows else "") == above:
            row.level = level
            yield row
            yield from _walk_tree(rows, name, level + 1)


def format_showback(daily: Sequence[DailyCost]) -> str:
    """Return what tenants used by day as CSV."""
    columns = [field.name for field in fields(DailyCost)]
    amounts = ([c.day, c.tenant, f"{c.gpu_hours:.4f}", f"{c.dollars:.4f}"] for c in daily)
    return csv_text(columns, amounts)
