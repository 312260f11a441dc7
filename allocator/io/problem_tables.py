"""Turn a checked Problem back into its tables.

Reading these tables gives the same Problem. Pools, rates, curves and tenants are written in full
and in order, used or not, so that every name keeps its number. Record that the Problem has computed
(defaults, prices in force, GPUs of up nodes) are written as plain values.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from allocator.domain.problem import Problem, State, join_names, other_jobs, usable_gpus
from allocator.domain.schema.cells import Cells, name_mode, picked
from allocator.domain.schema.columns import CONFIG, JOBS, TABLES, Column, ColumnKind, TableSchema
from allocator.domain.snapshot import Snapshot, Table, values_as_cells
from allocator.objects import Json, Record

CLUSTER = {  # optional tables that workloads have, too -> the field of a problem with their rows
    "tenants.csv": "tenants",
    "quotas.csv": "quotas",
    "rates.csv": "rates",
    "models.csv": "curves",
    "sharing.csv": "sharing",
    "pauses.csv": "pauses",
    "interactive.csv": "interactive",
    "reservations.csv": "reservations",
    "finished.csv": "finished",
}


def snapshot_folder(problem: Problem) -> Snapshot:
    """Return the snapshot that `validate` turns into this problem again.

    `write_snapshot(snapshot_folder(p), folder)` writes a problem p. The arrays come back equal;
    only lists of sizes and sets of types may get other numbers. If the up nodes of a pool no longer
    add up to its GPUs, because machines came or went, its nodes and all placements on them are left
    out.
    """
    placed = problem.placements
    # placements of a job add up, or none of them is written
    whole = placed.select(~np.isin(placed.job, placed.job[~_sound_nodes(problem)[placed.node]]))
    job, kind = np.nonzero(problem.received)
    received = {"job_id": job, "gpu_type": kind, "seconds": problem.received[job, kind]}
    tables = {JOBS.file: build_table(JOBS, jobs(problem)), **cluster_tables(problem)}
    for file, rows in (
        ("placements.csv", vars(whole) | {"job_id": whole.job}),
        ("prices.csv", vars(problem.announced)),
        ("received.csv", received),
    ):
        add_rows(tables, problem, TABLES[file], rows)
    return Snapshot(problem.name, config(problem), tables)


def jobs(problem: Problem) -> Json:
    """Return every column of jobs.csv."""
    rows = problem.jobs
    lists = [s.tolist() for s in problem.size_lists]
    sets = [[problem.gpu_types[t] for t in np.flatnonzero(s)] for s in problem.type_sets]
    modes = [list(map(name_mode, modes)) for modes in problem.mode_sets]
    return name_columns(problem, JOBS, vars(rows)) | {
        "gpus": np.where(rows.state == State.RUNNING, rows.gpus, -1),
        "shared_with": [
            join_names(rows.job_id[h] for h in others) if first >= 0 else ""
            for first, others in zip(rows.primary.tolist(), other_jobs(rows.secondary), strict=True)
        ],
        "sizes": [lists[k] if k >= 0 else () for k in rows.sizes.tolist()],
        "gpu_types": [sets[k] if k >= 0 else () for k in rows.gpu_types.tolist()],
        "modes": [modes[k] if k >= 0 else () for k in rows.modes.tolist()],
    }


def cluster_tables(problem: Problem) -> dict[str, Table]:
    """Return pools.csv, nodes.csv and the tables of CLUSTER; optional ones only if they have rows.

    There is a table of rates or one of speed models in any case.
    """
    pools = TABLES["pools.csv"]
    tables = {pools.file: build_table(pools, name_columns(problem, pools, vars(problem.pools)))}
    for file, field in CLUSTER.items():
        rows = vars(getattr(problem, field))
        rates = {"work_per_s": problem.rates.rate} if file == "rates.csv" else {}
        add_rows(tables, problem, TABLES[file], rows | rates)
    if not tables.keys() & {"rates.csv", "models.csv"}:
        none = {column.name: () for column in TABLES["rates.csv"].columns if column.required}
        tables["rates.csv"] = build_table(TABLES["rates.csv"], none)
    # a node that is about to leave is up in its row, and is drained again when it is read
    state = np.where(problem.nodes.leaves_s < np.inf, 0, problem.nodes.state)
    keep = np.flatnonzero(_sound_nodes(problem))
    nodes = replace(problem.nodes, state=state).select(keep)
    levels = {level.name: picked(level.label, keep) for level in problem.levels}
    add_rows(tables, problem, TABLES["nodes.csv"], vars(nodes), **levels)
    return tables


def config(problem: Problem) -> Json:
    """Return config.toml with every value of the problem."""
    settings = {c.name: getattr(problem, c.name) for c in CONFIG if hasattr(problem, c.name)}
    absent = {c.name for c in CONFIG if settings.get(c.name) == c.empty}
    if problem.max_primaries == 1:
        absent.add("max_primaries")
    tables = {name: dict(table) for name, table in problem.settings.items() if table}
    return {name: value for name, value in settings.items() if name not in absent} | tables


def _sound_nodes(problem: Problem) -> Any:
    """Return (N,) booleans: the nodes of the node's pool add up to the GPUs of the pool."""
    jobs = problem.jobs
    nodes = problem.nodes
    pools = problem.pools
    pinned = (jobs.state == State.RUNNING) & ~jobs.preemptible
    usable = usable_gpus(nodes, problem.placements, pinned, jobs.pool, jobs.held, len(pools))
    return (usable == pools.gpus)[nodes.pool]


def name_columns(problem: Problem, schema: TableSchema, rows: Record) -> Json:
    """Return the columns of a table that `rows` has, with names in place of their numbers."""
    names = {
        "jobs": problem.jobs.job_id,
        "models": problem.models,
        "gpu_types": problem.gpu_types,
        "tenants": problem.tenants.tenant,
        "pools": problem.pools.pool,
        "nodes": problem.nodes.node,
    }
    return {
        c.name: [names[c.names][i] if i >= 0 else "" for i in rows[c.name].tolist()]
        if c.names
        else rows[c.name]
        for c in schema.columns
        if c.name in rows
    }


def add_rows(
    tables: dict[str, Table], problem: Problem, schema: TableSchema, rows: Record, **more: Any
) -> None:
    """Add a table with names in place of their numbers, unless it has no rows."""
    values = name_columns(problem, schema, rows) | more
    if len(next(iter(values.values()))):
        tables[schema.file] = build_table(schema, values)


def build_table(schema: TableSchema, values: Record) -> Table:
    """Return a table with the columns of the schema that have values, and then the others.

    Columns without any value are left out unless they are required.
    """
    cells = {c.name: _cells(c, values[c.name]) for c in schema.columns if c.name in values}
    return Table.of(schema, cells | {k: v for k, v in values.items() if k not in cells})


def _cells(column: Column, values: Any) -> Cells:
    """Return a column of a Problem as cells; -1, nan and inf (no value, no limit) become empty."""
    if column.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        numbers = np.asarray(values, dtype=np.float64)
        least = max(column.low, 0) if column.kind is ColumnKind.INTEGER else -np.inf
        return np.where(np.isfinite(numbers) & (numbers >= least), numbers, np.nan)
    if column.kind is ColumnKind.CHOICE and isinstance(values, np.ndarray):
        return [column.choices[i] for i in values.tolist()]
    if column.kind is ColumnKind.BOOLEAN:
        return np.asarray(values, dtype=np.bool_)
    return values_as_cells(column.kind, values)
