"""The cluster of a queue: pools, tenants, speeds, sharing and settings.

They are stored as the tables of a snapshot (docs/reference/formats.md). Rates that a controller
learned are stored apart from the rates that the owner gave, and are merged when a snapshot is
built.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.findings import Findings, did_you_mean, quote, suggest_setting
from allocator.domain.problem import Bools, Problem, split_names
from allocator.domain.rules.cluster_rules import count_fewest_nodes, find_largest_nodes
from allocator.domain.schema.columns import ASSUMED_RATE, CONFIG, CONFIG_TABLES, MOST_GPUS, TABLES
from allocator.domain.settings import settings
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.performance import batched
from allocator.performance.fit.feedback import Estimate
from allocator.performance.fit.learned_noise import LearnedNoise
from allocator.queue.database import schema
from allocator.queue.database.rows import (
    as_columns,
    as_rows,
    execute,
    execute_many,
    insert,
    query,
    to_cells,
    to_sql,
    values_of,
)
from allocator.queue.database.schema import OPEN, pools
from allocator.queue.holdings import count_gpus

HOME: Mapping[str, sa.Table] = {
    "pools.csv": pools,
    "tenants.csv": schema.tenants,
    "quotas.csv": schema.quotas,
    "rates.csv": schema.rates,
    "models.csv": schema.curves,
    "sharing.csv": schema.sharing,
    "pauses.csv": schema.pauses,
    "interactive.csv": schema.interactive,
    "reservations.csv": schema.reservations,
    "nodes.csv": schema.nodes,
}
"""Files of a snapshot that the queue keeps, besides jobs.csv."""
NODE_CHANGES = "node_changes"  # key of the table meta: how often nodes were changed
NOISE = "noise"  # key of the table meta: the learned gradient noise of each model
SLOWDOWNS = "slowdowns"  # key of the table meta: estimates and corrected rows of sharing.csv
UNRATED = "unrated"  # key of the state of a learned rate: its model has no given rate
LearnedRate = tuple[str, str, int, float | None, Json]
"""Model, GPU type, GPUs, work per second (None: too little is known) and what is remembered."""
Columns = dict[str, list[Any]]  # values by column, as in database/rows.py
_NAMES = {
    file: [c.name for c in TABLES[file].columns if c.name in home.c] for file, home in HOME.items()
}
_QUERIES = {
    file: f"SELECT {', '.join(names)} FROM {HOME[file].name} ORDER BY position"
    for file, names in _NAMES.items()
}
_SHARING = (
    f"SELECT job_id, pool, host, held_gpus FROM allocations WHERE phase IN {OPEN} AND host <> ''"
)
# GPUs by pool; of those of which jobs have shares their nodes
_USED = (
    "SELECT pool, SUM(held_gpus), shares FROM (SELECT a.pool, a.held_gpus, CASE WHEN a.nodes <> ''"
    " AND EXISTS (SELECT 1 FROM jobs j WHERE j.job_id = a.job_id AND j.gpu_fraction IS NOT NULL)"
    f" THEN a.nodes ELSE '' END AS shares FROM allocations a WHERE a.phase IN {OPEN}"
    " AND a.held_gpus > 0) AS held GROUP BY pool, shares ORDER BY pool"
)
_GPUS = "SELECT pool, gpus FROM pools ORDER BY position"
PRESENT = (
    "SELECT p.pool, COALESCE(SUM(n.gpus), p.gpus) FROM pools p LEFT JOIN nodes n ON n.pool = p.pool"
    " GROUP BY p.pool, p.gpus"
)
_LABELS = "SELECT labels FROM nodes ORDER BY position"
_TYPES = "SELECT pool, gpu_type FROM pools"
_ESTIMATES = ("model", "gpu_type", "gpus", "work_per_s", "state", "updated_s")
_ALL_LEARNED = f"SELECT {', '.join(_ESTIMATES)} FROM learned ORDER BY model, gpu_type, gpus"
_CORRECTED = (
    "SELECT model, gpu_type, gpus, work_per_s FROM learned WHERE work_per_s IS NOT NULL "
    "ORDER BY model, gpu_type, gpus"
)
_META = "SELECT value FROM meta WHERE key = ?"


def tables(connection: Connection) -> dict[str, Table]:
    """Return the tables of the cluster by file, with what was learned merged in.

    Optional tables without rows are left out.
    """
    out: dict[str, Table] = {}
    given = {file: read_stored_columns(connection, file) for file in HOME}
    given["rates.csv"] = _correct_rates(connection, given)
    given["sharing.csv"] = _correct_slowdowns(connection, given["sharing.csv"])
    given["models.csv"] = _correct_curves(connection, given["models.csv"])
    for file, columns in given.items():
        if file == "pools.csv" or len(next(iter(columns.values()))):
            out[file] = build_table(file, columns)
    if "nodes.csv" in out:
        nodes = out["nodes.csv"]
        labels = [json.loads(row[0]) for row in query(connection, _LABELS)]
        levels = sorted({level for by_level in labels for level in by_level})
        more = {level: [by_level.get(level, "") for by_level in labels] for level in levels}
        out["nodes.csv"] = replace(nodes, columns={**nodes.columns, **more})
    if "rates.csv" not in out and "models.csv" not in out:
        out["rates.csv"] = build_table(
            "rates.csv", {c.name: [] for c in TABLES["rates.csv"].columns if c.required}
        )
    return out


def read_stored_columns(connection: Connection, file: str) -> Columns:
    """Return the columns of one file as the owner gave them, without learned rates."""
    columns = as_columns(query(connection, _QUERIES[file]), len(_NAMES[file]))
    return {
        name: values_of(TABLES[file].column(name), stored)
        for name, stored in zip(_NAMES[file], columns, strict=True)
    }


def read_stored_rows(connection: Connection, file: str) -> list[Json]:
    """Return the rows of one file as the owner gave them, without learned rates."""
    return as_rows(read_stored_columns(connection, file))


def build_table(file: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    """Return values by column as a table; columns without a value are left out unless required."""
    schema = TABLES[file]
    return Table.of(
        schema, {name: to_cells(schema.column(name), cells) for name, cells in columns.items()}
    )


def _correct_rates(connection: Connection, given: Mapping[str, Columns]) -> Columns:
    """Return the columns of rates.csv with the learned rates merged in.

    At a size with given rows, all of these rows are scaled so that the fastest useful rate of those
    that fit some GPU becomes the learned rate. A size without such a row gets a new row. The new
    row is marked as observed if its model has neither a given row nor a curve. Spread shapes keep
    their rates, because jobs on packed GPUs say nothing about them.
    """
    rates, pools = given["rates.csv"], given["pools.csv"]
    learned = query(connection, _CORRECTED)
    if not learned:
        return rates
    most: dict[str, float] = {}
    for kind, memory in zip(pools["gpu_type"], pools["memory_gb"], strict=True):
        most[kind] = max(most.get(kind, 0.0), math.inf if memory is None else memory)
    known = {*rates["model"], *given["models.csv"]["model"]}
    rows = as_rows(rates)
    packed: dict[tuple[Any, ...], list[Json]] = defaultdict(list)
    for row, is_spread in zip(rows, find_spread_rows(given).tolist(), strict=True):
        if not is_spread:
            packed[row["model"], row["gpu_type"], row["gpus"]].append(row)
    for model, gpu_type, number, work_per_s in learned:
        same = packed[model, gpu_type, number]
        fits = [row for row in same if (row["memory_gb"] or 0.0) <= most.get(gpu_type, math.inf)]
        fastest = max(map(_useful_rate, fits), default=0.0)
        for row in same if fastest > 0 else ():
            row["work_per_s"] = row["work_per_s"] * work_per_s / fastest
        if not same or (fits and fastest <= 0):
            rows.append(
                {
                    "model": model,
                    "gpu_type": gpu_type,
                    "gpus": number,
                    "work_per_s": work_per_s,
                    "variant": "",
                    "observed": None if model in known else True,
                }
            )
    return {name: [row.get(name) for row in rows] for name in (*rates, "observed")}


def _correct_slowdowns(connection: Connection, given: Columns) -> Columns:
    """Return the columns of sharing.csv with the corrected rows in place of the given ones.

    Corrected rows of other sizes follow.
    """
    corrected = read_corrected_slowdowns(connection)
    if not corrected or not given["model_a"]:
        return given
    rows = {tuple(row.values())[:4]: row for row in (*as_rows(given), *corrected)}
    return {name: [row[name] for row in rows.values()] for name in given}


def read_corrected_slowdowns(connection: Connection) -> list[Json]:
    """Return the corrected rows of sharing.csv, by column."""
    rows = read_meta(connection, SLOWDOWNS, {}).get("rows", ())
    return [dict(zip(_NAMES["sharing.csv"], row, strict=True)) for row in rows]


def read_noise(connection: Connection) -> dict[str, LearnedNoise]:
    """Return the learned gradient noise by model."""
    known = read_meta(connection, NOISE, {})
    return {model: LearnedNoise(*row) for model, row in known.items()}


def read_noise_scales(connection: Connection) -> dict[str, float]:
    """Return the learned noise scales by model, in samples."""
    scales = {model: noise.noise_scale for model, noise in read_noise(connection).items()}
    return {model: phi for model, phi in scales.items() if math.isfinite(phi)}


def _correct_curves(connection: Connection, given: Columns) -> Columns:
    """Return the columns of models.csv; curves that know batches get the learned noise scales."""
    learned = read_noise_scales(connection)
    if learned.keys().isdisjoint(given["model"]):
        return given
    rows = zip(given["model"], given["kind"], given["parameters"], strict=True)
    parameters = [
        json.dumps(json.loads(text) | {"noise_scale": learned[model]})
        if model in learned and kind in batched.KINDS
        else text
        for model, kind, text in rows
    ]
    return given | {"parameters": parameters}


def find_spread_rows(given: Mapping[str, Columns]) -> Bools:
    """Find the rows of rates.csv that are spread shapes, (R,), from columns by file."""
    rates, pools = given["rates.csv"], given["pools.csv"]
    default = TABLES["pools.csv"].column("gpus_per_node").default
    sizes = [default if size is None else size for size in pools["gpus_per_node"]]
    listed = zip(pools["pool"], pools["gpu_type"], sizes, strict=True)
    largest = find_largest_nodes(listed, set(given["nodes.csv"]["pool"]))
    fewest = count_fewest_nodes(rates["gpu_type"], rates["gpus"], largest)
    spread = np.array([n or 0 for n in rates["spread"]], dtype=np.int64)
    return np.asarray((fewest > 0) & (spread > fewest))


def _useful_rate(row: Record) -> float:
    efficiency = row["efficiency"]
    return float(row["work_per_s"] * (1.0 if efficiency is None else efficiency))


def config(connection: Connection) -> Json:
    """Return the settings of config.toml of the queue, without now_s."""
    return dict(read_meta(connection, "config", {}))


def set_config(connection: Connection, changes: Record) -> Json:
    """Change settings and return all of them; None sets one back to its default.

    Raises UsageError for an unknown setting or a value that is not allowed.
    """
    known = {table: [c.name for c in columns] for table, columns in CONFIG_TABLES.items()}
    known[""] = [*(c.name for c in CONFIG if c.name != "now_s"), *CONFIG_TABLES]
    for table, keys in (("", changes), *changes.items()):
        for key in keys if table in known and isinstance(keys, Mapping) else ():
            if key not in known[table]:
                raise UsageError(
                    f"no setting {quote(key)}{f' in [{table}]' if table else ''}"
                    f"{suggest_setting(key, known[table])}"
                )
    both = sorted({**config(connection), **changes}.items())
    merged = {name: value for name, value in both if value is not None}
    findings = Findings(())
    settings(Snapshot("queue", merged, {}), findings)
    if findings.faults:
        raise UsageError("; ".join(fault.message for fault in findings.faults))
    most = int(merged.get("max_primaries", 1))
    for job_id, _, needed in find_groups(connection):
        if needed > most:
            raise UsageError(
                f"max_primaries is {most}: job {quote(job_id)} runs on the GPUs of several jobs, or"
                f" of one with fewer GPUs, and needs max_primaries = {needed}; hold the job first"
            )
    write_meta(connection, "config", merged)
    return merged


def count_needed_primaries(primaries: int, own_gpus: int) -> int:
    """Return the least max_primaries at which a job may run on the GPUs of so many jobs."""
    return max(primaries, 2 if own_gpus else 1)


def read_max_primaries(connection: Connection) -> int:
    """Return on the GPUs of how many jobs one job may run as a second one."""
    return int(config(connection).get("max_primaries", 1))


def find_groups(connection: Connection) -> list[tuple[str, str, int]]:
    """Return the jobs that run on the GPUs of several jobs, or of one with fewer GPUs.

    Each with its pool, and the least max_primaries at which it may run so.
    """
    groups = [
        (job_id, pool, count_needed_primaries(len(split_names(primaries)), own))
        for job_id, pool, primaries, own in query(connection, _SHARING)
    ]
    return [group for group in groups if group[2] > 1]


def put_meta(connection: Connection, key: str, value: str) -> None:
    """Set one value of the table `meta`."""
    execute(
        connection,
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET "
        "value = excluded.value",
        key,
        value,
    )


def get_meta(connection: Connection, key: str) -> str | None:
    """Return one value of the table `meta`, or None."""
    rows = query(connection, _META, key)
    return rows[0][0] if rows else None


def write_meta(connection: Connection, key: str, value: Any) -> None:
    """Set one value of the table `meta`, as JSON; dates of TOML become texts."""
    put_meta(connection, key, json.dumps(value, separators=(",", ":"), default=str))


def read_meta(connection: Connection, key: str, absent: Any = None) -> Any:
    """Return one value of the table `meta` that is JSON; floats are read back exactly."""
    text = get_meta(connection, key)
    return absent if text is None else json.loads(text)


def store_cluster(connection: Connection, snapshot: Snapshot, problem: Problem) -> None:
    """Replace the whole cluster by that of a checked snapshot; learned rates are kept.

    GPUs and prices are stored as they are in force at the time of the snapshot.
    """
    for file in HOME:
        table = snapshot.tables.get(file)
        if table is None or not len(table):
            _replace_rows(connection, file, {})
            continue
        columns = _to_sql_columns(file, table)
        if file == "rates.csv":
            learn(connection, _learned_rows(problem), problem.now_s)
            given = ~problem.rates.observed
            columns = {name: list(compress(cells, given)) for name, cells in columns.items()}
        if file == "pools.csv":
            columns["gpus"] = problem.pools.gpus.tolist()
            if "prices.csv" in snapshot.tables:
                columns["price_per_gpu_hour"] = problem.pools.price_per_gpu_hour.tolist()
        if file == "nodes.csv":
            columns["state"] = [state or "up" for state in table.texts("state")]
            rest = [level for level in problem.levels if level.name != "rack"]
            columns["labels"] = [
                json.dumps(
                    {level.name: level.label[n] for level in rest if level.label[n]}, sort_keys=True
                )
                for n in range(len(problem.nodes))
            ]
        _replace_rows(connection, file, columns)
    with_nodes = np.flatnonzero(problem.has_nodes).tolist()
    note_node_change(connection, (problem.pools.pool[p] for p in with_nodes))
    kept = {k: v for k, v in sorted(snapshot.config.items()) if k != "now_s"}
    write_meta(connection, "config", kept)
    put_meta(connection, "name", snapshot.name)


def note_node_change(connection: Connection, changed: Iterable[str]) -> None:
    """Set the GPUs of pools whose nodes changed to those of their up nodes, and count the change.

    A controller decides early when that count changes.
    """
    up = "SELECT COALESCE(SUM(gpus), 0) FROM nodes WHERE state = 'up' AND pool = ?"
    rows = [(pool, pool) for pool in sorted(set(changed))]
    execute_many(connection, f"UPDATE pools SET gpus = ({up}) WHERE pool = ?", rows)
    write_meta(connection, NODE_CHANGES, count_node_changes(connection) + 1)


def count_node_changes(connection: Connection) -> int:
    """Return how often nodes were changed."""
    return int(read_meta(connection, NODE_CHANGES, 0))


def store_table(connection: Connection, file: str, table: Table) -> None:
    """Replace one table of the cluster by a checked one that is stored as it is."""
    _replace_rows(connection, file, _to_sql_columns(file, table))


def _to_sql_columns(file: str, table: Table) -> Columns:
    """Return the columns of a table that the queue keeps, as values for the database."""
    return {
        name: to_sql(TABLES[file].column(name), table.columns[name])
        for name in _NAMES[file]
        if name in table.columns
    }


def _replace_rows(connection: Connection, file: str, columns: Columns) -> None:
    home = HOME[file].name
    execute(connection, f"DELETE FROM {home}")
    insert(connection, home, [{"position": i, **row} for i, row in enumerate(as_rows(columns))])


def _learned_rows(problem: Problem) -> Iterator[LearnedRate]:
    """Yield each observed row of rates.csv as an estimate from one sample.

    No owner gave such a row: a controller learned it, in this queue or in another one.
    """
    rates = problem.rates
    for i in np.flatnonzero(rates.observed & (rates.rate > 0)).tolist():
        rate = float(rates.rate[i])
        known = Estimate(mean=math.log(rate / ASSUMED_RATE), weight=1.0, at_s=problem.now_s)
        model, gpu_type = problem.models[rates.model[i]], problem.gpu_types[rates.gpu_type[i]]
        yield model, gpu_type, int(rates.gpus[i]), rate, known.to_dict() | {UNRATED: True}


def held(connection: Connection) -> dict[str, int]:
    """Return the GPUs that open allocations hold, for the pools that have any.

    A GPU of which several jobs have shares counts once.
    """
    out: dict[str, int] = {}
    shares: dict[str, list[str]] = defaultdict(list)
    for pool, number, text in query(connection, _USED):
        if text:
            shares[pool].append(text)
        else:
            out[pool] = int(number)
    for pool, texts in shares.items():
        out[pool] = out.get(pool, 0) + sum(count_gpus(texts).values())
    return out


def gpus(connection: Connection) -> dict[str, int]:
    """Return how many GPUs of each pool may be used, in the order of the pools."""
    return dict(query(connection, _GPUS))


def read_pools_with_nodes(connection: Connection) -> set[str]:
    """Return the pools whose GPUs are on nodes."""
    return {pool for (pool,) in query(connection, "SELECT DISTINCT pool FROM nodes")}


def read_node_sizes(connection: Connection) -> dict[str, tuple[str, int]]:
    """Return the pool and the GPUs of each node, whatever its state."""
    rows = query(connection, "SELECT node, pool, gpus FROM nodes ORDER BY position")
    return {node: (pool, int(gpus)) for node, pool, gpus in rows}


def used(connection: Connection) -> dict[str, int]:
    """Return the GPUs of each pool that open allocations hold (ordered, running or stopping).

    The GPUs of two colocated jobs count once.
    """
    held_gpus = held(connection)
    return {pool: held_gpus.get(pool, 0) for pool in gpus(connection)}


def read_gpu_types(connection: Connection) -> dict[str, str]:
    """Return the GPU type of each pool."""
    return dict(query(connection, _TYPES))


def set_gpus(connection: Connection, changes: Mapping[str, int]) -> dict[str, int]:
    """Change how many GPUs of pools may be used, and return the numbers of all pools.

    Jobs that hold more GPUs than that keep them until the next round. Raises UsageError for an
    unknown pool, one that has nodes, or a number out of range.
    """
    known = gpus(connection)
    with_nodes = read_pools_with_nodes(connection)
    for pool, number in changes.items():
        if pool not in known:
            raise UsageError(f"the queue has no pool {quote(pool)}{did_you_mean(pool, known)}")
        if pool in with_nodes:
            raise UsageError(
                f"pool {quote(pool)} has the GPUs of its nodes; `allocator queue node` changes them"
            )
        if isinstance(number, bool) or number != int(number) or not 0 <= number <= MOST_GPUS:
            raise UsageError(f"{number} GPUs: not a whole number from 0 to {MOST_GPUS}")
        execute(connection, "UPDATE pools SET gpus = ? WHERE pool = ?", int(number), pool)
    return {**known, **{pool: int(number) for pool, number in changes.items()}}


def read_learned_rates(connection: Connection) -> list[Json]:
    """Return the learned rates, one mapping per model, GPU type and number of GPUs.

    The keys are model, gpu_type, gpus, work_per_s (None as long as too little is known), state and
    updated_s.
    """
    estimates = [dict(zip(_ESTIMATES, row, strict=True)) for row in query(connection, _ALL_LEARNED)]
    return [row | {"state": json.loads(row["state"])} for row in estimates]


def count_corrected_rates(connection: Connection) -> int:
    """Return how many rates are corrected or learned."""
    return len(query(connection, _CORRECTED))


def learn(connection: Connection, rows: Iterable[LearnedRate], now_s: float) -> None:
    """Write learned rates; each row is replaced as a whole."""
    execute_many(
        connection,
        "INSERT INTO learned (model, gpu_type, gpus, work_per_s, state, updated_s) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (model, gpu_type, gpus) DO UPDATE SET "
        "work_per_s = excluded.work_per_s, state = excluded.state, updated_s = excluded.updated_s",
        [(*rate, json.dumps(state, sort_keys=True), now_s) for *rate, state in rows],
    )
