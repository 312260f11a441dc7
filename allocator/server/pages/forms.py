"""Forms that change something; each calls the handler of the API that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response as Headers
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from allocator.errors import AllocatorError
from allocator.queue.cluster_tables import read_stored_columns
from allocator.server.access import Form, Operator, Served, Writer
from allocator.server.api import cluster, jobs
from allocator.server.api.models import JobChange, JobSubmission
from allocator.server.errors import Refusal, to_refusal
from allocator.server.pages.rendering import render_page

router = APIRouter()
VERBS = {
    "hold": jobs.hold_job,
    "release": jobs.release_job,
    "cancel": jobs.cancel_job,
    "retry": jobs.retry_job,
}
CHANGED = ("weight", "min_gpus", "max_gpus")
GIVEN = ("job_id", "model", "tenant", "total_work", "min_gpus", "max_gpus", "weight", "command")


@router.post("/jobs/{job_id:path}")
async def change_job(caller: Writer, served: Served, form: Form, job_id: str) -> Response:
    """Hold, release, cancel, retry or change a job, and show it."""
    verb = form.get("verb", "")
    if verb == "change":
        values = {name: form[name].strip() or None for name in CHANGED if name in form}
        await jobs.change_job(caller, served, job_id, _build(JobChange, values))
    elif verb in VERBS:
        await VERBS[verb](caller, served, job_id)
    else:
        raise Refusal(400, "usage", "no such action")
    return RedirectResponse(f"/jobs/{quote(job_id, safe='')}?done={verb}", 303)


@router.post("/nodes")
async def change_node(caller: Operator, served: Served, form: Form) -> Response:
    """Drain a node, or use it again."""
    states: Mapping[str, Literal["up", "drain"]] = {"up": "up", "drain": "drain"}
    state = states.get(form.get("state", ""))
    if state is None:
        raise Refusal(400, "usage", "no such state of a node")
    await cluster.change_node(caller, served, form.get("node", ""), state)
    return RedirectResponse(f"/nodes?done={state}", 303)


@router.get("/submit")
async def show_submission(request: Request, caller: Writer, served: Served) -> Response:
    """Ask for a job."""
    return await _render_submission(request, caller, served, {}, None)


@router.post("/submit")
async def submit_job(request: Request, caller: Writer, served: Served, form: Form) -> Response:
    """Submit a job, and show it; the form again with all faults if it breaks a rule."""
    try:
        values: dict[str, Any] = {name: form.get(name, "").strip() or None for name in GIVEN}
        values["command"] = shlex.split(values["command"] or "")
        body = _build(JobSubmission, {k: v for k, v in values.items() if v is not None})
        done = await jobs.submit_job(caller, served, body, Headers())
    except (AllocatorError, Refusal, ValueError) as error:
        refusal = to_refusal(error) if not isinstance(error, ValueError) else None
        told = refusal or Refusal(422, "malformed", f"the command cannot be read: {error}")
        return await _render_submission(request, caller, served, form, told)
    return RedirectResponse(f"/jobs/{quote(done.job_id, safe='')}?done=submit", 303)


async def _render_submission(
    request: Request,
    caller: Writer,
    served: Served,
    given: Mapping[str, str],
    refusal: Refusal | None,
) -> Response:
    names = set()
    for file in ("rates.csv", "models.csv"):
        names.update((await served.queue.look(read_stored_columns, file))["model"])
    return render_page(
        request,
        caller,
        "submit.html",
        200 if refusal is None else refusal.status_code,
        given={name: given.get(name, "") for name in GIVEN},
        models=[(name, name) for name in sorted(names)],
        refusal="" if refusal is None else refusal.detail,
        faults=() if refusal is None else refusal.faults,
    )


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return the body of a request of the API. Raises Refusal with every fault."""
    try:
        return kind(**values)
    except ValidationError as error:
        faults = [f"{one['loc'][0]}: {one['msg']}" for one in error.errors() if one["loc"]]
        raise Refusal(422, "malformed", "please mend the form", faults=faults) from None
