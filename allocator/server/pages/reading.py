"""Pages that only read: overview, jobs, one job, nodes, tenants, rounds."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field
from sqlalchemy import Connection

from allocator.errors import AllocatorError
from allocator.market.books import RENTED
from allocator.queue.cluster_tables import config, read_stored_columns
from allocator.queue.database.schema import DEFAULT_TENANT, STATES
from allocator.queue.errors import Refused
from allocator.queue.jobs.states import VERBS
from allocator.queue.jobs.verbs import Job
from allocator.queue.round_journal import count_rounds
from allocator.server.access import Reader, Served
from allocator.server.api import jobs
from allocator.server.caller import Caller
from allocator.server.errors import Refusal, as_missing, to_refusal
from allocator.server.pages import charts
from allocator.server.pages.rendering import render_page
from allocator.server.views.cluster import read_pools, read_use
from allocator.server.views.job import JobView, read_job
from allocator.server.views.jobs import GROUPS, JobFilter, list_jobs
from allocator.server.views.overview import read_overview
from allocator.server.views.rounds import (
    compare_rounds,
    list_rounds,
    read_last_plan,
    read_plan,
    read_round,
)
from allocator.server.views.tenants import DAYS, TenantRow, format_showback, read_tenants_view

router = APIRouter()
MOST = 200  # rows of tables without pages
MOST_DAYS = 366
MOST_NODES = 48  # of a pool on the overview
HOURS = (6, 24, 168)  # of the chart of GPUs
SPANS = (7, 14, 30, 90)  # days of a chart
SIZE = 50  # jobs of a page
MOST_EVENTS = 20  # of a job that are shown without a click
REASONS = {
    "held": "on hold, or after another job",
    "no_matching_gpu_type": "no matching GPU type",
    "exceeds_cluster": "larger than the cluster",
    "exceeds_quota": "larger than its quota",
    "protected": "GPUs held by protected jobs",
    "budget": "budget",
    "quota": "quota",
    "capacity": "too few GPUs free",
    "fragmented": "free GPUs on too many nodes",
    "outranked": "outranked by jobs of more value",
    "not_evaluated": "not evaluated by the policy",
}
DONE = {
    "hold": "The job is on hold, or will be when it has stopped.",
    "release": "The job is released.",
    "cancel": "The job is cancelled, or will be when it has stopped.",
    "retry": "The job is tried again.",
    "change": "The job is changed; the next round counts with it.",
    "submit": "The job is submitted.",
    "drain": "The node is drained: the next round moves its jobs.",
    "up": "The node is used again.",
}
Page = Annotated[int, Field(ge=1, le=1_000_000_000)]
Text = Annotated[str, Query(max_length=300)]


@router.get("/")
async def show_overview(
    request: Request,
    caller: Reader,
    served: Served,
    hours: Annotated[int, Query(ge=1, le=24 * MOST_DAYS)] = 24,
) -> Response:
    """Show what runs, waits and is stuck, the money and the GPUs."""
    now_s = served.queue.clock()

    def read(connection: Connection) -> Response:
        begin_s = now_s - 3600.0 * hours
        values = read_overview_page(connection, caller, now_s, begin_s)
        return render_page(request, caller, "overview.html", **values)

    return await served.queue.look(read)


def read_overview_page(
    connection: Connection, caller: Caller, now_s: float, begin_s: float
) -> dict[str, Any]:
    """Return what the overview shows; the chart of GPUs begins at begin_s."""
    view = read_overview(connection, now_s, tenant=caller.only_tenant)
    tenants = view.tenants
    pools = []
    for pool in view.pools:
        chart, _ = charts.draw_pool(pool, MOST_NODES)
        pools.append((pool, chart, len(pool.nodes) if len(pool.nodes) > MOST_NODES else 0))
    return {
        "view": view,
        "rented": RENTED,
        "words": REASONS,
        "pools": pools,
        "hours": round((now_s - begin_s) / 3600),
        "hour_spans": HOURS,
        "spending": charts.draw_spending(tenants.days, tenants.daily, view.budget_per_hour),
        "use": charts.draw_use(read_use(connection, begin_s, now_s)),
    }


@router.get("/jobs")
async def show_jobs(
    request: Request,
    caller: Reader,
    served: Served,
    text: Text = "",
    state: Text = "active",
    tenant: Text = "",
    reason: Text = "",
    order: Text = "",
    page: Page = 1,
) -> Response:
    """Show the jobs that match, page by page."""
    wanted = JobFilter(text, tenant, "", state or "active", reason, order == "newest")
    now_s = served.queue.clock()

    def read(connection: Connection) -> Response:
        values = read_jobs_page(connection, caller, now_s, wanted, page)
        return render_page(request, caller, "jobs.html", **values | {"given": request.query_params})

    return await served.queue.look(read)


def read_jobs_page(
    connection: Connection,
    caller: Caller,
    now_s: float,
    wanted: JobFilter,
    page: int = 1,
    size: int = SIZE,
) -> dict[str, Any]:
    """Return what a page of jobs shows."""
    found = list_jobs(connection, now_s, wanted, page=page, size=size, tenant=caller.only_tenant)
    plan = read_last_plan(connection)
    chosen = caller.only_tenant or wanted.tenant
    reasons = [*([] if plan is None else plan.reasons), *filter(None, [wanted.reason])]
    tenants = set(read_stored_columns(connection, "tenants.csv")["tenant"])
    tenants |= {row.tenant for row in found.rows} | set(filter(None, [wanted.tenant]))
    return {
        "found": found,
        "tenant": _read_tenant(connection, caller, now_s, chosen) if chosen else None,
        "wanted": wanted,
        "now_s": now_s,
        "given": {},
        "states": [(name, name) for name in (*GROUPS, *STATES)],
        "tenants": [("", "any"), *((name, name) for name in sorted(tenants | {DEFAULT_TENANT}))],
        "reasons": [
            ("", "any"),
            *((code, REASONS.get(code, code)) for code in dict.fromkeys(reasons)),
        ],
    }


@router.get("/jobs/{job_id:path}")
async def show_job(
    request: Request,
    caller: Reader,
    served: Served,
    job_id: str,
    explain: bool = False,
    done: Text = "",
) -> Response:
    """Show one job; with `explain`, decide again what would give it more."""
    now_s = served.queue.clock()

    def read(connection: Connection) -> tuple[JobView, TenantRow | None]:
        with as_missing():
            view = read_job(connection, now_s, job_id, tenant=caller.only_tenant)
        return view, _read_tenant(connection, caller, now_s, view.row.tenant)

    view, tenant = await served.queue.look(read)
    end_s = now_s if view.job.finished_s is None else view.job.finished_s
    explanation = None
    refusal = ""
    if explain:
        try:
            explanation = await jobs.explain_job(caller, served, job_id)
        except (AllocatorError, Refusal) as error:
            refusal = to_refusal(error).detail
    return render_page(
        request,
        caller,
        "job.html",
        view=view,
        tenant=tenant,
        now_s=now_s,
        held=charts.draw_holdings(view.allocations, view.job.submitted_s, end_s),
        most_events=MOST_EVENTS,
        knows_command=caller.knows_command(view.job),
        can_change=caller.can_change(view.row.tenant) and caller.session is not None,
        verbs=_list_verbs(view.job),
        done=DONE.get(done, ""),
        asked=explain,
        explanation=explanation,
        refusal=refusal,
        limit_s=served.options.advice_s,
    )


def _read_tenant(
    connection: Connection, caller: Caller, now_s: float, tenant: str
) -> TenantRow | None:
    """Return what a tenant uses now and today, None if there is no such tenant."""
    return read_tenants_view(connection, now_s, days=1, tenant=caller.only_tenant).find(tenant)


def _list_verbs(job: Job) -> list[str]:
    """Return the verbs that would change a job; nobody asks to retry one that runs."""
    allowed = []
    for verb, change in VERBS.items():
        with suppress(Refused):
            if change(job, 0.0) and (verb != "retry" or job.state != "running"):
                allowed.append(verb)
    return allowed


@router.get("/nodes")
async def show_nodes(request: Request, caller: Reader, served: Served, done: Text = "") -> Response:
    """Show all nodes of all pools."""

    def read(connection: Connection) -> Response:
        pools = read_pools(connection, tenant=caller.only_tenant)
        drawn = [(pool, *charts.draw_pool(pool)) for pool in pools]
        now_s, told = served.queue.clock(), DONE.get(done, "")
        return render_page(request, caller, "nodes.html", pools=drawn, done=told, now_s=now_s)

    return await served.queue.look(read)


@router.get("/tenants")
async def show_tenants(
    request: Request,
    caller: Reader,
    served: Served,
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = DAYS,
    tenant: Text = "",
) -> Response:
    """Show the tenants, their quotas, and what they, or one of them, spent by day."""
    now_s = served.queue.clock()

    def read(connection: Connection) -> Response:
        values = read_tenants_page(connection, caller, now_s, days, tenant)
        return render_page(request, caller, "tenants.html", **values)

    return await served.queue.look(read)


def read_tenants_page(
    connection: Connection, caller: Caller, now_s: float, days: int = DAYS, tenant: str = ""
) -> dict[str, Any]:
    """Return what the page of tenants shows."""
    view = read_tenants_view(connection, now_s, days=days, tenant=caller.only_tenant)
    row = view.find(caller.only_tenant or tenant)
    daily = view.daily if row is None else view.list_costs(row.tenant)
    budget = config(connection).get("budget_per_hour") if row is None else row.budget_per_hour
    return {
        "view": view,
        "budget_per_hour": budget,
        "drawn": "" if row is None else row.tenant,
        "drawn_days": sorted({*SPANS, days}),
        "spending": charts.draw_spending(view.days, daily, budget),
    }


@router.get("/tenants.csv")
async def send_showback(
    caller: Reader,
    served: Served,
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = DAYS,
) -> Response:
    """Send what tenants used by day as CSV."""
    now_s = served.queue.clock()
    view = await served.queue.look(read_tenants_view, now_s, days=days, tenant=caller.only_tenant)
    return Response(
        format_showback(view.daily),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="showback.csv"'},
    )


@router.get("/rounds")
async def show_rounds(request: Request, caller: Reader, served: Served, page: Page = 1) -> Response:
    """Show the journal of rounds, page by page."""

    def read(connection: Connection) -> Response:
        values = read_rounds_page(connection, page)
        return render_page(request, caller, "rounds.html", **values)

    return await served.queue.look(read)


def read_rounds_page(connection: Connection, page: int = 1, size: int = SIZE) -> dict[str, Any]:
    """Return what a page of the journal shows."""
    found = list_rounds(connection, page=page, size=size)
    return {"found": found, "changes": charts.draw_rounds(found.rows)}


@router.get("/rounds/{number}")
async def show_round(request: Request, caller: Reader, served: Served, number: Page) -> Response:
    """Show one round and its plan."""

    def read(connection: Connection) -> Response:
        with as_missing():
            view = read_round(connection, number, tenant=caller.only_tenant)
        plan = read_plan(connection, number)
        return render_page(
            request,
            caller,
            "round.html",
            view=view,
            last=count_rounds(connection),
            content=None if plan is None else plan.content,
            most=MOST,
        )

    return await served.queue.look(read)


@router.get("/compare")
async def show_comparison(
    request: Request, caller: Reader, served: Served, first: Page, second: Page
) -> Response:
    """Show what the plans of two rounds give different things."""

    def read(connection: Connection) -> Response:
        with as_missing():
            found = compare_rounds(connection, first, second, tenant=caller.only_tenant)
        plans = [read_plan(connection, number) for number in (first, second)]
        return render_page(
            request,
            caller,
            "compare.html",
            found=found,
            rounds=zip((found.before, found.after), plans, strict=True),
            first=first,
            second=second,
            most=MOST,
        )

    return await served.queue.look(read)
