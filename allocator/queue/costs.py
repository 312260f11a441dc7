"""What jobs and tenants have cost so far: GPU-hours and US dollars, also by day.

A job pays for the GPUs that it holds, from the order of an allocation to its recorded end, at the
present price of the pool, with the memory that the plan of its order gave. GPUs of two colocated
jobs are paid by the one that holds them. Reserved pools count at their price too: this is what a
team used, not what a bill says (see allocator/controller/spending.py for the books of long-run
budgets).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection

from allocator.domain.records import USER
from allocator.domain.times import month_start_s
from allocator.objects import Json, Record
from allocator.queue.database.rows import query, query_of
from allocator.queue.database.schema import DEFAULT_TENANT

HOUR = 3600.0
DAY = 86_400.0
KEYS = ("month", "day", "tenant", "user", "model", "job_id")  # by which costs can be summed
RECENT_DAYS = 14  # for which the costs of tenants are shown
# An allocation holds its own GPUs from its order on, and others from each of its turns on, until
# the next turn. CROSS JOIN: SQLite begins with the allocations, not with all turns ever.
_SPANS = """
    WITH paid AS (SELECT * FROM allocations WHERE {which}),
    spans AS (
        SELECT a.*, a.gpus AS own_gpus, a.ordered_s AS begin_s, (
            SELECT t.at_s FROM turns t
            WHERE t.job_id = a.job_id AND t.generation = a.generation ORDER BY t.id LIMIT 1
        ) AS next_s FROM paid a
        UNION ALL
        SELECT a.*, t.held_gpus, t.at_s, (
            SELECT n.at_s FROM turns n
            WHERE n.job_id = t.job_id AND n.generation = t.generation AND n.id > t.id
            ORDER BY n.id LIMIT 1
        ) FROM paid a CROSS JOIN turns t
        WHERE t.job_id = a.job_id AND t.generation = a.generation
    )
    SELECT s.job_id, j.tenant, j.environment, j.model, s.pool, s.begin_s,
        COALESCE(s.next_s, s.ended_s), s.ended_s, s.own_gpus, s.memory_gb,
        COALESCE(p.price_per_gpu_hour, 0) + COALESCE(p.price_per_gb_hour, 0) * s.memory_gb
    FROM spans s
    JOIN jobs j ON j.job_id = s.job_id
    LEFT JOIN pools p ON p.pool = s.pool
    WHERE s.own_gpus > 0 AND (
        COALESCE(s.next_s, s.ended_s) IS NULL OR COALESCE(s.next_s, s.ended_s) > s.begin_s
    )
