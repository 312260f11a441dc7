"""Rounds and plans over HTTP, and what-ifs about the present round."""

from typing import Annotated

from fastapi import Path, Query

from allocator.domain.changes import changed
from allocator.domain.findings import quote as show_name
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.queue import nodes
from allocator.queue.jobs import verbs
from allocator.server.access import Reader, Served, require_token
from allocator.server.api.models import (
    PlanAnswer,
    RoundsAnswer,
    WhatIfRequest,
)
from allocator.server.errors import Refusal, as_missing
from allocator.server.routes import Routes
from allocator.server.views.advice import WhatIfAnswer, compare_changes, read_question
from allocator.server.views.rounds import (
    ComparisonAnswer,
    RoundAnswer,
    compare_rounds,
    find_round,
    list_rounds_before,
    read_round,
)
from allocator.server.views.sight import Sight

router = Routes()
MOST_ROUNDS = 200
Number = Annotated[int, Path(ge=1, le=2**53)]


TOTALS = (
    "schema_version",
    "policy",
    "objective",
    "objective_value",
    "bound",
    "gap",
    "status",
    "now_s",
    "interval_s",
    "pools",
)
"""Parts of plan.json that name neither jobs nor tenants."""


@router.reads("/rounds")
def list_rounds(
    sight: Sight,
    limit: Annotated[int, Query(ge=1, le=MOST_ROUNDS)] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> RoundsAnswer:
    """List the rounds of the journal, the newest first."""
    rows = list_rounds_before(sight, before, limit)
    last = rows[-1].number if rows else 1
    return RoundsAnswer(rounds=rows, next=last if last > 1 else None)


@router.reads("/rounds/{number}")
def show_round(sight: Sight, number: Number) -> RoundAnswer:
    """Show a round and the jobs that get something else in it."""
    with as_missing():
        return read_round(sight, number)


@router.reads("/rounds/{first}/compare/{second}")
def compare_two_rounds(sight: Sight, first: Number, second: Number) -> ComparisonAnswer:
    """Compare the plans of two rounds."""
    with as_missing():
        for number in (first, second):
            find_round(sight, number)
    return compare_rounds(sight, first, second)


@router.reads("/plan", tags=["rounds"])
def show_plan(sight: Sight) -> PlanAnswer:
    """Show the last plan."""
    plan = sight.plan
    if plan is None:
        raise Refusal(404, "not_found", "the journal has no plan yet")
    content = dict(plan.content)
    if sight.tenant is not None:
        content = {name: content[name] for name in TOTALS if name in content}
    entries = plan.list_entries(sight.tenant)
    return PlanAnswer(number=plan.number, at_s=plan.at_s, plan=content, jobs=entries)


@router.post("/what-if", tags=["advice"])
async def decide_what_if(caller: Reader, served: Served, body: WhatIfRequest) -> WhatIfAnswer:
    """Decide the present round as it is and with other values, and compare; nothing is changed.

    That takes at most `limit_s` seconds. Status 503: others ask; 504: the time was too short.
    """
    require_token(caller)
    values = {place: str(value) for place, value in body.values.items()}

    def read(sight: Sight) -> tuple[Snapshot, SolveCommand]:
        if caller.is_member:
            _refuse_places_of_others(sight, values)
        snapshot, command = read_question(sight.connection, sight.now_s, served.options.advice_s)
        changed(snapshot, values)  # refuses an unknown place before a child starts
        _refuse_gpus_of_nodes(sight, values)
        return snapshot, command

    snapshot, command = await served.queue.look(caller, read)
    comparison = await served.advise(compare_changes, snapshot, command, values)
    return comparison.seen_by(caller.only_tenant)


def _refuse_gpus_of_nodes(sight: Sight, values: dict[str, str]) -> None:
    """Raise Refusal for the GPUs of a pool that has nodes: they would change nothing."""
    for node in nodes.read_nodes(sight.connection):
        if f"pools.{node['pool']}.gpus" in values:
            raise Refusal(
                422,
                "invalid_input",
                f"pool {show_name(node['pool'])} has the GPUs of its nodes; change a node, such as"
                f" nodes.{node['node']}.state=drain",
            )


def _refuse_places_of_others(sight: Sight, values: dict[str, str]) -> None:
    """Raise Refusal for a place of another tenant; its faults would tell of it."""
    for place in values:
        file, _, rest = place.partition(".")
        name = rest.rpartition(".")[0]
        if file == "jobs":
            known = verbs.find_tenants(sight.connection, [name])
            is_own = name in known and sight.caller.can_see(known[name])
        else:
            is_own = file not in ("tenants", "quotas") or name == sight.tenant
        if not is_own:
            raise Refusal(403, "forbidden", f"{show_name(place)} is not of your tenant")
