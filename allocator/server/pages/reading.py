"""Pages that only read: overview, jobs, one job, nodes, reservations, tenants, rounds."""

from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import Field

from allocator.errors import AllocatorError
from allocator.market.books import RENTED
from allocator.queue.cluster_tables import read_stored_columns
from allocator.queue.database.schema import DEFAULT_TENANT, STATES
from allocator.queue.errors import Refused
from allocator.queue.holdings import VERBS
from allocator.queue.jobs.verbs import Job
from allocator.queue.round_journal import count_rounds
from allocator.server.access import Reader, Served
from allocator.server.api import cluster, jobs
from allocator.server.errors import Refusal, as_missing, to_refusal
from allocator.server.pages import charts
from allocator.server.pages.rendering import Pages, render_page
from allocator.server.views.cluster import read_pools, read_use
from allocator.server.views.job import JobView, read_job
from allocator.server.views.jobs import GROUPS, JobsPage, list_jobs
from allocator.server.views.overview import read_overview
from allocator.server.views.rounds import compare_rounds, list_rounds, read_round
from allocator.server.views.sight import Sight, read_plan
from allocator.server.views.tenants import DAYS, TenantRow, format_showback, read_tenants_view

router = Pages()
MOST = 200  # rows of tables without pages
MOST_DAYS = 366
MOST_NODES = 48  # of a pool on the overview
HOURS = (6, 24, 168)  # of the chart of GPUs
SPANS = (7, 14, 30, 90)  # days of a chart
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
    "reserve-gpus": "The GPUs are kept; the next round counts with it.",
    "cancel-gpus": "The reservation is over.",
}
Page = Annotated[int, Field(ge=1, le=1_000_000_000)]
Text = Annotated[str, Query(max_length=300)]
Days = Annotated[int, Query(ge=1, le=MOST_DAYS)]
Values = dict[str, Any]


@router.page("/", "overview.html")
def show_overview(
    sight: Sight, hours: Annotated[float, Query(ge=1, le=24 * MOST_DAYS)] = 24
) -> Values:
    """Show what runs, waits and is stuck, the money and the GPUs."""
    view = read_overview(sight)
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
        "hours": round(hours),
        "hour_spans": HOURS,
        "spending": charts.draw_spending(tenants.days, tenants.daily, view.budget_per_hour),
        "use": charts.draw_use(read_use(sight, sight.now_s - 3600.0 * hours)),
    }


@router.page("/jobs", "jobs.html")
def show_jobs(sight: Sight, wanted: Annotated[JobsPage, Query()]) -> Values:
    """Show the jobs that match, page by page."""
    wanted = wanted.model_copy(update={"state": wanted.state or "active"})
    page, tenant, reason = list_jobs(sight, wanted), wanted.tenant, wanted.reason
    chosen = sight.tenant or tenant
    tenants = {*read_stored_columns(sight.connection, "tenants.csv")["tenant"], DEFAULT_TENANT}
    tenants |= {row.tenant for row in page.rows} | set(filter(None, [tenant]))
    count = Counter(filter(None, (entry["reason"] for entry in sight.entries.values())))
    reasons = dict.fromkeys([*(code for code, _ in count.most_common()), *filter(None, [reason])])
    return {
        "found": page,
        "tenant": _read_tenant(sight, chosen) if chosen else None,
        "wanted": wanted,
        "now_s": sight.now_s,
        "states": [(name, name) for name in (*GROUPS, *STATES)],
        "tenants": [("", "any"), *((name, name) for name in sorted(tenants))],
        "reasons": [("", "any"), *((code, REASONS.get(code, code)) for code in reasons)],
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

    def read(sight: Sight) -> tuple[JobView, TenantRow | None, float]:
        with as_missing():
            view = read_job(sight, job_id)
        return view, _read_tenant(sight, view.row.tenant), sight.now_s

    view, tenant, now_s = await served.queue.look(caller, read)
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
        knows_command=caller.can_change(view.row.tenant),
        can_change=caller.can_change(view.row.tenant) and caller.session is not None,
        verbs=_list_verbs(view.job),
        done=DONE.get(done, ""),
        asked=explain,
        explanation=explanation,
        refusal=refusal,
        limit_s=served.options.advice_s,
    )


def _read_tenant(sight: Sight, tenant: str) -> TenantRow | None:
    """Return what a tenant uses now and today, None if there is no such tenant."""
    return read_tenants_view(sight, days=1).find(tenant)


def _list_verbs(job: Job) -> list[str]:
    """Return the verbs that would change a job; nobody asks to retry one that runs."""
    allowed = []
    for verb, change in VERBS.items():
        with suppress(Refused):
            if change(job, 0.0) and (verb != "retry" or job.state != "running"):
                allowed.append(verb)
    return allowed


@router.page("/nodes", "nodes.html")
def show_nodes(sight: Sight, done: Text = "") -> Values:
    """Show all nodes of all pools."""
    drawn = [(pool, *charts.draw_pool(pool)) for pool in read_pools(sight)]
    return {"pools": drawn, "done": DONE.get(done, ""), "now_s": sight.now_s}


@router.page("/reservations", "reservations.html")
def show_reservations(sight: Sight, done: Text = "") -> Values:
    """Show the GPUs that are kept; with their holders and times."""
    pools = read_stored_columns(sight.connection, "pools.csv")["pool"]
    return {
        "rows": cluster.list_reservations(sight).reservations,
        "pools": pools,
        "done": DONE.get(done, ""),
        "now_s": sight.now_s,
    }


@router.page("/tenants", "tenants.html")
def show_tenants(sight: Sight, days: Days = DAYS, tenant: Text = "") -> Values:
    """Show the tenants, their quotas, and what they, or one of them, spent by day."""
    view = read_tenants_view(sight, days)
    row = view.find(sight.tenant or tenant)
    daily = view.daily if row is None else view.list_costs(row.tenant)
    budget = sight.config.get("budget_per_hour") if row is None else row.budget_per_hour
    return {
        "view": view,
        "budget_per_hour": budget,
        "drawn": "" if row is None else row.tenant,
        "drawn_days": sorted({*SPANS, days}),
        "spending": charts.draw_spending(view.days, daily, budget),
    }


@router.reads("/tenants.csv")
def send_showback(sight: Sight, days: Days = DAYS) -> Response:
    """Send what tenants used by day as CSV."""
    return Response(
        format_showback(read_tenants_view(sight, days).daily),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="showback.csv"'},
    )


@router.page("/rounds", "rounds.html")
def show_rounds(sight: Sight, page: Page = 1) -> Values:
    """Show the journal of rounds, page by page."""
    rounds = list_rounds(sight, page)
    return {"found": rounds, "changes": charts.draw_rounds(rounds.rows)}


@router.page("/rounds/{number}", "round.html")
def show_round(sight: Sight, number: Page) -> Values:
    """Show one round and its plan."""
    with as_missing():
        view = read_round(sight, number)
    plan = read_plan(sight.connection, number)
    last = count_rounds(sight.connection)
    content = None if plan is None else plan.content
    return {"view": view, "last": last, "content": content, "most": MOST}


@router.page("/compare", "compare.html")
def show_comparison(sight: Sight, first: Page, second: Page) -> Values:
    """Show what the plans of two rounds give different things."""
    with as_missing():
        comparison = compare_rounds(sight, first, second)
    plans = [read_plan(sight.connection, number) for number in (first, second)]
    rounds = zip((comparison.before, comparison.after), plans, strict=True)
    return {"found": comparison, "rounds": rounds, "first": first, "second": second, "most": MOST}
