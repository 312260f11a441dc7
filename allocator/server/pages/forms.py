"""Forms that change something, or ask what if; each calls the handler of the API that does it."""

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response as Headers
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from allocator.errors import AllocatorError, UsageError
from allocator.objects import Json, Record
from allocator.queue.cluster_tables import read_stored_columns, read_stored_rows
from allocator.queue.holdings import VERBS
from allocator.queue.nodes import read_nodes
from allocator.server.access import Form, Operator, Reader, Served, Writer
from allocator.server.api import cluster, jobs, rounds
from allocator.server.api.models import JobChange, JobSubmission, ReservationChange, WhatIfRequest
from allocator.server.errors import Refusal, to_refusal
from allocator.server.pages.reading import MOST
from allocator.server.pages.rendering import Pages, render_page
from allocator.server.views.sight import Sight

router = Pages()
CHANGED = ("weight", "min_gpus", "max_gpus")
GIVEN = ("job_id", "model", "tenant", "total_work", "min_gpus", "max_gpus", "weight", "command")
PLACES = {  # kind of a change: words, and where the value goes
    "gpus": ("GPUs of a pool", "pools.{name}.gpus"),
    "budget": ("budget per hour", "budget_per_hour"),
    "quota": ("quota of a tenant", "tenants.{name}.max_gpus"),
    "spending": ("budget per hour of a tenant", "tenants.{name}.budget_per_hour"),
    "share": ("weight of a tenant", "tenants.{name}.weight"),
    "weight": ("weight of a job", "jobs.{name}.weight"),
    "node": ("state of a node", "nodes.{name}.state"),
}
MORE = 8  # GPUs of a ready-made question
Text = Annotated[str, Query(max_length=300)]


@router.changes("POST", "/jobs/{job_id:path}", Writer)
def change_job(sight: Sight, form: Form, job_id: str) -> Response:
    """Hold, release, cancel, retry or change a job, and show it."""
    verb = form.get("verb", "")
    if verb == "change":
        values = {name: form[name].strip() or None for name in CHANGED if name in form}
        jobs.change_job(sight, job_id, _build(JobChange, values))
    elif verb in VERBS:
        jobs.act(sight, job_id, verb)
    else:
        raise Refusal(400, "usage", "no such action")
    return RedirectResponse(f"/jobs/{quote(job_id, safe='')}?done={verb}", 303)


@router.changes("POST", "/nodes", Operator)
def change_node(sight: Sight, form: Form) -> Response:
    """Drain a node, or use it again."""
    states: Mapping[str, Literal["up", "drain"]] = {"up": "up", "drain": "drain"}
    state = states.get(form.get("state", ""))
    if state is None:
        raise Refusal(400, "usage", "no such state of a node")
    cluster.change_node(sight, form.get("node", ""), state)
    return RedirectResponse(f"/nodes?done={state}", 303)


@router.changes("POST", "/reservations", Operator)
def change_reservation(sight: Sight, form: Form) -> Response:
    """Keep GPUs, or end a reservation."""
    name, verb = form.get("reservation", "").strip(), form.get("verb", "")
    if verb == "cancel":
        cluster.cancel_reservation(sight, name)
    else:
        given = {key: form.get(key, "").strip() or None for key in ReservationChange.model_fields}
        cluster.reserve(sight, name, _build(ReservationChange, given))
    return RedirectResponse(f"/reservations?done={verb}-gpus", 303)


@router.page("/submit", "submit.html", Writer)
def show_submission(sight: Sight) -> Json:
    """Ask for a job."""
    return _describe_submission(sight, {})


def _describe_submission(
    sight: Sight, given: Mapping[str, str], refusal: Refusal | None = None
) -> Json:
    files = ("rates.csv", "models.csv")
    names = {n for file in files for n in read_stored_columns(sight.connection, file)["model"]}
    return {
        "given": {name: given.get(name, "") for name in GIVEN},
        "models": [(name, name) for name in sorted(names)],
        "refusal": "" if refusal is None else refusal.detail,
        "faults": () if refusal is None else refusal.faults,
    }


