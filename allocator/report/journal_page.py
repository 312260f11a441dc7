"""The page of a queue: its rounds, which job held which GPUs, and what became of the jobs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from allocator.controller.reporting.status import format_status
from allocator.domain.times import format_time
from allocator.engine.expected_words import describe_next
from allocator.errors import UsageError
from allocator.queue.costs import Cost
from allocator.queue.database.schema import ACTIVE
from allocator.queue.jobs.verbs import Job
from allocator.queue.queue import Queue
from allocator.report.charts import cluster, holders
from allocator.report.charts.rounds import rounds as draw_rounds
from allocator.report.journal import (
    Holding,
    Journal,
    measure_carried_out,
    open_by_job,
    over_s,
    read_journal,
    study_of,
)
from allocator.report.measures import duration, number
from allocator.report.page import draw, render, write_page

LAST = 1000  # rounds
ROWS = 200  # of the table of rounds, the latest
JOBS = 300  # of the table of jobs; those that need attention come first
WORDS = 200  # characters of why a round failed; the tooltip of the cell has the whole text
FAILED = Markup('<span class="worse">failed</span>')
TOOLTIP = Markup('<span title="{}">{}</span>')
URGENT = ("failed", "running", "paused", "queued", "held")


def write_queue_report(name: str, out: Path | str | None = None, last: int = LAST) -> Path:
    """Write the report of a queue (path or URL) on its last rounds; return the path of the page.

    Pictures go to the folder `pictures` next to the page.

    Parameters
    ----------
    name : path or URL of the queue.
    out : the HTML file. The default is report.html in the folder QUEUE.report next to an SQLite
    queue.
    last : how many rounds to show.

    Raises
    ------
    UsageError
        If a queue on a server has no `out`; also the errors of Queue.
    """
    if out is None and "://" in name:
        raise UsageError("a queue on a database server needs --out OUT for the page")
    target = Path(out) if out is not None else Path(f"{name}.report") / "report.html"
    with Queue(name) as queue:
        journal = read_journal(queue, last)
    parked = [j.job_id for j in journal.jobs if j.state == "failed"]
    return write_page(
        target,
        "queue.html",
        draw(figures(journal)),
        title=f"Queue {journal.name if '://' in journal.name else Path(journal.name).name}",
        about=about(journal),
        headline=headline(journal),
        parked=", ".join(parked[:10]) + (" ..." if len(parked) > 10 else ""),
        status=format_status(dict(journal.status)),
        rounds=rounds_table(journal),
        tenants=tenants_table(journal),
        jobs=jobs_table(journal),
    )


def figures(journal: Journal) -> Iterator[tuple[str, str, str, Any]]:
    """Yield name, title, caption and figure of each picture, in the order of the page."""
    study = study_of(journal)
    length = max(1.0, journal.end_s - journal.begin_s)
    series = {"": cluster.collect(study, "journal", "", length)}
    yield (
        "rounds",
        "Rounds",
        "An order belongs to the latest round before it, also if an owner gave it (hold, cancel)."
        " A failed round has no plan: everything goes on as it was.",
        draw_rounds(journal),
    )
    yield (
        "queue",
        "The queue",
        "Number of submitted, unfinished jobs that hold no GPU. Parked jobs count as finished.",
        cluster.queue(study, series),
    )
    yield (
        "holders",
        "Who holds the GPUs",
        "Every block is a job. Its height is the number of its GPUs, its length the time for which"
        " it holds them, from the order to start until its end is known. White GPUs are idle. The"
        " black line shows how many GPUs there are.",
        holders.holders(study, study.runs, length),
    )
    yield (
        "use",
        "GPUs in use, and what they cost" if cluster.priced(series) else "GPUs in use",
        "The space below the black line shows idle GPUs. Dollars count at the prices of that time;"
        " a dashed line is the present budget per hour for all GPUs.",
        cluster.use(study, series, journal.budget_per_hour),
    )


def about(journal: Journal) -> str:
    """Return which rounds are shown, and from when to when."""
    if not journal.rounds:
        return f"no round yet; state of {format_time(journal.now_s)} UTC"
    first = journal.rounds[0]
    last = journal.rounds[-1]
    return (
        f"rounds {first.number} to {last.number}, {format_time(first.at_s)} to "
        f"{format_time(last.at_s)} UTC;"
        f" state of {format_time(journal.now_s)} UTC"
    )


def headline(journal: Journal) -> str:
    """Return what became of rounds and jobs, in two sentences."""
    outcomes = Counter(r.outcome for r in journal.rounds)
    said = ", ".join(
        f"{outcomes[name]} {words}"
        for name, words in (
            ("applied", "carried out"),
            ("decided", "not, or not yet, carried out in full"),
            ("failed", "failed"),
        )
        if outcomes[name]
    )
    states = Counter(j.state for j in journal.jobs)
    jobs = ", ".join(
        f"{n} {state}" for state, n in sorted(states.items(), key=lambda s: (-s[1], s[0]))
    )
    return (
        f"{len(journal.rounds)}"
        f" round{'s' * (len(journal.rounds) != 1)}{': ' if said else ''}{said}. {len(journal.jobs)}"
        f" job{'s' * (len(journal.jobs) != 1)}{': ' if jobs else ''}{jobs}."
    )


def rounds_table(journal: Journal) -> Markup:
    """Return the table of the latest rounds, newest first, with an explanation."""
    known = sorted({part for r in journal.rounds for part in r.seconds} - {"decide"})
    rows = []
    latest = list(zip(journal.rounds, measure_carried_out(journal), strict=True))[: -ROWS - 1 : -1]
    for r, c in latest:
        words = " ".join(r.detail.split())
        cut = words if len(words) <= WORDS else f"{words[:WORDS]} ..."
        rows.append(
            {
                "round": str(r.number),
                "at (UTC)": format_time(r.at_s),
                "policy": r.policy,
                "status": r.status,
                "outcome": FAILED if r.outcome == "failed" else r.outcome,
                "value": _text(r.value),
                "bound": _text(r.bound),
                "gap": "–" if r.gap is None else f"{number(100 * r.gap)} %",
                "changes": str(c.changes),
                **{f"{part}, s": _text(r.seconds.get(part)) for part in ("decide", *known)},
                "stops, s": _text(c.stop_s),
                "starts, s": _text(c.start_s),
                "why": TOOLTIP.format(words, cut) if words else "",
            }
        )
    return _render_rows("queue_rounds.html", rows, rounds=len(journal.rounds))


def tenants_table(journal: Journal) -> Markup:
    """Return the table of what tenants used on the days shown, the most dollars first."""
    totals: dict[str, Cost] = defaultdict(Cost)
    for one in journal.daily:
        totals[one.tenant] = totals[one.tenant].plus(Cost(one.gpu_hours, one.dollars))
    today = format_time(journal.now_s)[:10]
    spent = {one.tenant: one.dollars for one in journal.daily if one.day == today}
    rows = [
        [tenant, number(cost.gpu_hours), f"{cost.dollars:,.2f}", f"{spent.get(tenant, 0.0):,.2f}"]
        for tenant, cost in sorted(totals.items(), key=lambda one: (-one[1].dollars, one[0]))
    ]
    budget = journal.budget_per_hour
    return render(
        "queue_tenants.html",
        head=["tenant", "GPU-hours", "dollars", "dollars today"],
        rows=rows,
        first_day=journal.daily[0].day if journal.daily else today,
        spent_today=f"{sum(spent.values()):,.2f}",
        budget_of_a_day="" if budget is None else f"{24 * budget:,.2f}",
    )


def jobs_table(journal: Journal) -> Markup:
    """Return the table of jobs.

    Jobs that need attention come first, then those under way, then those that are over, the latest
    first.
    """
    now = journal.end_s
    held = open_by_job(journal)
    ends = Counter((h.job_id, h.phase) for h in journal.held)
    order = sorted(
        journal.jobs,
        key=lambda j: (
            URGENT.index(j.state) if j.state in URGENT else len(URGENT),
            -j.failures,
            -j.submitted_s,
            j.seq,
        ),
    )
    rows = [
        _job(
            j,
            held.get(j.job_id),
            now,
            ends,
            journal.is_adopted(j),
            _expect(j, journal),
            journal.costs.get(j.job_id, Cost()),
        )
        for j in order[:JOBS]
    ]
    return _render_rows(
        "queue_jobs.html",
        rows,
        now=format_time(now),
        left_out=len(order) - len(rows),
        has_adopted=any(map(journal.is_adopted, order[:JOBS])),
    )


def _render_rows(template: str, rows: Sequence[Mapping[str, str]], **values: Any) -> Markup:
    """Fill a template with rows that have their columns in the same order."""
    head = list(rows[0]) if rows else []
    return render(template, head=head, rows=[list(row.values()) for row in rows], **values)


def _expect(job: Job, journal: Journal) -> tuple[str, str]:
    """Return when a job is expected to start or to end, and why it has no GPUs."""
    row = journal.expected.get(job.job_id)
    if row is None or job.state not in ACTIVE:
        return "", ""
    why = "" if row["position"] is None else f"{row['reason']}: {row['detail']}"
    return describe_next(row, journal.now_s), why


def _job(
    job: Job,
    held: Holding | None,
    now: float,
    ends: Counter[tuple[str, str]],
    is_adopted: bool,
    expected: tuple[str, str],
    cost: Cost,
) -> dict[str, str]:
    end = over_s(job, now)
    began = None if held is None else held.running_s if held.since_s is None else held.since_s
    since = 0.0 if began is None else max(0.0, now - began)
    ran = sum(job.received.values()) + since
    waited = (end if job.first_started_s is None else job.first_started_s) - job.submitted_s
    if is_adopted:
        waited = math.nan
    paused = (
        math.nan
        if job.first_started_s is None or is_adopted
        else max(0.0, end - job.first_started_s - ran)
    )
    gpu_s = job.attained_gpu_s + since * (0 if held is None else held.held_gpus)
    why = job.park_reason or expected[1]
    if job.state in ("queued", "paused") and job.retry_at_s is not None and job.retry_at_s > now:
        again = f"tried again at {format_time(job.retry_at_s)}"
        why = f"{again} after {job.failures} failures in a row; {why}".rstrip("; ")
    return {
        "job": job.job_id,
        "model": job.values["model"],
        "tenant": job.values["tenant"],
        "state": job.state + (f" ({job.request})" if job.request else ""),
        "done": f"{100 * job.progress:.0f} %",
        "GPUs": ""
        if held is None
        else f"{held.gpus} {held.pool}" + (f" of {held.host}" if held.host else ""),
        "submitted (UTC)": format_time(job.submitted_s),
        "waited": _duration(waited),
        "paused": _duration(paused),
        "ran": duration(ran),
        "GPU-hours": number(gpu_s / 3600),
        "dollars": f"{cost.dollars:,.2f}",
        "starts": str(job.generation),
        "resized": str(job.resizes),
        "failed": str(ends[job.job_id, "failed"] or ""),
        "lost": str(ends[job.job_id, "lost"] or ""),
        "expected": expected[0],
        "why": " ".join(why.split()),
    }


def _duration(seconds: float) -> str:
    return "–" if math.isnan(seconds) else duration(max(0.0, seconds))


def _text(value: float | None) -> str:
    return "–" if value is None else number(value)
