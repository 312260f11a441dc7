"""What if: the present round with other values, decided in a child process."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from allocator.errors import AllocatorError, UsageError
from allocator.server.access import Reader, Served
from allocator.server.api import rounds
from allocator.server.api.models import WhatIfRequest
from allocator.server.errors import Refusal, to_refusal
from allocator.server.pages.reading import MOST
from allocator.server.pages.rendering import render_page

router = APIRouter()
PLACES = {  # kind of a change: words, and where the value goes
    "gpus": ("GPUs of a pool", "pools.{name}.gpus"),
    "budget": ("budget per hour", "budget_per_hour"),
    "quota": ("quota of a tenant", "tenants.{name}.max_gpus"),
    "spending": ("budget per hour of a tenant", "tenants.{name}.budget_per_hour"),
    "share": ("weight of a tenant", "tenants.{name}.weight"),
    "weight": ("weight of a job", "jobs.{name}.weight"),
    "node": ("state of a node", "nodes.{name}.state"),
}
Text = Annotated[str, Query(max_length=300)]


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
    found = None
    refusal = ""
    try:
        values = read_values(kind, name, value, set)
        if values:
            found = await rounds.decide_what_if(caller, served, WhatIfRequest(values=dict(values)))
    except (AllocatorError, Refusal) as error:
        refusal = to_refusal(error).detail
    return render_page(
        request,
        caller,
        "what_if.html",
        given={"kind": kind, "name": name, "value": value, "set": set},
        kinds=[(one, words) for one, (words, _) in PLACES.items()],
        found=found,
        refusal=refusal,
        limit_s=served.options.advice_s,
        most=MOST,
    )


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
