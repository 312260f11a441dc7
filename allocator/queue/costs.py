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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from allocator.domain.records import USER
from allocator.domain.times import month_start_s
from allocator.queue.database.bulk import query, query_of
from allocator.queue.database.schema import DEFAULT_TENANT
from allocator.queue.holdings import Turns, read_turns_of, read_turns_since, split_by_holder

HOUR = 3600.0
DAY = 86_400.0
KEYS = ("month", "day", "tenant", "user", "model", "job_id")  # by which costs can be summed
RECENT_DAYS = 14  # for which the costs of tenants are shown
_COLUMNS = (
    "SELECT a.job_id, a.generation, j.tenant, j.environment, j.model, a.gpus, a.ordered_s,"
    " a.ended_s, COALESCE(p.price_per_gpu_hour, 0) + COALESCE(p.price_per_gb_hour, 0) * a.memory_gb"
    " FROM allocations a JOIN jobs j ON j.job_id = a.job_id"
    " LEFT JOIN pools p ON p.pool = a.pool WHERE "
)
_OPEN_SINCE = f"{_COLUMNS} (a.ended_s IS NULL OR a.ended_s > ?)"
_OF_JOBS = f"{_COLUMNS} a.job_id IN ({{names}})"


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


class _PaidSpan(NamedTuple):
    """A job that held GPUs from begin_s to end_s, in unix seconds."""

    job_id: str
    tenant: str
    user: str
    model: str
    begin_s: float
    end_s: float
    gpus: int
    price: float

    def cost(self, begin_s: float = -math.inf, end_s: float = math.inf) -> Cost:
        """Return what it cost within a time."""
        held_h = max(0.0, min(self.end_s, end_s) - max(self.begin_s, begin_s)) / HOUR
        return Cost(held_h * self.gpus, held_h * self.gpus * self.price)


def read_job_costs(connection: Connection, job_ids: Sequence[str], now_s: float) -> dict[str, Cost]:
    """Return what each of these jobs cost so far; jobs that never held GPUs are left out."""
    rows = query_of(connection, _OF_JOBS, job_ids)
    turns = read_turns_of(connection, job_ids)
    out: dict[str, Cost] = {}
    for span in _paid_spans(rows, turns, now_s):
        out[span.job_id] = out.get(span.job_id, Cost()).plus(span.cost())
    return out


def add_costs(
    connection: Connection, rows: Sequence[Mapping[str, Any]], now_s: float
) -> list[dict[str, Any]]:
    """Add gpu_hours and dollars, so far, to records of jobs."""
    costs = read_job_costs(connection, [row["job_id"] for row in rows], now_s)
    return [{**row, **costs.get(row["job_id"], Cost())._asdict()} for row in rows]


def read_tenant_costs(connection: Connection, now_s: float) -> list[dict[str, Any]]:
    """Return what the jobs of each tenant cost today and in the RECENT_DAYS, today included.

    Tenants without a cost are left out. A record has tenant, gpu_hours and dollars of the days, and
    dollars_today.
    """
    today = list_days(now_s, 1)[0]
    out: dict[str, dict[str, Any]] = {}
    for cost in read_daily_costs(connection, now_s, RECENT_DAYS):
        row = out.setdefault(
            cost.tenant,
            {"tenant": cost.tenant, "gpu_hours": 0.0, "dollars": 0.0, "dollars_today": 0.0},
        )
        row["gpu_hours"] += cost.gpu_hours
        row["dollars"] += cost.dollars
        row["dollars_today"] += cost.dollars if cost.day == today else 0.0
    return [out[name] for name in sorted(out)]


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
) -> list[dict[str, Any]]:
    """Return what was used since a moment, summed by some of KEYS and sorted by them.

    A record has these keys, gpu_hours and dollars. Days and months are those of UTC.
    """
    turns = read_turns_since(connection, since_s)
    found: dict[tuple[str, ...], Cost] = defaultdict(Cost)
    for span in _paid_spans(query(connection, _OPEN_SINCE, since_s), turns, now_s):
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
            found[key] = found[key].plus(span.cost(at_s, end_s))
            at_s = end_s
    return [
        dict(zip(by, key, strict=True)) | cost._asdict()
        for key, cost in sorted(found.items())
        if cost.gpu_hours > 0
    ]


def list_days(now_s: float, days: int) -> list[str]:
    """Return the last days as read_daily_costs names them, the oldest first."""
    today = math.floor(now_s / DAY)
    return [_format_day(today - back) for back in reversed(range(days))]


def _format_day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")


def _paid_spans(rows: Sequence[tuple[Any, ...]], turns: Turns, now_s: float) -> Iterator[_PaidSpan]:
    for job_id, generation, tenant, environment, model, gpus, ordered_s, ended_s, price in rows:
        changes = turns.get((job_id, generation), ())
        for begin_s, end_s, own in split_by_holder(gpus, ordered_s, ended_s, changes):
            if own:
                until_s = now_s if end_s is None else end_s
                yield _PaidSpan(
                    job_id,
                    tenant or DEFAULT_TENANT,
                    json.loads(environment).get(USER, ""),
                    model,
                    begin_s,
                    max(begin_s, until_s),
                    own,
                    price,
                )
