"""What allocations have cost, for the books of long-run budgets (market/books.py).

Books are kept up to the moment of the round that wrote them, in the transaction of that round. The
next round bills the time from there to its own moment. So every second of every allocation is
billed once, whatever crashes in between.

An allocation is billed from its order to its recorded end, for min_billing_s at least, at the price
of its pool at the end of the billed time, with the memory that the plan of its order gave. If its
end is recorded late, it was held until then. GPUs of two colocated jobs are billed to the primary
job. A secondary job pays for the GPUs that it holds itself, from the moment at which it holds them,
and a job that leaves its own to it owes no minimum.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from allocator.domain.problem import Market, Problem, split_names
from allocator.domain.snapshot import Snapshot
from allocator.loop.live_rental import LiveRental
from allocator.market import books
from allocator.market.history import History
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.costs import read_costs, read_spans
from allocator.queue.database.rows import execute, query
from allocator.queue.jobs.past import read_history

KEY = "longrun"  # of the table meta
GPU_HOURS, MONTHS = "gpu_hours", "months"  # of the books: the GPU-hours of tenants, as reported
# when the primary jobs of an allocation changed, those from then on, and those before
_HOSTS = (
    "SELECT t.at_s, t.host, LAG(t.host) OVER (PARTITION BY t.job_id, t.generation ORDER BY t.id)"
    " FROM allocations a CROSS JOIN turns t WHERE t.job_id = a.job_id"
    " AND t.generation = a.generation AND (a.ended_s IS NULL OR a.ended_s > ?)"
)


def _read_books(connection: Connection) -> Json:
    return dict(cluster_tables.read_meta(connection, KEY, {}))


def apply_budgets(
    connection: Connection, snapshot: Snapshot, problem: Problem, plans: LiveRental
) -> tuple[Snapshot, Problem, Json | None]:
    """Apply the prices and limits of the long-run budgets to a snapshot and its problem.

    Those of [rental] are planned from the jobs of the queue, in `plans`.

    Returns
    -------
    tuple of (Snapshot, Problem, dict or None)
        The snapshot and the problem with prices and limits, and the books to write with the round.
        The GPU-hours of the month are among them. Without budgets and limits of GPU-hours, the
        snapshot and the problem are unchanged and the books are None.
    """
    stored = _read_books(connection)
    months: Json = {}
    if books.limits_gpu_hours(problem):
        snapshot, problem, months = _with_gpu_hours(connection, snapshot, problem, stored)
    if not books.budgets(problem):
        return snapshot, problem, months or None

    def read_past(since_s: float) -> History:
        return read_history(connection, snapshot.name, problem.models, since_s)[0]

    since_s = stored.get("at_s")
    spent = {} if since_s is None else measure_costs(connection, problem, since_s)
    now = books.update_books(books.from_json(stored), problem, spent)
    changed = books.apply_books(plans.apply(problem, read_past, now.get(books.WHOLE)), now)
    snapshot_with_terms = books.snapshot_with_terms(snapshot, changed)
    kept = {
        "at_s": problem.now_s if since_s is None else max(since_s, problem.now_s),
        **books.to_json(now),
        "report": books.report(now, changed),
        **months,
    }
    # limits never fall below the cost of the reserved GPUs, so no rule has to be checked again
    changed = replace(changed, digest=snapshot_with_terms.digest)
    return snapshot_with_terms, changed, kept


def _with_gpu_hours(
    connection: Connection, snapshot: Snapshot, problem: Problem, stored: Record
) -> tuple[Snapshot, Problem, Json]:
    """Return the snapshot and the problem with the GPU-hours of the month, and what is kept."""
    use = books.use_from_json(stored.get(GPU_HOURS))
    now_s = problem.now_s
    rows = read_costs(connection, now_s, use.since_s(now_s), ("tenant",))
    use = books.add_gpu_hours(use, now_s, {row["tenant"]: row["gpu_hours"] for row in rows})
    problem = books.with_gpu_hours(problem, use)
    listed = len(snapshot.tables["tenants.csv"])  # as in snapshot_with_terms
    used = problem.tenants.gpu_hours_used[:listed]
    snapshot = snapshot.with_columns("tenants.csv", gpu_hours_used=used)
    months = {GPU_HOURS: books.use_to_json(use), MONTHS: books.report_months(problem)}
    return snapshot, replace(problem, digest=snapshot.digest), months


def write(connection: Connection, kept: Record | None) -> None:
    """Keep the books of `apply_budgets`, in the transaction of their round.

    None: there are no long-run budgets, and the books are deleted.
    """
    if kept is None:
        execute(connection, "DELETE FROM meta WHERE key = ?", KEY)
    else:
        cluster_tables.write_meta(connection, KEY, kept)


def report(connection: Connection) -> dict[str, Json]:
    """Return the budgets as of the last round (market/longrun.py); "": the whole cluster."""
    return dict(_read_books(connection).get("report", {}))


def report_months(connection: Connection) -> dict[str, Json]:
    """Return the GPU-hours of tenants with a limit as of the last round (market/books.py)."""
    return dict(_read_books(connection).get(MONTHS, {}))


def measure_costs(connection: Connection, problem: Problem, since_s: float) -> dict[str, float]:
    """Return what GPUs that are not reserved cost from since_s to the problem's now_s.

    Returns
    -------
    dict of str to float
        US dollars by tenant.
    """
    pools, now_s = problem.pools, problem.now_s
    longest = float(pools.min_billing_s.max(initial=0.0))
    number = {name: p for p, name in enumerate(pools.pool)}
    # jobs that left their GPUs to their secondary job, with the time
    left = {
        (name, at_s)
        for at_s, after, before in query(connection, _HOSTS, since_s - longest)
        for name in set(split_names(before or "")).difference(split_names(after))
    }
    out: dict[str, float] = {}
    for span in read_spans(connection, now_s, since_s - longest):
        p = number.get(span.pool, -1)
        if p < 0:
            continue
        price = pools.price_per_gpu_hour[p] + pools.price_per_gb_hour[p] * span.memory_gb
        paid = span._replace(price=0.0 if pools.market[p] == Market.RESERVED else float(price))
        if span.end_s == span.ended_s and (span.job_id, span.end_s) not in left:
            least_s = span.begin_s + float(pools.min_billing_s[p])
            paid = paid._replace(end_s=max(span.end_s, least_s))
        cost = paid.cost(since_s, now_s)
        out[span.tenant] = out.get(span.tenant, 0.0) + cost.dollars
    return out
