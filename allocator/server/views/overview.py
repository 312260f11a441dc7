"""The whole cluster at a glance: what runs, waits and is stuck, the money, the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.controller import spending
from allocator.controller.reporting.status import describe_controller
from allocator.queue import cluster_tables, lease, round_journal
from allocator.queue.database.schema import jobs
from allocator.queue.jobs.verbs import counts, is_of_tenant
from allocator.queue.round_journal import JournalRound
from allocator.server.views.cluster import PoolState, read_pools
from allocator.server.views.jobs import GROUPS, JobAnswer, read_rows
from allocator.server.views.rounds import read_last_plan
from allocator.server.views.tenants import TenantsView, read_tenants_view

SHOWN = 10  # jobs that are stuck
LOOKED_AT = 50  # latest rounds


@dataclass(frozen=True)
class Overview:
    """What the overview shows.

    Attributes
    ----------
    now_s : float
        When it was read, unix seconds.
    jobs : dict of str to int
        Jobs by state.
    reasons : dict of str to int
        Waiting jobs by reason code of the last plan, the most frequent first.
    pools : tuple of PoolState
        GPUs.
    tenants : TenantsView
        Use and money by tenant.
    dollars_per_hour, budget_per_hour : float, and float or None
        What the GPUs in use cost now, and the limit.
    today : float
        US dollars of today.
    longrun : dict
        Long-run budgets by tenant, "" for the whole cluster.
    stuck : tuple of JobAnswer
        Jobs that are parked or that failed and are tried again.
    stuck_count : int
        Their number.
    controller : dict
        Its state ("none", "in charge" or "silent"), holder and token.
    last : JournalRound or None
        The last round.
    failed, looked_at : int
        Rounds that failed, of the latest so many.
    problems : tuple of str
        What an operator should look at, one sentence each.
    """

    now_s: float
    jobs: Mapping[str, int]
    reasons: Mapping[str, int]
    pools: tuple[PoolState, ...]
    tenants: TenantsView
    dollars_per_hour: float
    budget_per_hour: float | None
    today: float
    longrun: Mapping[str, Mapping[str, Any]]
    stuck: tuple[JobAnswer, ...]
    stuck_count: int
    controller: Mapping[str, Any]
    last: JournalRound | None
    failed: int
    looked_at: int
    problems: tuple[str, ...]

    @property
    def waiting(self) -> int:
        """Jobs that wait for GPUs."""
        return sum(self.jobs[state] for state in GROUPS["waiting"])


def read_overview(connection: Connection, now_s: float, *, tenant: str | None = None) -> Overview:
    """Return the overview; with a tenant, the jobs and the money of this tenant only."""
    plan = read_last_plan(connection)
    is_mine = [] if tenant is None else [is_of_tenant(tenant)]
    waiting = sa.select(jobs.c.job_id).where(jobs.c.state.in_(GROUPS["waiting"]), *is_mine)
    entries = {} if plan is None else plan.jobs
    reasons = Counter(
        entries[name]["reason"]
        for name in connection.execute(waiting).scalars()
        if name in entries and entries[name]["reason"]
    )
    is_stuck = sa.or_(
        jobs.c.state == "failed",
        sa.and_(jobs.c.state.in_(GROUPS["waiting"]), jobs.c.failures > 0),
    )
    stuck = (
        connection.execute(
            sa.select(jobs.c.job_id).where(is_stuck, *is_mine).order_by(jobs.c.updated_s.desc())
        )
        .scalars()
        .all()
    )
    tenants = read_tenants_view(connection, now_s, tenant=tenant)
    pools = read_pools(connection, tenant=tenant)
    config = cluster_tables.config(connection)
    longrun = spending.report(connection)
    latest = round_journal.history(connection, limit=LOOKED_AT)
    last = latest[-1] if latest else None
    controller = describe_controller(lease.read_current(connection), now_s)
    interval_s = float(config.get("interval_s") or 300.0)
    tops = [row for row in tenants.tenants if tenant is not None or row.level == 0]
    return Overview(
        now_s,
        counts(connection, tenant),
        dict(reasons.most_common()),
        pools,
        tenants,
        sum(row.dollars_per_hour for row in tops),
        tops[0].budget_per_hour if tenant is not None and tops else config.get("budget_per_hour"),
        sum(row.today for row in tops),
        {name: report for name, report in longrun.items() if tenant in (None, name)},
        read_rows(connection, now_s, stuck[:SHOWN], plan),
        len(stuck),
        controller,
        last,
        sum(one.outcome == "failed" for one in latest),
        len(latest),
        tuple(_list_problems(controller, last, now_s, interval_s, tenant)),
    )


def _list_problems(
    controller: Mapping[str, Any],
    last: JournalRound | None,
    now_s: float,
    interval_s: float,
    tenant: str | None,
) -> Iterator[str]:
    """Yield what is wrong; with a tenant, without names of other tenants' jobs."""
    if controller["state"] == "none":
        yield "No controller leads: no job starts or stops."
    elif controller["state"] == "silent":
        yield f"Controller {controller['holder']} is silent: its lease has expired."
    elif last is not None and now_s - last.at_s > 2 * interval_s:
        yield "The last round began more than two intervals ago."
    if last is not None and last.outcome == "failed":
        why = f": {last.detail}" if tenant is None else "."
        yield f"The last round has no plan{why}"
