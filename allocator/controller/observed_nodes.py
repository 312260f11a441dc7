"""What the executor observes of nodes and pools, in the queue and in the snapshot of a round.

A node is as bad as the worse of what the queue says and what the executor observes, so that each
of them can take it out of service. The queue learns of new nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from allocator.domain.schema.columns import NODES
from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError
from allocator.loop.executor import NodeStatus
from allocator.queue import cluster_tables, lease
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.nodes import add_nodes

UP = "up"
DOWN = "down"
LEAVING = ("leaves_s", "returns_s")
STATES = NODES.column("state").choices  # the worse, the later


def add_new_nodes(
    store: QueueDatabase, token: int, seen: Sequence[NodeStatus]
) -> dict[NodeStatus, str]:
    """Add nodes that the queue does not know, in pools of which it knows nodes.

    Returns why each of them was refused, "" where it was added. Raises LeaseLost.
    """
    known: dict[str, tuple[str, int]] = {}
    if seen:
        with store.read() as connection:
            known = cluster_tables.read_node_sizes(connection)
    pools = {pool for pool, _ in known.values()}
    new = [
        status
        for status in seen
        if status.node not in known
        and status.pool in pools
        and status.state == UP
        and status.gpus > 0
    ]
    if not new:
        return {}
    out = dict.fromkeys(new, "")
    with store.write() as connection:
        lease.check(connection, token)
        for status in new:
            try:
                add_nodes(connection, [status.node], {"pool": status.pool, "gpus": status.gpus})
            except UsageError as error:
                out[status] = str(error)
    return out


def limit_snapshot(
    snapshot: Snapshot, capacity: Mapping[str, int], seen: Sequence[NodeStatus]
) -> Snapshot:
    """Return the snapshot with no more GPUs than the executor observes, and its states of nodes.

    Where a pool has nodes of which nothing is observed, GPUs that are missing are taken to be on
    nodes without jobs, the last ones first.
    """
    pools = snapshot.tables["pools.csv"]
    there = np.array([capacity.get(pool, np.inf) for pool in pools.columns["pool"]])
    gpus = np.asarray(pools.columns["gpus"])
    short = dict(zip(pools.columns["pool"], (gpus - there).tolist(), strict=True))
    snapshot = snapshot.with_columns("pools.csv", gpus=np.minimum(gpus, there))
    if "nodes.csv" not in snapshot.tables:
        return snapshot
    nodes, placed = snapshot.tables["nodes.csv"], snapshot.tables.get("placements.csv")
    busy = set() if placed is None else set(placed.columns["node"])
    name, pool, state = (list(nodes.texts(column)) for column in ("node", "pool", "state"))
    size = np.asarray(nodes.columns["gpus"]).copy()
    leaves_s, returns_s = (
        np.nan_to_num(np.asarray(nodes.columns.get(column, np.full(len(name), np.nan))), nan=np.inf)
        for column in LEAVING
    )
    observed = {(status.pool, status.node): status for status in seen}
    watched = {status.pool for status in seen}
    for n in sorted(range(len(name)), key=lambda n: (name[n] in busy, -n)):
        if pool[n] in watched:
            # a node of a pool that is observed, and that is not named, is gone
            status = observed.get((pool[n], name[n]), NodeStatus(name[n], pool[n], 0, DOWN))
            size[n] = min(size[n], status.gpus)
            state[n] = max(state[n], status.state, key=STATES.index)
            if status.leaves_s < leaves_s[n]:
                leaves_s[n], returns_s[n] = status.leaves_s, status.returns_s
        elif state[n] == UP:
            missing = max(0.0, min(short.get(pool[n], 0.0), size[n]))
            size[n] -= missing
            short[pool[n]] = short.get(pool[n], 0.0) - missing
    snapshot = snapshot.with_columns("nodes.csv", gpus=size, state=state)
    if not np.isfinite(leaves_s).any():
        return snapshot
    times = (np.where(np.isfinite(x), x, np.nan) for x in (leaves_s, returns_s))
    return snapshot.with_columns("nodes.csv", **dict(zip(LEAVING, times, strict=True)))
