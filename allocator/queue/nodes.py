"""The nodes of a queue: add them, change them, drain them and remove them.

A pool that has nodes has the GPUs of those that are up; its row of the table `pools` is set
whenever a node changes. A node that is drained gets no new job, and the next round moves its jobs.
A node that is down has lost its jobs (`find_on_down_nodes` in allocations.py). A node may also be
announced to leave; a new state ends that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.findings import did_you_mean, quote, suggest_setting
from allocator.domain.schema.cells import parse_value
from allocator.domain.schema.columns import LEVELS, NODES
from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.database.rows import insert, query
from allocator.queue.database.schema import OPEN, nodes
from allocator.queue.holdings import count_gpus, parse_parts
from allocator.queue.jobs.submit import FORMULAS
from allocator.queue.jobs.verbs import is_storable

RACK = "rack"  # a level of the topology with a column of its own
_HOLDERS = (
    f"SELECT a.job_id, a.nodes, a.host = '' FROM allocations a WHERE a.phase IN {OPEN} "
    "AND a.nodes <> ''"
)


def read_nodes(connection: Connection) -> list[Json]:
    """Return every node with what jobs hold of it, in the order in which nodes were added.

    A node has the columns of nodes.csv, `labels` by level, `used` GPUs, and `jobs`.
    """
    holders = query(connection, _HOLDERS)
    used = count_gpus(text for _, text, is_holder in holders if is_holder)
    jobs: dict[str, list[str]] = {}
    for job_id, text, _ in holders:
        for part in parse_parts(text):
            jobs.setdefault(part.node, []).append(job_id)
    out = []
    for row in _read_rows(connection).values():
        node = dict(row._mapping)
        labels = {RACK: node.pop(RACK), **json.loads(node.pop("labels"))}
        del node["position"]
        out.append(
            {
                **node,
                "labels": {level: label for level, label in labels.items() if label},
                "used": used.get(row.node, 0),
                "jobs": sorted(jobs.get(row.node, ())),
            }
        )
    return out


def add_nodes(connection: Connection, names: Sequence[str], values: Record) -> list[str]:
    """Add nodes that are alike, and return the names of those that are new.

    Parameters
    ----------
    names : sequence of str
        Their names.
    values : mapping of str to object
        Columns of nodes.csv; `labels` is a mapping of level to label.

    Raises
    ------
    UsageError
        If a value is not valid, or a node of that name has other values.
    """
    row = _parse(connection, {"state": "up", **values})
    for job_id, pool, _ in cluster_tables.find_groups(connection):
        if pool == row["pool"]:
            raise UsageError(
                f"pool {quote(pool)} gets no nodes while job {quote(job_id)} runs on the GPUs of"
                " several jobs there, or of one with fewer GPUs; hold the job first"
            )
    known = _read_rows(connection)
    new = []
    for name in dict.fromkeys(names):
        _check_name(name)
        if name not in known:
            new.append(name)
        elif any(getattr(known[name], key) != value for key, value in row.items()):
            raise UsageError(
                f"node {quote(name)} is there already with other values; `allocator queue node"
                " set` changes them"
            )
    last = max((node.position for node in known.values()), default=-1)
    if new:
        rows = [{"node": n, "position": last + 1 + i, **row} for i, n in enumerate(new)]
        insert(connection, "nodes", rows)
        cluster_tables.note_node_change(connection, [row["pool"]])
    return new


def change_nodes(connection: Connection, names: Sequence[str], values: Record) -> list[str]:
    """Change nodes, all or none, and return the names of those that are different now.

    Parameters
    ----------
    names : sequence of str
        Their names.
    values : mapping of str to object
        Columns of nodes.csv besides node and pool; `labels` is a mapping of level to label, and an
        empty label removes it.

    Raises
    ------
    UsageError
        For an unknown node, or a value that is not valid.
    """
    changed = []
    pools = []
    for name in dict.fromkeys(names):
        before = _read_node(connection, name)
        labels = {RACK: before.rack, **json.loads(before.labels), **values.get("labels", {})}
        row = _parse(connection, {**values, "labels": labels})
        if not {"state", "leaves_s"}.isdisjoint(row):  # what was announced before does not hold
            row = {"leaves_s": None, "returns_s": None, **row}
        if any(getattr(before, key) != value for key, value in row.items()):
            connection.execute(sa.update(nodes).where(nodes.c.node == name).values(**row))
            changed.append(name)
            pools.append(before.pool)
    if changed:
        cluster_tables.note_node_change(connection, pools)
    return changed


def remove_nodes(connection: Connection, names: Sequence[str]) -> list[str]:
    """Remove nodes, all or none, and return their names.

    Raises
    ------
    UsageError
        For an unknown node, or one of which jobs hold GPUs.
    """
    pools = [_read_node(connection, name).pool for name in names]
    held = count_gpus(text for _, text, _ in query(connection, _HOLDERS))
    for name in names:
        if name in held:
            raise UsageError(
                f"jobs hold {held[name]} GPUs of node {quote(name)}: drain it first, and remove it"
                " when it is empty; if the machine is gone, say that it is down"
            )
    connection.execute(sa.delete(nodes).where(nodes.c.node.in_(list(names))))
    cluster_tables.note_node_change(connection, pools)
    return list(dict.fromkeys(names))


def _read_node(connection: Connection, name: str) -> Any:
    known = _read_rows(connection)
    if name not in known:
        raise UsageError(f"the queue has no node {quote(name)}{did_you_mean(name, known)}")
    return known[name]


def _read_rows(connection: Connection) -> Json:
    """Return the rows of the table by node, in the order in which nodes were added."""
    rows = connection.execute(sa.select(nodes).order_by(nodes.c.position))
    return {row.node: row for row in rows}


def _check_name(name: str) -> None:
    _, message = parse_value(NODES.column("node"), name)
    if message is None and not is_storable(name):
        message = f"node {quote(name)} cannot be stored"
    if message is None and name.startswith(FORMULAS):
        message = f"node {quote(name)} begins like a formula of a spreadsheet"
    if message is not None:
        raise UsageError(message)


def _parse(connection: Connection, values: Record) -> Json:
    """Return checked values as a row of the table; None is left out."""
    labels = {level: label for level, label in values.get("labels", {}).items() if label}
    levels = cluster_tables.config(connection).get("topology", {}).get("levels") or LEVELS
    pools = cluster_tables.gpus(connection)
    row: Json = {}
    for level, label in labels.items():
        if level not in levels:
            raise UsageError(
                f"no level {quote(level)} in the topology{suggest_setting(level, levels)}; its"
                f" levels are: {', '.join(levels)}"
            )
        _, message = parse_value(NODES.column(RACK), label)
        if message is not None:
            raise UsageError(message.replace(RACK, level, 1))
    for column in NODES.columns:
        if column.name in values and values[column.name] is not None:
            value, message = parse_value(column, values[column.name])
            if message is not None:
                raise UsageError(message)
            row[column.name] = values[column.name] if column.choices else value
    if "pool" in row and row["pool"] not in pools:
        pool = row["pool"]
        raise UsageError(f"the queue has no pool {quote(pool)}{did_you_mean(pool, pools)}")
    if "returns_s" in row and not row["returns_s"] > row.get("leaves_s", math.inf):
        raise UsageError(f"returns_s {row['returns_s']:g} is not after leaves_s of the node")
    row[RACK] = labels.pop(RACK, "")
    return row | {"labels": json.dumps(labels, sort_keys=True)}
