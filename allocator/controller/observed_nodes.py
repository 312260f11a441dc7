"""What the executor observes of nodes and pools, in the queue and in the snapshot of a round.

A node is as bad as the worse of what the queue says and what the executor observes, so that each
of them can take it out of service. The queue learns of new nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy import Connection

from allocator.domain.schema.columns import NODES
from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError
from allocator.loop.executor import NodeStatus
from allocator.queue import cluster_tables
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.nodes import add_nodes

UP = "up"
DOWN = "down"
STATES = NODES.column("state").choices  # the worse, the later


def find_new_nodes(store: QueueDatabase, seen: Sequence[NodeStatus]) -> list[NodeStatus]:
    """Return the nodes that the queue does not know, in pools of which it knows nodes."""
    if not seen:
        return []
    with store.read() as connection:
        known = cluster_tables.read_node_sizes(connection)
        pools = cluster_tables.read_pools_with_nodes(connection)
    return [
        one
        for one in seen
        if one.node not in known and one.pool in pools and one.state == UP and one.gpus > 0
    ]


def add_observed_nodes(connection: Connection, new: Sequence[NodeStatus]) -> dict[str, str]:
    """Add nodes to the queue, and return why some of them were refused, by node."""
    refused = {}
    for one in new:
        try:
            add_nodes(connection, [one.node], {"pool": one.pool, "gpus": one.gpus})
        except UsageError as error:
            refused[one.node] = str(error)
    return refused


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
    snapshot = _limit_observed_nodes(snapshot, seen)
    observed = {one.pool for one in seen}
    return _limit_other_nodes(
        snapshot, {pool: missing for pool, missing in short.items() if pool not in observed}
    )


def _limit_observed_nodes(snapshot: Snapshot, seen: Sequence[NodeStatus]) -> Snapshot:
    """Return the snapshot with what was observed of its nodes; one that is gone is down."""
    observed = {(one.pool, one.node): one for one in seen}
    pools = {one.pool for one in seen}
    nodes = snapshot.tables["nodes.csv"]
    sizes = np.asarray(nodes.columns["gpus"]).copy()
    states = list(nodes.texts("state"))
    for n, (name, pool) in enumerate(zip(nodes.texts("node"), nodes.texts("pool"), strict=True)):
        if pool in pools:
            one = observed.get((pool, name), NodeStatus(name, pool, 0, DOWN))
            sizes[n] = min(sizes[n], one.gpus)
            states[n] = max(states[n], one.state, key=STATES.index)
    return snapshot.with_columns("nodes.csv", gpus=sizes, state=states)


def _limit_other_nodes(snapshot: Snapshot, short: Mapping[str, float]) -> Snapshot:
    """Return the snapshot without the GPUs that pools are short of."""
    left = dict(short)
    if max(left.values(), default=0.0) <= 0:
        return snapshot
    nodes = snapshot.tables["nodes.csv"]
    size = np.asarray(nodes.columns["gpus"]).copy()
    placed = snapshot.tables.get("placements.csv")
    busy = set() if placed is None else set(placed.columns["node"])
    cells = zip(nodes.texts("node"), nodes.texts("pool"), nodes.texts("state"), strict=True)
    order = [(name in busy, -n, pool) for n, (name, pool, state) in enumerate(cells) if state == UP]
    for _, n, pool in sorted(order):
        missing = max(0.0, min(left.get(pool, 0.0), size[-n]))
        size[-n] -= missing
        left[pool] = left.get(pool, 0.0) - missing
    return snapshot.with_columns("nodes.csv", gpus=size)
