"""Jobs over HTTP: submit, list, show, and the verbs of their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from allocator.domain.findings import quote as show_name
from allocator.domain.records import USER
from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError
from allocator.queue.database.schema import ACTIVE
from allocator.queue.errors import Refused
from allocator.queue.jobs import verbs
from allocator.queue.jobs.change import change_jobs
from allocator.queue.jobs.submit import Submission, build_submission, submit
from allocator.queue.jobs.verbs import Job
from allocator.server.access import Reader, Served, Writer, require_token
from allocator.server.api.models import (
    Counts,
    JobChange,
    JobsAnswer,
    JobSubmission,
    Submitted,
)
from allocator.server.caller import Caller
from allocator.server.errors import Refusal
from allocator.server.views.advice import ExplanationAnswer
from allocator.server.views.cluster import hide_names
from allocator.server.views.deciding import Effort, read_question
from allocator.server.views.jobs import (
    GROUPS,
    MOST_ROWS,
    JobAnswer,
    JobFilter,
    list_jobs_after,
    read_rows,
)
from allocator.server.views.rounds import read_last_plan

router = APIRouter(tags=["jobs"])
STATES = f"a state, or one of {', '.join(GROUPS)}"
Text = Annotated[str, Query(max_length=200)]
HIDDEN: dict[str, Any] = dict.fromkeys(("command", "environment", "workdir"))
NEIGHBOURS = ("shared_with", "want_host")  # they hold the name of another job


def find_job(connection: Connection, caller: Caller, job_id: str) -> Job:
    """Return a job that the caller may see. Raises Refusal; others' jobs are as if not there."""
    try:
        job = verbs.show(connection, job_id)
    except UsageError as error:
        message = f"the queue has no job {show_name(job_id)}" if caller.is_member else str(error)
        raise Refusal(404, "not_found", message) from None
    if not caller.can_see(job.values["tenant"]):
        raise Refusal(404, "not_found", f"the queue has no job {show_name(job_id)}")
    return job


def describe(connection: Connection, caller: Caller, now_s: float, job_id: str) -> JobAnswer:
    """Return a job as the caller may see it. Raises Refusal."""
    find_job(connection, caller, job_id)
    rows = read_rows(connection, now_s, [job_id], read_last_plan(connection))
    return show_to(connection, caller, rows)[0]


def show_to(connection: Connection, caller: Caller, rows: Sequence[JobAnswer]) -> list[JobAnswer]:
    """Return jobs without what the caller may not see."""
    hidden: list[dict[str, Any]] = [
        {} if caller.can_change(row.tenant) else dict(HIDDEN) for row in rows
    ]
    if caller.only_tenant is not None:
        cells = [{name: getattr(row, name) or "" for name in NEIGHBOURS} for row in rows]
        told = hide_names(
            connection, {cell for one in cells for cell in one.values()}, caller.only_tenant
        )
        for row, one in zip(hidden, cells, strict=True):
            row |= {name: told[cell] or None for name, cell in one.items()}
    return [row.model_copy(update=less) for row, less in zip(rows, hidden, strict=True)]


@router.get("/counts")
async def count_jobs(caller: Reader, served: Served) -> Counts:
    """Count the jobs of all tenants by state."""
    return Counts(counts=await served.queue.look(verbs.counts))


@router.post("/jobs", status_code=201, responses={200: {"model": Submitted}})
async def submit_job(
    caller: Writer,
    served: Served,
    body: JobSubmission,  # type: ignore[valid-type]
    response: Response,
) -> Submitted:
    """Submit a job. It is on disk when this answers.

    The same request again finds the job and adds nothing (status 200), so a client that got no
    answer may repeat it. The job needs a job_id or a key.
    """
    values = body.model_dump(exclude_unset=True)  # type: ignore[attr-defined]
    if caller.is_member and not values.get("tenant"):
        values["tenant"] = caller.tenant
    if not caller.can_change(values.get("tenant") or ""):
        raise Refusal(
            403, "forbidden", f"you submit jobs of tenant {show_name(caller.tenant)} only"
        )
    if caller.name:
        values["environment"] = {**values.get("environment", {}), USER: caller.name}
    said = build_submission(values)
    now_s = served.queue.clock()

    def write(connection: Connection) -> Submitted:
        if caller.is_member:
            _refuse_names_of_others(connection, caller, said)
        (done,), warnings = submit(connection, [said], now_s)
        return Submitted(job_id=done.job_id, new=done.new, warnings=list(warnings))

    done = await served.queue.change(write)
    response.status_code = 201 if done.new else 200
    response.headers["location"] = f"/api/v1/jobs/{quote(done.job_id)}"
    return done


