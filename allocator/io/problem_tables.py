"""Turn a checked Problem back into its tables.

Reading these tables gives the same Problem. Pools, rates, curves and tenants are written in full
and in order, used or not, so that every name keeps its number. Values that the Problem has computed
(defaults, prices in force, GPUs of up nodes) are written as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from allocator.domain.problem import Ints, Jobs, Problem, State, usable_gpus
from allocator.domain.schema.colocation import join_names, other_jobs
from allocator.domain.schema.columns import JOBS, TABLES, Column, ColumnKind, TableSchema
from allocator.domain.schema.modes import name_mode
from allocator.domain.schema.texts import Cells, text_of
from allocator.domain.snapshot import Snapshot, Table

Values = Mapping[str, Any]


def snapshot_folder(problem: Problem) -> Snapshot:
    """Return the snapshot that `validate` turns into this problem again.

    `write_snapshot(snapshot_folder(p), folder)` writes a problem p. The arrays come back equal;
    only lists of sizes and sets of types may get other numbers. If the up nodes of a pool no longer
    add up to its GPUs, because machines came or went, its nodes and all placements on them are left
    out.
    """
    tables = {JOBS.file: build_table(JOBS, jobs(problem)), **cluster_tables(problem)}
    keep = _sound_nodes(problem)
    placed = problem.placements
    on = keep[placed.node]
    # placements of a job add up, or none of them is written
    whole = ~np.isin(placed.job, placed.job[~on])
    add_table(
        tables,
        "placements.csv",
        {
            "job_id": names_of_indices(problem.jobs.job_id, placed.job[whole]),
            "node": names_of_indices(problem.nodes.node, placed.node[whole]),
            "gpus": placed.gpus[whole],
            "gpu": placed.gpu[whole],
        },
    )
    add_table(
        tables,
        "prices.csv",
        {
            "at_s": problem.announced.at_s,
            "pool": names_of_indices(problem.pools.pool, problem.announced.pool),
            "price_per_gpu_hour": problem.announced.price_per_gpu_hour,
            "gpus": problem.announced.gpus,
        },
    )
    job, kind = np.nonzero(problem.received)
    add_table(
        tables,
        "received.csv",
        {
            "job_id": names_of_indices(problem.jobs.job_id, job),
            "gpu_type": names_of_indices(problem.gpu_types, kind),
            "seconds": problem.received[job, kind],
        },
    )
    return Snapshot(problem.name, config(problem), tables)


def jobs(problem: Problem) -> dict[str, Any]:
    """Return every column of jobs.csv."""
    held = problem.jobs
    running = held.state == State.RUNNING
    lists = [s.tolist() for s in problem.size_lists]
    sets = [[problem.gpu_types[t] for t in np.flatnonzero(s)] for s in problem.type_sets]
    modes = [list(map(name_mode, modes)) for modes in problem.mode_sets]
    named_columns = {
        "model": names_of_indices(problem.models, held.model),
        "tenant": names_of_indices(problem.tenants.tenant, held.tenant),
        "pool": names_of_indices(problem.pools.pool, held.pool),
        "gpus": np.where(running, held.gpus, -1),
        "shared_with": _names_of_primaries(held),
        "sizes": [lists[k] if k >= 0 else () for k in held.sizes.tolist()],
        "gpu_types": [sets[k] if k >= 0 else () for k in held.gpu_types.tolist()],
        "modes": [modes[k] if k >= 0 else () for k in held.modes.tolist()],
    }
    return _fields(held, JOBS.file) | named_columns


def _names_of_primaries(held: Jobs) -> list[str]:
    """Return the names of the primary jobs of each job, "" = none."""
    return [
        join_names(held.job_id[h] for h in others) if first >= 0 else ""
        for first, others in zip(held.primary.tolist(), other_jobs(held.secondary), strict=True)
    ]


def cluster_tables(problem: Problem) -> dict[str, Table]:
    """Return all other tables of a snapshot; optional tables only if they have rows.

    They are pools.csv, tenants.csv, quotas.csv, rates.csv, models.csv, nodes.csv, sharing.csv,
    pauses.csv, interactive.csv and finished.csv.
    """
    p = problem.pools
    rates = problem.rates
    curves = problem.curves
    sharing = problem.sharing
    tables = {
        "pools.csv": build_table(
            TABLES["pools.csv"],
            _fields(p, "pools.csv") | {"gpu_type": names_of_indices(problem.gpu_types, p.gpu_type)},
        )
    }

    def add_fields(file: str, source: Any, **columns: Any) -> None:
        add_table(tables, file, _fields(source, file) | columns)

    tenants = problem.tenants
    quotas = problem.quotas
    add_fields("tenants.csv", tenants, parent=names_of_indices(tenants.tenant, tenants.parent))
    add_fields(
        "quotas.csv",
        quotas,
        tenant=names_of_indices(tenants.tenant, quotas.tenant),
        gpu_type=names_of_indices(problem.gpu_types, quotas.gpu_type),
        pool=names_of_indices(p.pool, quotas.pool),
    )
    add_fields(
        "rates.csv",
        rates,
        model=names_of_indices(problem.models, rates.model),
        work_per_s=rates.rate,
        gpu_type=names_of_indices(problem.gpu_types, rates.gpu_type),
    )
    add_fields(
        "models.csv",
        curves,
        model=names_of_indices(problem.models, curves.model),
        gpu_type=names_of_indices(problem.gpu_types, curves.gpu_type),
        kind=[TABLES["models.csv"].column("kind").choices.index(k) for k in curves.kind],
    )
    if not (len(rates.rate) or len(curves.kind)):
        tables["rates.csv"] = build_table(
            TABLES["rates.csv"], _fields(rates, "rates.csv") | {"work_per_s": ()}
        )
    keep = np.flatnonzero(_sound_nodes(problem))
    nodes = problem.nodes
    add_table(
        tables,
        "nodes.csv",
        {
            "node": names_of_indices(nodes.node, keep),
            "pool": names_of_indices(p.pool, nodes.pool[keep]),
            "gpus": nodes.gpus[keep],
            "state": nodes.state[keep],
            "rack": names_of_indices(nodes.rack, keep),
            "cpus": nodes.cpus[keep],
            "host_memory_gb": nodes.host_memory_gb[keep],
        },
        {level.name: names_of_indices(level.label, keep) for level in problem.levels},
    )
    add_fields(
        "sharing.csv",
        sharing,
        model_a=names_of_indices(problem.models, sharing.model_a),
        model_b=names_of_indices(problem.models, sharing.model_b),
        gpu_type=names_of_indices(problem.gpu_types, sharing.gpu_type),
    )
    add_fields(
        "pauses.csv",
        problem.pauses,
        model=names_of_indices(problem.models, problem.pauses.model),
        gpu_type=names_of_indices(problem.gpu_types, problem.pauses.gpu_type),
    )
    add_fields(
        "interactive.csv",
        problem.interactive,
        pool=names_of_indices(p.pool, problem.interactive.pool),
    )
    add_fields(
        "finished.csv",
        problem.finished,
        model=names_of_indices(problem.models, problem.finished.model),
    )
    return tables


def config(problem: Problem) -> dict[str, Any]:
    """Return config.toml with every value of the problem."""
    limits = {
        "budget_per_hour": None if math.isinf(problem.budget_per_hour) else problem.budget_per_hour,
        "ageing_s": None if math.isinf(problem.ageing_s) else problem.ageing_s,
        "max_changes": None if problem.max_changes < 0 else problem.max_changes,
    }
    return {
        "now_s": problem.now_s,
        "interval_s": problem.interval_s,
        "restart_s": problem.restart_s,
        **{k: v for k, v in limits.items() if v is not None},
        "reserve_after_s": problem.reserve_after_s,
        "objective": problem.objective,
        **({"max_primaries": problem.max_primaries} if problem.max_primaries > 1 else {}),
        "spread_pauses": problem.spread_pauses,
        "dollar_price": problem.dollar_price,
        "sizes": problem.sizes,
        "size_error": problem.size_error,
        **{name: dict(settings) for name, settings in problem.settings.items() if settings},
    }


def _sound_nodes(problem: Problem) -> Any:
    """Return (N,) booleans: the nodes of the node's pool add up to the GPUs of the pool."""
    jobs = problem.jobs
    nodes = problem.nodes
    pools = problem.pools
    pinned = (jobs.state == State.RUNNING) & ~jobs.preemptible
    usable = usable_gpus(nodes, problem.placements, pinned, jobs.pool, jobs.held, len(pools))
    return (usable == pools.gpus)[nodes.pool]


