"""The whole cluster at a glance: what runs, waits and is stuck, the money, the controller."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from allocator.controller import spending
from allocator.controller.reporting.status import describe_controller
from allocator.objects import Record
from allocator.queue import lease, round_journal
from allocator.queue.database.schema import jobs
from allocator.queue.jobs.verbs import counts, is_of_tenant
from allocator.queue.round_journal import JournalRound
from allocator.server.views.cluster import PoolState, read_pools
from allocator.server.views.jobs import GROUPS, JobAnswer, read_rows
from allocator.server.views.sight import Sight
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
    longrun: Mapping[str, Record]
    stuck: tuple[JobAnswer, ...]
    stuck_count: int
    controller: Record
    last: JournalRound | None
    failed: int
    looked_at: int
    problems: tuple[str, ...]

    @property
    def waiting(self) -> int:
        """Jobs that wait for GPUs."""
        return sum(self.jobs[state] for state in GROUPS["waiting"])


def read_overview(sight: Sight) -> Overview:
    """Return the overview; a member sees the jobs and the money of its tenant only."""
    connection, tenant = sight.connection, sight.tenant
    is_waiting = jobs.c.state.in_(GROUPS["waiting"])
    is_stuck = sa.or_(jobs.c.state == "failed", sa.and_(is_waiting, jobs.c.failures > 0))
    is_mine = [] if tenant is None else [is_of_tenant(tenant)]
    names = sa.select(jobs.c.job_id).where(*is_mine)
    waiting, stuck = (
        connection.execute(names.where(which).order_by(order)).scalars().all()
        for which, order in ((is_waiting, jobs.c.seq), (is_stuck, jobs.c.updated_s.desc()))
    )
    codes = (sight.entries.get(name, {}).get("reason") for name in waiting)
    reasons = Counter(reason for reason in codes if reason)
    tenants = read_tenants_view(sight)
    latest = round_journal.history(connection, limit=LOOKED_AT)
    last = latest[-1] if latest else None
    controller = describe_controller(lease.read_current(connection), sight.now_s)
    tops = [row for row in tenants.tenants if tenant is not None or row.level == 0]
    longrun = spending.report(connection)
    return Overview(
        sight.now_s,
        counts(connection, tenant),
        dict(reasons.most_common()),
        read_pools(sight),
        tenants,
        sum(row.dollars_per_hour for row in tops),
        (tops[0].budget_per_hour if tenant and tops else sight.config.get("budget_per_hour")),
        sum(row.today for row in tops),
        {name: report for name, report in longrun.items() if tenant in (None, name)},
        read_rows(sight, stuck[:SHOWN]),
        len(stuck),
        controller,
        last,
        sum(entry.outcome == "failed" for entry in latest),
        len(latest),
        tuple(_list_problems(sight, controller, last)),
    )


def _list_problems(sight: Sight, controller: Record, last: JournalRound | None) -> Iterator[str]:
    """Yield what is wrong; for a member without names of other tenants' jobs."""
    interval_s = float(sight.config.get("interval_s") or 300.0)
    if controller["state"] == "none":
        yield "No controller leads: no job starts or stops."
    elif controller["state"] == "silent":
        yield f"Controller {controller['holder']} is silent: its lease has expired."
    elif last is not None and sight.now_s - last.at_s > 2 * interval_s:
        yield "The last round began more than two intervals ago."
    if last is not None and last.outcome == "failed":
        why = f": {last.detail}" if sight.tenant is None else "."
        yield f"The last round has no plan{why}"
