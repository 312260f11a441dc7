"""Pools, nodes, tenants and events over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from allocator.domain.findings import quote as show_name
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
    SpendAnswer,
    TenantChange,
    TenantsAnswer,
)
from allocator.server.errors import Refusal

router = APIRouter()
NODE_STATES = Literal["up", "drain", "down"]


def read_pools(connection: Connection) -> PoolsAnswer:
    """Return the pools with the GPUs that jobs hold."""
    rows = cluster_tables.read_stored_rows(connection, "pools.csv")
    used = cluster_tables.used(connection)
    return PoolsAnswer(pools=[Pool(**row, used=used[row["pool"]]) for row in rows])


@router.get("/pools", tags=["pools"])
async def list_pools(caller: Reader, served: Served) -> PoolsAnswer:
    """List the pools."""
    return await served.queue.look(read_pools)


@router.patch("/pools/{pool:path}", tags=["pools"])
async def change_pool(caller: Operator, served: Served, pool: str, body: PoolChange) -> PoolsAnswer:
    """Change how many GPUs of a pool may be used, and return all pools."""

    def write(connection: Connection) -> PoolsAnswer:
        _find(pool, cluster_tables.gpus(connection), "pool")
        cluster_tables.set_gpus(connection, {pool: body.gpus})
        return read_pools(connection)

    return await served.queue.change(write)


@router.get("/nodes", tags=["nodes"])
async def list_nodes(caller: Reader, served: Served, pool: str | None = None) -> NodesAnswer:
    """List the nodes with the jobs on them; a member sees the names of its own jobs."""

    def read(connection: Connection) -> NodesAnswer:
        found = [n for n in nodes.read_nodes(connection) if pool in (None, n["pool"])]
        if caller.is_member:
            known = verbs.find_tenants(connection, [job for n in found for job in n["jobs"]])
            found = [
                {**n, "jobs": [j for j in n["jobs"] if caller.can_see(known.get(j, ""))]}
                for n in found
            ]
        return NodesAnswer(nodes=[Node(**node) for node in found])

    return await served.queue.look(read)


@router.post("/nodes/{node:path}/{state}", tags=["nodes"])
async def change_node(caller: Operator, served: Served, node: str, state: NODE_STATES) -> Changed:
    """Say that a node is up, drain it, or say that its machine is gone."""

    def write(connection: Connection) -> Changed:
        _find(node, [one["node"] for one in nodes.read_nodes(connection)], "node")
        return Changed(changed=nodes.change_nodes(connection, [node], {"state": state}))

    return await served.queue.change(write)


@router.get("/tenants", tags=["tenants"])
async def list_tenants(caller: Reader, served: Served) -> TenantsAnswer:
    """List the tenants and their quotas; a member sees its own."""

    def read(connection: Connection) -> TenantsAnswer:
        found = tenants.read_tenants(connection)
        shown = {
            name: [row for row in rows if caller.can_see(row["tenant"])]
            for name, rows in found.items()
        }
        return TenantsAnswer(**shown)  # type: ignore[arg-type]

    return await served.queue.look(read)


@router.get("/spend", tags=["tenants"])
async def show_spend(
    caller: Reader, served: Served, days: Annotated[int, Query(ge=1, le=400)] = 14
) -> SpendAnswer:
    """Show what tenants used by day; a member sees its own."""
    now_s = served.queue.clock()
    costs = await served.queue.look(read_daily_costs, now_s, days, caller.only_tenant)
    return SpendAnswer(days=costs)


@router.patch("/tenants/{tenant:path}", tags=["tenants"])
async def change_tenant(
    caller: Operator,
    served: Served,
    tenant: str,
    body: TenantChange,  # type: ignore[valid-type]
) -> Changed:
    """Change a tenant and one of its quotas, or add them."""
    values: dict[str, Any] = body.model_dump(exclude_unset=True)  # type: ignore[attr-defined]
    quota = values.pop("quota", None) or {}
    of = {name: quota.pop(name, None) or "" for name in ("gpu_type", "pool")}
    now_s = served.queue.clock()

    def write(connection: Connection) -> Changed:
        warnings = tenants.set_tenant(connection, now_s, tenant, values, quota, **of)
        return Changed(changed=[tenant or DEFAULT_TENANT], warnings=list(warnings))

    return await served.queue.change(write)


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
