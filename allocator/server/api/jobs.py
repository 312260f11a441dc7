"""Jobs over HTTP: submit, list, show, and the verbs of their owners."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import Query, Response

from allocator.domain.findings import quote as show_name
from allocator.domain.records import USER
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.objects import Json
from allocator.queue.database.schema import ACTIVE
from allocator.queue.errors import Refused
from allocator.queue.jobs import verbs
from allocator.queue.jobs.submit import Submission, build_submission, change_jobs, submit
from allocator.queue.jobs.verbs import Job
from allocator.server.access import Reader, Served, Writer, require_token
from allocator.server.api.models import (
    Counts,
    JobChange,
    JobsAnswer,
    JobSubmission,
    Submitted,
)
from allocator.server.errors import Refusal
from allocator.server.routes import Routes
from allocator.server.views.advice import ExplanationAnswer, explain_job as explain, read_question
from allocator.server.views.cluster import hide_names
from allocator.server.views.jobs import (
    JobAnswer,
    JobQuery,
    list_jobs_after,
    read_rows,
)
from allocator.server.views.sight import Sight

router = Routes()
NEIGHBOURS = ("shared_with", "want_host")  # they hold the name of another job


def find_job(sight: Sight, job_id: str) -> Job:
    """Return a job that the caller may see. Raises Refusal; others' jobs are as if not there."""
    job = verbs.read_jobs(sight.connection, [job_id]).get(job_id)
    if job is not None and sight.caller.can_see(job.values["tenant"]):
        return job
    hint = f"the queue has no job {show_name(job_id)}"
    if not sight.caller.is_member:
        hint = str(verbs.unknown_job_error(sight.connection, job_id))
    raise Refusal(404, "not_found", hint)


def show_to(sight: Sight, rows: Sequence[JobAnswer]) -> list[JobAnswer]:
    """Return jobs without what the caller may not see."""
    for row in rows:
        if not sight.caller.can_change(row.tenant):
            row.command = row.environment = row.workdir = None
    if sight.tenant is not None:
        cells = [(row, name, getattr(row, name) or "") for row in rows for name in NEIGHBOURS]
        shown = hide_names(sight, {cell for *_, cell in cells})
        for row, name, cell in cells:
            setattr(row, name, shown[cell] or None)
    return list(rows)


@router.reads("/counts", tags=["jobs"])
def count_jobs(sight: Sight) -> Counts:
    """Count the jobs of all tenants by state."""
    return Counts(counts=verbs.counts(sight.connection))


@router.changes("POST", "/jobs", Writer, status_code=201, responses={200: {"model": Submitted}})
def submit_job(
    sight: Sight,
    body: JobSubmission,
    response: Response,
) -> Submitted:
    """Submit a job. It is on disk when this answers.

    The same request again finds the job and adds nothing (status 200), so a client that got no
    answer may repeat it. The job needs a job_id or a key.
    """
    values = body.model_dump(exclude_unset=True)
    caller = sight.caller
    if caller.is_member and not values.get("tenant"):
        values["tenant"] = caller.tenant
    if not caller.can_change(values.get("tenant") or ""):
        raise Refusal(
            403, "forbidden", f"you submit jobs of tenant {show_name(caller.tenant)} only"
        )
    if caller.name:
        values["environment"] = {**values.get("environment", {}), USER: caller.name}
    submission = build_submission(values)
    if caller.is_member:
        _refuse_names_of_others(sight, submission)
    (done,), warnings = submit(sight.connection, [submission], sight.now_s)
    response.status_code = 201 if done.new else 200
    response.headers["location"] = f"/api/v1/jobs/{quote(done.job_id)}"
    return Submitted(job_id=done.job_id, new=done.new, warnings=list(warnings))


def _refuse_names_of_others(sight: Sight, submission: Submission) -> None:
    """Raise Refusal if a submission names jobs of another tenant, without saying more of them."""
    taken = verbs.find_tenants(
        sight.connection, [submission.text("job_id")], [submission.key or ""]
    )
    if not all(map(sight.caller.can_see, taken.values())):
        raise Refusal(409, "taken", "this job_id or key is taken")
    before = [name.strip() for name in submission.text("after").split("|") if name.strip()]
    known = verbs.find_tenants(sight.connection, before)
    for name in before:
        if name not in known or not sight.caller.can_see(known[name]):
            raise Refusal(422, "invalid_input", f"after {show_name(name)} is no job of your tenant")


@router.reads("/jobs")
def list_jobs(sight: Sight, wanted: Annotated[JobQuery, Query()]) -> JobsAnswer:
    """List jobs in the order of submission; a member sees those of its tenant."""
    rows, last = list_jobs_after(sight, wanted)
    return JobsAnswer(jobs=show_to(sight, rows), next=None if last is None else str(last))


@router.get("/jobs/{job_id:path}/explanation", tags=["jobs", "advice"])
async def explain_job(caller: Reader, served: Served, job_id: str) -> ExplanationAnswer:
    """Say why a job has what it has, and what would admit it: the round is decided again.

    That takes at most `limit_s` seconds. Status 503: others ask; 504: the time was too short.
    """
    require_token(caller)

    def read(sight: Sight) -> tuple[Snapshot, SolveCommand, list[str]]:
        job = find_job(sight, job_id)
        if job.state not in ACTIVE or job.request:
            raise Refused(f"job {show_name(job_id)} takes part in no round: it is {job.state}")
        tenant, connection = sight.tenant, sight.connection
        hidden = [] if tenant is None else verbs.list_names_of_others(connection, tenant)
        return *read_question(connection, sight.now_s, served.options.advice_s), hidden

    snapshot, command, hidden = await served.queue.look(caller, read)
    explanation = await served.advise(explain, snapshot, command, job_id)
    return explanation.seen_by_member(hidden)


@router.reads("/jobs/{job_id:path}")
def show_job(sight: Sight, job_id: str) -> JobAnswer:
    """Show one job."""
    find_job(sight, job_id)
    return show_to(sight, read_rows(sight, [job_id]))[0]


@router.changes("PATCH", "/jobs/{job_id:path}", Writer)
def change_job(
    sight: Sight,
    job_id: str,
    body: JobChange,
) -> JobAnswer:
    """Change weight, sizes or deadline of a job; the next round counts with it."""
    find_job(sight, job_id)
    values: Json = body.model_dump(exclude_unset=True)
    change_jobs(sight.connection, [job_id], values, sight.now_s)
    return show_job(sight, job_id)


def act(sight: Sight, job_id: str, verb: str) -> JobAnswer:
    """Hold, release, cancel or retry a job, and return it."""
    find_job(sight, job_id)
    verbs.change_state(sight.connection, verb, [job_id], sight.now_s)
    return show_job(sight, job_id)


def _add_verb(verb: str, words: str) -> None:
    def change(sight: Sight, job_id: str) -> JobAnswer:
        return act(sight, job_id, verb)

    change.__name__, change.__doc__ = f"{verb}_job", words
    router.changes("POST", f"/jobs/{{job_id:path}}/{verb}", Writer)(change)


_add_verb("hold", "Give a job nothing until `release`; one that runs is stopped with a checkpoint.")
_add_verb("release", "Undo `hold`.")
_add_verb("cancel", "End a job; one that runs is stopped first.")
_add_verb("retry", "Bring a parked or cancelled job back; end the pause of one that failed.")