@router.post("/submit")
async def submit_job(request: Request, caller: Writer, served: Served, form: Form) -> Response:
    """Submit a job, and show it; the form again with all faults if it breaks a rule."""
    try:
        values: Json = {name: form.get(name, "").strip() or None for name in GIVEN}
        values["command"] = shlex.split(values["command"] or "")
        body = _build(JobSubmission, {k: v for k, v in values.items() if v is not None})
        done = await served.queue.change(
            caller, lambda sight: jobs.submit_job(sight, body, Headers())
        )
    except (AllocatorError, Refusal, ValueError) as error:
        refusal = to_refusal(error)
        if isinstance(error, ValueError):
            refusal = Refusal(422, "malformed", f"the command cannot be read: {error}")
        shown = await served.queue.look(caller, _describe_submission, form, refusal)
        return render_page(request, caller, "submit.html", refusal.status_code, **shown)
    return RedirectResponse(f"/jobs/{quote(done.job_id, safe='')}?done=submit", 303)


@router.get("/what-if")
async def show_what_if(
    request: Request,
    caller: Reader,
    served: Served,
    kind: Text = "gpus",
    name: Text = "",
    value: Text = "",
    set: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    """Show who gains and who loses by other values."""
    comparison = None
    refusal = ""
    questions = await served.queue.look(caller, list_questions)
    try:
        values = read_values(kind, name, value, set)
        if values:
            comparison = await rounds.decide_what_if(
                caller, served, WhatIfRequest(values=dict(values))
            )
    except (AllocatorError, Refusal) as error:
        refusal = to_refusal(error).detail
    return render_page(
        request,
        caller,
        "what_if.html",
        given={"kind": kind, "name": name, "value": value, "set": set},
        kinds=[(place, words) for place, (words, _) in PLACES.items()],
        **questions,
        found=comparison,
        refusal=refusal,
        limit_s=served.options.advice_s,
        most=MOST,
    )


def list_questions(sight: Sight) -> Json:
    """Return ready-made questions by kind, as changes and words, and the names that they know."""
    nodes = read_nodes(sight.connection)
    pools = read_stored_rows(sight.connection, "pools.csv")
    tenants = read_stored_rows(sight.connection, "tenants.csv")
    tenants = [row for row in tenants if sight.caller.can_see(row["tenant"])]
    with_nodes = {row["pool"] for row in nodes}
    budget = sight.config.get("budget_per_hour")
    groups = {
        "Money": {
            f"budget_per_hour={share * budget / 100:g}": words
            for share, words in ((80, "20 % less budget"), (120, "20 % more budget"))
            if budget is not None
        },
        "GPUs": {
            f"pools.{row['pool']}.gpus={row['gpus'] + MORE}": f"{MORE} more GPUs of {row['pool']}"
            for row in pools
            if row["pool"] not in with_nodes
        },
        "Quotas": {
            f"tenants.{row['tenant']}.max_gpus={row['max_gpus'] + MORE}": (
                f"{MORE} more GPUs of quota for {row['tenant']}"
            )
            for row in tenants
            if row["max_gpus"] is not None
        },
        "Nodes": {f"nodes.{row['node']}.state=drain": f"drain {row['node']}" for row in nodes},
    }
    names = [
        row[kind]
        for kind, rows in (("pool", pools), ("tenant", tenants), ("node", nodes))
        for row in rows
    ]
    questions = [
        (group, [(shlex.quote(place), words) for place, words in choices.items()])
        for group, choices in groups.items()
        if choices
    ]
    return {"questions": questions, "names": names}


def read_values(kind: str, name: str, value: str, text: str) -> Mapping[str, str]:
    """Return the changed values by place, none if nothing is asked.

    Raises UsageError for a text that is not PLACE=VALUE.
    """
    if not text.strip():
        if not value.strip():
            return {}
        if kind not in PLACES:
            raise UsageError("no such change")
        place = PLACES[kind][1]
        if "{name}" in place and not name.strip():
            raise UsageError(f"{PLACES[kind][0]}: which one?")
        return {place.format(name=name.strip()): value.strip()}
    try:
        parts = [part.partition("=") for part in shlex.split(text)]
    except ValueError as error:
        raise UsageError(f"the text cannot be read: {error}") from None
    if not all(place and sign for place, sign, _ in parts):
        raise UsageError("write PLACE=VALUE, such as pools.a100.gpus=12")
    return {place: value for place, _, value in parts}


def _build(kind: Any, values: Record) -> Any:
    """Return the body of a request of the API. Raises Refusal with every fault."""
    try:
        return kind(**values)
    except ValidationError as error:
        faults = [f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors() if fault["loc"]]
        raise Refusal(422, "malformed", "please mend the form", faults=faults) from None
