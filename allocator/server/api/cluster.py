"""Pools, nodes, tenants and events over HTTP."""

from typing import Annotated, Any, Literal

from fastapi import Header, Query
from fastapi.responses import StreamingResponse

from allocator.domain.findings import quote as show_name
from allocator.objects import Json
from allocator.queue import cluster_tables, nodes, tenants
from allocator.queue.costs import read_daily_costs
from allocator.queue.database.schema import DEFAULT_TENANT
from allocator.queue.jobs import verbs
from allocator.server.access import Operator, Reader, Served
from allocator.server.api.models import (
    Changed,
    Node,
    NodesAnswer,
    Pool,
    PoolChange,
    PoolsAnswer,
    ReservationChange,
    ReservationsAnswer,
    SpendAnswer,
    TenantChange,
    TenantsAnswer,
)
from allocator.server.errors import Refusal, as_missing
from allocator.server.routes import Routes
from allocator.server.views.sight import Sight

router = Routes()
NODE_STATES = Literal["up", "drain", "down"]


@router.reads("/pools")
def list_pools(sight: Sight) -> PoolsAnswer:
    """List the pools."""
    rows = cluster_tables.read_stored_rows(sight.connection, "pools.csv")
    used = cluster_tables.used(sight.connection)
    return PoolsAnswer(pools=[Pool(**row, used=used[row["pool"]]) for row in rows])


@router.changes("PATCH", "/pools/{pool:path}", Operator)
def change_pool(sight: Sight, pool: str, body: PoolChange) -> PoolsAnswer:
    """Change how many GPUs of a pool may be used, and return all pools."""
    _find(pool, cluster_tables.gpus(sight.connection), "pool")
    cluster_tables.set_gpus(sight.connection, {pool: body.gpus})
    return list_pools(sight)


@router.reads("/nodes")
def list_nodes(sight: Sight, pool: str | None = None) -> NodesAnswer:
    """List the nodes with the jobs on them; a member sees the names of its own jobs."""
    rows = [n for n in nodes.read_nodes(sight.connection) if pool in (None, n["pool"])]
    if sight.caller.is_member:
        known = verbs.find_tenants(sight.connection, [job for n in rows for job in n["jobs"]])
        for node in rows:
            node["jobs"] = [j for j in node["jobs"] if sight.caller.can_see(known.get(j, ""))]
    return NodesAnswer(nodes=[Node(**node) for node in rows])


@router.changes("POST", "/nodes/{node:path}/{state}", Operator)
def change_node(sight: Sight, node: str, state: NODE_STATES) -> Changed:
    """Say that a node is up, drain it, or say that its machine is gone."""
    _find(node, [row["node"] for row in nodes.read_nodes(sight.connection)], "node")
    return Changed(changed=nodes.change_nodes(sight.connection, [node], {"state": state}))


@router.reads("/reservations")
def list_reservations(sight: Sight) -> ReservationsAnswer:
    """List the GPUs that are kept; a member sees what is kept for its tenant, or for nobody."""
    rows = cluster_tables.read_stored_rows(sight.connection, "reservations.csv")
    owners = verbs.find_tenants(sight.connection, [row["job_id"] for row in rows])
    shown = []
    for row in rows:
        job = row["job_id"]
        tenant = owners[job] if job in owners else row["tenant"]
        if sight.caller.can_see(tenant) or not (job or tenant):
            shown.append(row)
    return ReservationsAnswer(reservations=shown)


@router.changes("PATCH", "/reservations/{reservation:path}", Operator)
def reserve(sight: Sight, reservation: str, body: ReservationChange) -> Changed:
    """Keep GPUs from a time on, or change what a reservation keeps."""
    values = body.model_dump(exclude_unset=True)
    warnings = tenants.reserve(sight.connection, sight.now_s, reservation, values)
    return Changed(changed=[reservation], warnings=list(warnings))


@router.changes("DELETE", "/reservations/{reservation:path}", Operator)
def cancel_reservation(sight: Sight, reservation: str) -> Changed:
    """End a reservation."""
    with as_missing():
        tenants.cancel_reservation(sight.connection, reservation)
    return Changed(changed=[reservation])


@router.reads("/tenants")
def list_tenants(sight: Sight) -> TenantsAnswer:
    """List the tenants and their quotas; a member sees its own."""
    shown = {
        name: [row for row in rows if sight.caller.can_see(row["tenant"])]
        for name, rows in tenants.read_tenants(sight.connection).items()
    }
    return TenantsAnswer(**shown)  # type: ignore[arg-type]


@router.reads("/spend", tags=["tenants"])
def show_spend(sight: Sight, days: Annotated[int, Query(ge=1, le=400)] = 14) -> SpendAnswer:
    """Show what tenants used by day; a member sees its own."""
    return SpendAnswer(days=read_daily_costs(sight.connection, sight.now_s, days, sight.tenant))


@router.changes("PATCH", "/tenants/{tenant:path}", Operator)
def change_tenant(
    sight: Sight,
    tenant: str,
    body: TenantChange,
) -> Changed:
    """Change a tenant and one of its quotas, or add them."""
    values: Json = body.model_dump(exclude_unset=True)
    quota = values.pop("quota", None) or {}
    of = {name: quota.pop(name, None) or "" for name in ("gpu_type", "pool")}
    warnings = tenants.set_tenant(sight.connection, sight.now_s, tenant, values, quota, **of)
    return Changed(changed=[tenant or DEFAULT_TENANT], warnings=list(warnings))


@router.get(
    "/events",
    tags=["events"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow_events(
    caller: Reader,
    served: Served,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> StreamingResponse:
    """Follow what changes, as server-sent events.

    The kinds are `job`, `round`, `pools`, `counts` and `nodes`; `start` comes first. A client that
    comes back with the header Last-Event-ID gets what it missed. `reset` says that this is no
    longer known, and that everything should be read again. A member gets jobs of its tenant only.
    """
    served.feed.enter(caller)
    return StreamingResponse(
        served.feed.follow(caller, last_event_id),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


def _find(name: str, known: Any, kind: str) -> None:
    if name not in known:
        raise Refusal(404, "not_found", f"the queue has no {kind} {show_name(name)}")
