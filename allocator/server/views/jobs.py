"""Lists of jobs: search, filters, pages, and one row for each job."""

import bisect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy import ColumnElement

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.plan import EXPECTED_FIELDS
from allocator.domain.schema.workload_columns import FILTERS
from allocator.domain.times import format_time
from allocator.engine.advice.summary import describe_outcome
from allocator.errors import UsageError
from allocator.queue.allocations import Allocation, read_held
from allocator.queue.costs import Cost, read_job_costs
from allocator.queue.database.rows import query, query_of
from allocator.queue.database.schema import ACTIVE, DEFAULT_TENANT, STATES, jobs
from allocator.queue.jobs.csv_jobs import job_record
from allocator.queue.jobs.verbs import Job, is_storable, match, read_jobs
from allocator.server.views.answer import Answer, Form, Page, find_page
from allocator.server.views.sight import Sight

GROUPS: Mapping[str, tuple[str, ...]] = {
    "active": ACTIVE,
    "waiting": ("queued", "paused"),
    "over": ("done", "cancelled", "failed"),
    "all": STATES,
}
"""Names of several states together."""
MOST_ROWS = 500  # of a page
MOST_KEPT = 4 * MOST_ROWS  # rows of jobs that stay in memory for later requests
_WAITING = "SELECT seq FROM jobs WHERE state IN ('queued', 'paused') AND seq <= ? ORDER BY seq"

# every change of a job is another version
_MARKS = "SELECT job_id, seq, version, updated_s FROM jobs WHERE job_id IN ({names})"


Text = Annotated[str, Field(max_length=200)]


class JobFilter(Form):
    """Which jobs a list has; "" stands for any. `reason` is a code of the last plan."""

    tenant: Text = ""
    state: str = Field(
        default="active", max_length=20, description=f"a state, or one of {', '.join(GROUPS)}"
    )
    model: Text = ""
    cluster: Text = ""
    reason: Text = ""
    text: Text = ""
    """part of a name or a model"""


class JobQuery(JobFilter):
    """A part of a list of jobs: `limit` jobs at most, after those of an earlier part."""

    limit: int = Field(default=100, ge=1, le=MOST_ROWS)
    after: str = Field(default="", max_length=18, pattern="^[0-9]*$")
    """`next` of the part before"""


class JobsPage(JobFilter):
    """A page of a list of jobs."""

    order: Text = ""
    page: int = Field(default=1, ge=1, le=1_000_000_000)


class JobAnswer(Answer):
    """One job. Columns of jobs.csv that were given are fields too."""

    job_id: str
    state: str
    """queued, running, paused, held, done, cancelled or failed"""
    tenant: str
    model: str
    request: str | None
    """hold or cancel, until it takes effect"""
    pool: str | None
    """the pool whose GPUs it holds"""
    gpus: int
    """GPUs that it holds"""
    progress: float
    """share of its work that is done"""
    remaining_work: float
    total_work: float
    submitted_s: float
    """unix seconds"""
    first_started_s: float | None
    finished_s: float | None
    phase: str | None
    """ordered, running or stopping"""
    shared_with: str | None
    """the job on whose GPUs it runs"""
    nodes: list[str]
    position: int | None
    """place among the waiting jobs, from 1"""
    reason: str | None
    """code of the last plan: why it has no more"""
    why: str
    """one sentence: what it has, or what it waits for"""
    expected_start_s: float | None = None
    """unix seconds, an estimate of the last plan; null: unknown, or it runs"""
    expected_start_low_s: float | None = None
    """begin of its range of 90 %"""
    expected_start_high_s: float | None = None
    """end of its range of 90 %"""
    expected_done_s: float | None = None
    """unix seconds, an estimate"""
    expected_done_low_s: float | None = None
    """begin of its range of 90 %"""
    expected_done_high_s: float | None = None
    """end of its range of 90 %"""
    expected_note: str | None = None
    """why nothing is expected of it"""
    gpu_hours: float
    dollars: float
    """US dollars so far"""
    command: list[str] | None
    """null where it may not be seen"""
    environment: list[str] | None
    """names of its variables, never their values; null where it may not be seen"""
    workdir: str | None
    """null where it may not be seen"""


def list_jobs(sight: Sight, wanted: JobsPage) -> Page[JobAnswer]:
    """Return one page of the jobs that match.

    Pages count from 1, and those beyond the last are the last. Raises UsageError for an unknown
    state.
    """
    size = min(sight.size, MOST_ROWS)
    matches = _find_matching(sight, wanted)[:: -1 if wanted.order == "newest" else 1]
    page, pages = find_page(wanted.page, size, len(matches))
    names = [row.job_id for row in matches[(page - 1) * size : page * size]]
    return Page(read_rows(sight, names), len(matches), page, pages)


def list_jobs_after(sight: Sight, wanted: JobQuery) -> tuple[tuple[JobAnswer, ...], int | None]:
    """Return the jobs that match after a number in the order of submission ("": from the first).

    The second value is the number of the last of them if more follow, else None. New jobs come
    last, so nobody who asks for one part after another misses a job or gets one twice. Raises
    UsageError for an unknown state.
    """
    size = wanted.limit
    matches = _find_matching(sight, wanted, int(wanted.after or 0), size + 1)
    last = int(matches[size - 1].seq) if len(matches) > size else None
    return read_rows(sight, [row.job_id for row in matches[:size]]), last


