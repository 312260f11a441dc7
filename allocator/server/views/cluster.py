"""The GPUs of the cluster: pools, nodes, which job has which of them, and their use over time."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocator.domain.problem import join_names, split_names
from allocator.loop.executor import NodePart
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.database.rows import as_columns, query
from allocator.queue.database.schema import DEFAULT_TENANT, OPEN
from allocator.queue.holdings import parse_parts
from allocator.queue.jobs.verbs import find_tenants
from allocator.queue.nodes import read_nodes
from allocator.server.views.sight import Sight

OTHERS = "another tenant's job"  # the name of jobs that may not be seen
_HOLDERS = (
    "SELECT a.job_id, j.tenant, a.pool, a.held_gpus, a.nodes FROM allocations a"
    f" JOIN jobs j ON j.job_id = a.job_id WHERE a.phase IN {OPEN} AND a.held_gpus > 0"
    " ORDER BY j.seq"
)
SAMPLES = 97
_USED = (
    "SELECT pool, held_gpus, ordered_s, ended_s FROM allocations"
    " WHERE held_gpus > 0 AND (ended_s IS NULL OR ended_s > ?)"
)


class Holder(NamedTuple):
    """A job that holds GPUs of a pool.

    `nodes` is empty where the pool has no nodes, or where those of the job are not known.
    """

    job_id: str
    gpus: int
    nodes: tuple[NodePart, ...]


@dataclass(frozen=True)
class PoolState:
    """A pool of GPUs of one type.

    `gpus` counts the GPUs that jobs may use, and `used` those that jobs hold. `holders` are these
    jobs, in the order of their submission. `nodes` are those of queue/nodes.py, whose `jobs` name
    all jobs.
    """

    pool: str
    gpu_type: str
    market: str
    gpus: int
    used: int
    gpus_per_node: int
    price_per_gpu_hour: float
    nodes: tuple[Record, ...]
    holders: tuple[Holder, ...]


def read_pools(sight: Sight) -> tuple[PoolState, ...]:
    """Return the pools with their nodes and the jobs on them.

    A member sees the jobs of other tenants without their names, as OTHERS.
    """
    connection = sight.connection
    used = cluster_tables.used(connection)
    nodes: dict[str, list[Json]] = defaultdict(list)
    for node in read_nodes(connection):
        nodes[node["pool"]].append(node)
    holders: dict[str, list[Holder]] = defaultdict(list)
    for job_id, owner, pool, gpus, parts in query(connection, _HOLDERS):
        name = job_id if sight.tenant in (None, owner or DEFAULT_TENANT) else OTHERS
        holders[pool].append(Holder(name, gpus, parse_parts(parts)))
    return tuple(
        PoolState(
            row["pool"],
            row["gpu_type"],
            row["market"] or "reserved",
            row["gpus"],
            used[row["pool"]],
            row["gpus_per_node"] or 8,
            row["price_per_gpu_hour"] or 0.0,
            tuple(nodes[row["pool"]]),
            tuple(holders[row["pool"]]),
        )
        for row in cluster_tables.read_stored_rows(connection, "pools.csv")
    )


def hide_names(sight: Sight, cells: Iterable[str]) -> dict[str, str]:
    """Return each list of names with OTHERS for jobs that a member may not see."""
    if sight.tenant is None:
        return {cell: cell for cell in cells}
    lists = {cell: split_names(cell) for cell in cells}
    known = find_tenants(sight.connection, [name for names in lists.values() for name in names])
    return {
        cell: join_names(
            name if name in known and sight.caller.can_see(known[name]) else OTHERS
            for name in names
        )
        for cell, names in lists.items()
    }


@dataclass(frozen=True)
class UseOverTime:
    """GPUs in use: at_s are the times, unix seconds; by_pool has a number for each of them."""

    at_s: tuple[float, ...]
    by_pool: dict[str, tuple[int, ...]]
    gpus: int


def read_use(sight: Sight, begin_s: float) -> UseOverTime:
    """Return the GPUs in use from a time until now, and how many there are now."""
    at_s = np.linspace(begin_s, sight.now_s, SAMPLES)
    pools = cluster_tables.gpus(sight.connection)
    names, gpus, *times = as_columns(query(sight.connection, _USED, begin_s), 4)
    # what has not ended sorts behind all times
    begin, end = (np.searchsorted(at_s, np.array(t, dtype=np.float64)) for t in times)
    by_pool = {}
    for pool in pools:
        held = np.array(gpus, dtype=np.int64) * (np.array(names) == pool)
        change = np.zeros(SAMPLES + 1, dtype=np.int64)
        np.add.at(change, begin, held)
        np.subtract.at(change, end, held)
        by_pool[pool] = tuple(change[:-1].cumsum().tolist())
    return UseOverTime(tuple(at_s.tolist()), by_pool, sum(pools.values()))