def _refuse_names_of_others(connection: Connection, caller: Caller, said: Submission) -> None:
    """Raise Refusal if a submission names jobs of another tenant, without saying more of them."""
    taken = verbs.find_tenants(connection, [said.text("job_id")], [said.key or ""])
    if not all(caller.can_see(tenant) for tenant in taken.values()):
        raise Refusal(409, "taken", "this job_id or key is taken")
    before = [name.strip() for name in said.text("after").split("|") if name.strip()]
    known = verbs.find_tenants(connection, before)
    for name in before:
        if name not in known or not caller.can_see(known[name]):
            raise Refusal(422, "invalid_input", f"after {show_name(name)} is no job of your tenant")


@router.get("/jobs")
async def list_jobs(
    caller: Reader,
    served: Served,
    tenant: Text = "",
    state: Annotated[str, Query(max_length=20, description=STATES)] = "active",
    model: Text = "",
    reason: Text = "",
    text: Annotated[str, Query(max_length=200, description="part of a name or a model")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    after: Annotated[
        str, Query(max_length=20, pattern="^[0-9]*$", description="`next` of the part before")
    ] = "",
) -> JobsAnswer:
    """List jobs in the order of submission; a member sees those of its tenant."""
    wanted = JobFilter(text, tenant, model, state, reason)
    now_s = served.queue.clock()

    def read(connection: Connection) -> JobsAnswer:
        rows, last = list_jobs_after(
            connection, now_s, wanted, int(after or 0), limit, tenant=caller.only_tenant
        )
        shown = show_to(connection, caller, rows)
        return JobsAnswer(jobs=shown, next=None if last is None else str(last))

    return await served.queue.look(read)


@router.get("/jobs/{job_id:path}/explanation", tags=["advice"])
async def explain_job(caller: Reader, served: Served, job_id: str) -> ExplanationAnswer:
    """Say why a job has what it has, and what would admit it: the round is decided again.

    That takes at most `limit_s` seconds. Status 503: others ask; 504: the time was too short.
    """
    require_token(caller)
    now_s = served.queue.clock()

    def read(connection: Connection) -> tuple[Snapshot, Effort, list[str]]:
        job = find_job(connection, caller, job_id)
        if job.state not in ACTIVE or job.request:
            raise Refused(f"job {show_name(job_id)} takes part in no round: it is {job.state}")
        hidden = verbs.list_names_of_others(connection, caller.tenant) if caller.is_member else []
        return *read_question(connection, now_s, served.options.advice_s), hidden

    snapshot, effort, hidden = await served.queue.look(read)
    found = await served.advise(snapshot, effort, "explain", job_id=job_id)
    return ExplanationAnswer(**found).seen_by_member(hidden)


@router.get("/jobs/{job_id:path}")
async def show_job(caller: Reader, served: Served, job_id: str) -> JobAnswer:
    """Show one job."""
    return await served.queue.look(describe, caller, served.queue.clock(), job_id)


@router.patch("/jobs/{job_id:path}")
async def change_job(
    caller: Writer,
    served: Served,
    job_id: str,
    body: JobChange,  # type: ignore[valid-type]
) -> JobAnswer:
    """Change weight, sizes or deadline of a job; the next round counts with it."""
    values: dict[str, Any] = body.model_dump(exclude_unset=True)  # type: ignore[attr-defined]
    now_s = served.queue.clock()

    def write(connection: Connection) -> JobAnswer:
        find_job(connection, caller, job_id)
        change_jobs(connection, [job_id], values, now_s)
        return describe(connection, caller, now_s, job_id)

    return await served.queue.change(write)


async def act(caller: Caller, served: Served, job_id: str, verb: str) -> JobAnswer:
    """Hold, release, cancel or retry a job, and return it."""
    now_s = served.queue.clock()

    def write(connection: Connection) -> JobAnswer:
        find_job(connection, caller, job_id)
        verbs.change_state(connection, verb, [job_id], now_s)
        return describe(connection, caller, now_s, job_id)

    return await served.queue.change(write)


@router.post("/jobs/{job_id:path}/hold")
async def hold_job(caller: Writer, served: Served, job_id: str) -> JobAnswer:
    """Give a job nothing until `release`; one that runs is stopped with a checkpoint."""
    return await act(caller, served, job_id, "hold")


@router.post("/jobs/{job_id:path}/release")
async def release_job(caller: Writer, served: Served, job_id: str) -> JobAnswer:
    """Undo `hold`."""
    return await act(caller, served, job_id, "release")


@router.post("/jobs/{job_id:path}/cancel")
async def cancel_job(caller: Writer, served: Served, job_id: str) -> JobAnswer:
    """End a job; one that runs is stopped first."""
    return await act(caller, served, job_id, "cancel")


@router.post("/jobs/{job_id:path}/retry")
async def retry_job(caller: Writer, served: Served, job_id: str) -> JobAnswer:
    """Bring a parked or cancelled job back; end the pause of one that failed."""
    return await act(caller, served, job_id, "retry")