def _find_matching(
    sight: Sight, wanted: JobFilter, after: int = 0, most: int | None = None
) -> Sequence[Any]:
    """Return job_id and seq of the jobs that match after a number; `most` of them are enough."""
    query = (
        sa.select(jobs.c.job_id, jobs.c.seq)
        .where(*_list_conditions(wanted, sight.tenant), jobs.c.seq > after)
        .order_by(jobs.c.seq)
        .limit(None if wanted.reason else most)
    )
    matches = sight.connection.execute(query).all()
    if not wanted.reason:
        return matches
    return [r for r in matches if sight.entries.get(r.job_id, {}).get("reason") == wanted.reason]


def _list_conditions(wanted: JobFilter, tenant: str | None) -> list[ColumnElement[bool]]:
    states = GROUPS.get(wanted.state, (wanted.state,))
    if not set(states) <= set(STATES):
        known = (*GROUPS, *STATES)
        raise UsageError(
            f"no state {quote(wanted.state)}{did_you_mean(wanted.state, known)}; known:"
            f" {', '.join(known)}"
        )
    if not is_storable(wanted.text):
        return [sa.false()]
    out = match(wanted.model_dump(include={*FILTERS})) + match({"tenant": tenant})
    if states != STATES:
        out.append(jobs.c.state.in_(states))
    if wanted.text:
        out.append(
            sa.or_(
                jobs.c.job_id.icontains(wanted.text, autoescape=True),
                jobs.c.model.icontains(wanted.text, autoescape=True),
            )
        )
    return out


def read_rows(sight: Sight, names: Sequence[str]) -> tuple[JobAnswer, ...]:
    """Return the rows of some jobs, in their order; names of no job are left out."""
    names = [name for name in names if is_storable(name)]
    held = read_held(sight.connection, names)
    of_plan = sight.plan and sight.plan.number
    marks = {
        row[0]: (row, held.get(row[0]), of_plan)
        for row in query_of(sight.connection, _MARKS, names)
    }
    # another thread may clear them at any time
    rows = {name: row for name, mark in marks.items() if (row := sight.rows.get(mark))}
    for name, job in read_jobs(sight.connection, list(marks.keys() - rows)).items():
        rows[name] = job, _build_row(sight, job, held.get(name))
    if len(sight.rows) > MOST_KEPT:
        sight.rows.clear()
    sight.rows.update((marks[name], row) for name, row in rows.items())
    costs = read_job_costs(sight.connection, names, sight.now_s)
    last = max([0, *(job.seq for job, _ in rows.values())])
    waiting = [seq for (seq,) in query(sight.connection, _WAITING, last)]
    out = []
    for job, row in (rows[name] for name in names if name in rows):
        now = {
            "why": describe_job(sight, job, held.get(job.job_id)),
            **costs.get(job.job_id, Cost())._asdict(),
        }
        if job.state in GROUPS["waiting"] and row.position is None:
            now["position"] = bisect.bisect_left(waiting, job.seq) + 1
        out.append(row.model_copy(update=now))
    return tuple(out)


def _build_row(sight: Sight, job: Job, held: Allocation | None) -> JobAnswer:
    """Return the row of a job, but for what changes with the time and with other jobs."""
    record = job_record(job, held)
    entry = sight.entries.get(job.job_id) if job.state in ACTIVE else None
    if entry is not None:
        record |= {name: entry[name] for name in EXPECTED_FIELDS}
    waits = job.state in GROUPS["waiting"]
    record |= {
        "environment": sorted(job.environment),
        "tenant": job.values["tenant"] or DEFAULT_TENANT,
        "nodes": [] if held is None else list(map(str, held.parts)),
        "reason": None if entry is None else entry["reason"],
        "why": "",
        "position": record.get("position") if waits else None,
        **Cost()._asdict(),
    }
    return JobAnswer(**record)


def describe_job(sight: Sight, job: Job, held: Allocation | None) -> str:
    """Return one sentence on what a job has, or why it waits; "" if it is over.

    The reason is that of the last plan, which another change of the queue may have outdated.
    """
    plan, now_s = sight.plan, sight.now_s
    if job.state == "failed":
        return f"{job.job_id} is parked after {job.failures} failures: {job.park_reason}".strip(
            ": "
        )
    if job.state not in ACTIVE:
        return ""
    if job.request:
        return f"{job.job_id} is stopping, because its owner asked to {job.request} it."
    if job.state == "held":
        return f"{job.job_id} is on hold until it is released."
    if job.retry_at_s is not None and job.retry_at_s > now_s and held is None:
        why = f": {job.park_reason}" if job.park_reason else ""
        return (
            f"{job.job_id} is tried again at {format_time(job.retry_at_s)} UTC, after"
            f" {job.failures} failures{why}."
        )
    if held is not None and held.phase == "stopping":
        return f"{job.job_id} stops on {held.gpus} x {held.pool}, and its GPUs are free after that."
    if held is None and job.submitted_s > now_s:
        return f"{job.job_id} takes part in rounds from {format_time(job.submitted_s)} UTC on."
    entry = None if plan is None else plan.jobs.get(job.job_id)
    if plan is None or entry is None:
        return (
            f"{job.job_id} runs on {held.gpus} x {held.pool}."
            if held is not None
            else f"{job.job_id} waits for the next round: it came after the last one."
        )
    content = plan.content
    if entry["shared_with"]:
        entry = {**entry, "shared_with": "another job"}  # which may be one of another tenant
    if held is not None and entry["pool"] == held.pool and entry["gpus"] == held.gpus:
        entry = {**entry, "action": "keep"}
    elif held is None and entry["pool"]:
        return f"{job.job_id} waits for {entry['gpus']} x {entry['pool']}, which it was given."
    return describe_outcome(entry, content["policy"], content["budget"]["per_hour"] or 0.0)