def _fields(source: Any, file: str) -> dict[str, Any]:
    """Return the columns of a file that are fields of `source`."""
    return {
        c.name: getattr(source, c.name) for c in TABLES[file].columns if hasattr(source, c.name)
    }


def names_of_indices(names: Sequence[str], index: Ints) -> list[str]:
    """Return the name of each index, "" for -1."""
    return [names[i] if i >= 0 else "" for i in index.tolist()]


def add_table(
    tables: dict[str, Table],
    file: str,
    values: Values,
    levels: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Add a table unless it has no rows; nodes.csv also has the `levels` of the topology."""
    if len(next(iter(values.values()))):
        table = build_table(TABLES[file], values)
        named = {name: labels for name, labels in levels.items() if any(labels)}
        tables[file] = replace(table, columns={**table.columns, **named})


def build_table(schema: TableSchema, values: Values) -> Table:
    """Return a table with the columns of the schema that have values.

    Columns without any value are left out unless they are required.
    """
    return Table.of(
        schema,
        {c.name: _cells(c, values[c.name]) for c in schema.columns if c.name in values},
    )


def _cells(column: Column, values: Any) -> Cells:
    """Return a column of a Problem as cells; -1, nan and inf (no value, no limit) become empty."""
    if column.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        numbers = np.asarray(values, dtype=np.float64)
        least = max(column.low, 0) if column.kind is ColumnKind.INTEGER else -np.inf
        return np.where(np.isfinite(numbers) & (numbers >= least), numbers, np.nan)
    if column.kind is ColumnKind.CHOICE:
        return [column.choices[i] for i in np.asarray(values).tolist()]
    if column.kind is ColumnKind.BOOLEAN:
        return np.asarray(values, dtype=np.bool_)
    if column.kind is ColumnKind.JSON:
        return list(map(text_of, values))
    return (
        list(map(tuple, values))
        if column.kind in (ColumnKind.TEXTS, ColumnKind.INTEGERS)
        else list(values)
    )