"""
_SINCE = _SPANS.replace("{which}", "ended_s IS NULL OR ended_s > ?")
_OF_JOBS = _SPANS.replace("{which}", "job_id IN ({names})")


class Cost(NamedTuple):
    """GPU-hours, and US dollars."""

    gpu_hours: float = 0.0
    dollars: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(self.gpu_hours + other.gpu_hours, self.dollars + other.dollars)


@dataclass(frozen=True)
class DailyCost:
    """What a tenant used on one day, YYYY-MM-DD in UTC."""

    day: str
    tenant: str
    gpu_hours: float
    dollars: float


class PaidSpan(NamedTuple):
    """GPUs that a job held itself from begin_s to end_s, in unix seconds.

    `ended_s` is the end of its allocation, None while that is open. `price` is in US dollars per
    GPU and hour, with the memory of the GPU.
    """

    job_id: str
    tenant: str
    user: str
    model: str
    pool: str
    begin_s: float
    end_s: float
    ended_s: float | None
    gpus: int
    memory_gb: float
    price: float

    def cost(self, begin_s: float = -math.inf, end_s: float = math.inf) -> Cost:
        """Return what it cost within a time."""
        held_h = max(0.0, min(self.end_s, end_s) - max(self.begin_s, begin_s)) / HOUR
        return Cost(held_h * self.gpus, held_h * self.gpus * self.price)


def read_job_costs(connection: Connection, job_ids: Sequence[str], now_s: float) -> dict[str, Cost]:
    """Return what each of these jobs cost so far; jobs that never held GPUs are left out."""
    out: dict[str, Cost] = {}
    for span in _list_spans(query_of(connection, _OF_JOBS, job_ids), now_s):
        out[span.job_id] = out.get(span.job_id, Cost()).plus(span.cost())
    return out


def add_costs(connection: Connection, rows: Sequence[Record], now_s: float) -> list[Json]:
    """Add gpu_hours and dollars, so far, to records of jobs."""
    costs = read_job_costs(connection, [row["job_id"] for row in rows], now_s)
    return [{**row, **costs.get(row["job_id"], Cost())._asdict()} for row in rows]


def read_tenant_costs(connection: Connection, now_s: float) -> list[Json]:
    """Return what the jobs of each tenant cost today and in the RECENT_DAYS, today included.

    Tenants without a cost are left out. A record has tenant, gpu_hours and dollars of the days, and
    dollars_today.
    """
    today_s = math.floor(now_s / DAY) * DAY
    today = read_costs(connection, now_s, today_s, ("tenant",))
    recent = read_costs(connection, now_s, today_s - (RECENT_DAYS - 1) * DAY, ("tenant",))
    dollars = {row["tenant"]: row["dollars"] for row in today}
    return [{**row, "dollars_today": dollars.get(row["tenant"], 0.0)} for row in recent]


def read_daily_costs(
    connection: Connection, now_s: float, days: int, tenant: str | None = None
) -> list[DailyCost]:
    """Return what tenants used on each of the last days, the oldest first, then by tenant.

    Parameters
    ----------
    now_s : float
        The present, unix seconds. The last day is today.
    days : int
        Number of days.
    tenant : str, optional
        Only this tenant.
    """
    begin_s = (math.floor(now_s / DAY) - days + 1) * DAY
    rows = read_costs(connection, now_s, begin_s, ("day", "tenant"), tenant)
    return [DailyCost(**row) for row in rows]


def read_costs(
    connection: Connection,
    now_s: float,
    since_s: float,
    by: Sequence[str],
    tenant: str | None = None,
) -> list[Json]:
    """Return what was used since a moment, summed by some of KEYS and sorted by them.

    A record has these keys, gpu_hours and dollars. Days and months are those of UTC.
    """
    costs: dict[tuple[str, ...], Cost] = defaultdict(Cost)
    for span in read_spans(connection, now_s, since_s):
        if tenant not in (None, span.tenant):
            continue
        at_s = max(span.begin_s, since_s)
        while at_s < span.end_s:
            end_s, day = math.inf, _format_day(math.floor(at_s / DAY))
            if "day" in by:
                end_s = (math.floor(at_s / DAY) + 1) * DAY
            elif "month" in by:
                end_s = month_start_s(at_s, 1)
            names = span._asdict() | {"day": day, "month": day[:7]}
            key = tuple(names[name] for name in by)
            costs[key] = costs[key].plus(span.cost(at_s, end_s))
            at_s = end_s
    return [
        dict(zip(by, key, strict=True)) | cost._asdict()
        for key, cost in sorted(costs.items())
        if cost.gpu_hours > 0
    ]


def list_days(now_s: float, days: int) -> list[str]:
    """Return the last days as read_daily_costs names them, the oldest first."""
    today = math.floor(now_s / DAY)
    return [_format_day(today - back) for back in reversed(range(days))]


def _format_day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")


def read_spans(connection: Connection, now_s: float, since_s: float) -> Iterator[PaidSpan]:
    """Yield what was held in allocations that were open after a time; open ones go up to now."""
    return _list_spans(query(connection, _SINCE, since_s), now_s)


def _list_spans(rows: Iterable[tuple[Any, ...]], now_s: float) -> Iterator[PaidSpan]:
    for job_id, tenant, environment, model, pool, begin_s, end_s, *rest in rows:
        until_s = max(begin_s, now_s) if end_s is None else end_s
        who = tenant or DEFAULT_TENANT, _user_of(environment), model, pool
        yield PaidSpan(job_id, *who, begin_s, until_s, *rest)


@lru_cache
def _user_of(environment: str) -> str:
    """Return the user of a job; many jobs have the same variables."""
    return str(json.loads(environment).get(USER, ""))
