"""What an adapter observed, and what it is told, as short texts."""

from __future__ import annotations

from allocator.clusters.adapter import ClusterView, PlannedJob

A100_POOL = "nvidia-a100-sxm4-80gb"


def show(view: ClusterView, table: str, columns: str) -> str:
    """The rows of a table with these columns, as "n1 8; n2 4"; "-" is an empty cell, and the
    entries of a list have commas between them.
    """
    rows = ([row.get(name) for name in columns.split()] for row in view.tables[f"{table}.csv"])
    return "; ".join(" ".join(map(_show_cell, row)) for row in rows)


def _show_cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_show_cell, value)) or "-"
    return "-" if value is None else str(value).removesuffix(".0")


def plan(text: str, pool: str = A100_POOL) -> list[PlannedJob]:
    """The jobs of a plan: "a start n1:4; b grow n1:2,n2:6 was 4; c pause was 2; d wait". All GPUs
    are of one pool, unless a word after a slash names another: "e move v1:2/v100 was 2".
    """
    return [_read_job(part, pool) for part in text.split(";")]


def _read_job(text: str, pool: str) -> PlannedJob:
    now, _, before = text.partition(" was ")
    name, action, *places = now.split()
    places, _, other = "".join(places).partition("/")
    nodes = {node: int(n) for node, n in (one.split(":") for one in places.split(",") if one)}
    held = (pool, int(before)) if before else (None, 0)
    return PlannedJob(
        name, action, (other or pool) if nodes else None, sum(nodes.values()), nodes, *held
    )
