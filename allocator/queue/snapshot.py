"""Build a snapshot of the queue at one moment, and load a snapshot into an empty queue.

A job appears in the snapshot as

    running   while its allocation is ordered or runs; it has what it holds
    paused    while its allocation stops; it holds nothing, and a job that shares its GPUs appears
              with its own GPUs
    held      while its owner holds it, it waits after a failure, or a job that it comes after was
              cancelled or parked

Jobs that are being cancelled, and jobs that are submitted for a later time, are left out. Where
sizes are unknown, finished.csv has the latest jobs that are done of the models in the snapshot;
jobs that were cancelled or failed say nothing of their size.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, compress
from typing import Any

import numpy as np
from sqlalchemy import Connection

from allocator.domain.findings import quote
from allocator.domain.problem import Floats, Problem, State, join_names, split_names
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.cells import Cells
from allocator.domain.schema.columns import (
    FINISHED,
    INTERACTIVE,
    INTERVAL_S,
    JOBS,
    OVER_TIME,
    PLACEMENTS,
    RECEIVED,
    TableSchema,
)
from allocator.domain.snapshot import SEPARATOR, Snapshot, Table
from allocator.errors import UsageError
from allocator.io.plans import SQUEEZE
from allocator.objects import Json
from allocator.queue import cluster_tables
from allocator.queue.database.rows import (
    as_columns,
    as_rows,
    execute,
    execute_many,
    query,
    query_of,
    read_version,
    to_cells,
    to_sql,
    value_of,
    values_of,
)
from allocator.queue.database.schema import ACTIVE, OPEN, OWNED
from allocator.queue.holdings import format_places, name_primaries, parse_parts
from allocator.queue.jobs import purged_names, sessions
from allocator.queue.jobs.submit import OF_JOBS, Submission, build_row
from allocator.queue.round_journal import Want

LEAST_SHARE = 1e-6  # least share of its work that a job has left until it ends
UNIX = 1e9  # times below this are not unix seconds
ACCEPTED = {"unknown_tenants": "warn", "unknown_models": "assume"}
"""Settings of rounds: jobs in the queue were accepted, so no round fails because of them."""
_OF_JOB = (
    "job_id",
    "state",
    "request",
    "attained_gpu_s",
    "restarts",
    "resizes",
    "largest_gpus",
    "received",
    "submitted_s",
    "retry_at_s",
    *OWNED,
)
_HELD = (
    "generation",
    "pool",
    "gpus",
    "gpu_type",
    "phase",
    "running_s",
    "work_at_start",
    "host",
    "since_s",
    "nodes",
    "held_gpus",
)
_ROW = (*_OF_JOB, *_HELD)
_FROM = f"FROM jobs j LEFT JOIN allocations a ON a.job_id = j.job_id AND a.phase IN {OPEN}"
# A row is read again if its mark has changed. The number of a purged job may be given to a new
# job, so the time of the last change is a part of the mark.
_MARK = "j.seq, j.version, j.updated_s, a.phase"
_MARKED = _MARK.count(",") + 1  # columns of a mark
# columns that may change while the mark stays the same
_PROGRESS = ("remaining_work", "work_done", "observed_s", "reported", "loss_work", "loss_error")
_ACTIVE = (
    f"SELECT {_MARK}, COALESCE(a.work_at_start - a.work_done, j.remaining_work), a.work_done,"
    f" a.observed_s, a.reported, l.loss_work, l.loss_error {_FROM}"
    " LEFT JOIN losses l ON l.job_id = j.job_id"
    f" WHERE j.state IN {ACTIVE} AND j.request <> 'cancel' AND j.submitted_s <= ?"
    " ORDER BY j.submitted_s, j.seq"
)
_ROWS = (
    f"SELECT {_MARK}, {', '.join(f'j.{n}' for n in _OF_JOB)}, {', '.join(f'a.{n}' for n in _HELD)}"
    f" {_FROM} WHERE j.seq IN ({{names}})"
)
_KEPT = ("remaining_work", "attained_gpu_s", "restarts", "largest_gpus")
# what runs in a snapshot that is loaded, and the first turns of jobs on GPUs of others
_RUNNING = (
    "INSERT INTO allocations (ordered_s, running_s, held_gpus, job_id, generation, host, pool,"
    " gpus, phase, gpu_type, work_at_start, nodes) SELECT ?, ?, ?, j.job_id, j.generation,"
    " j.want_host, j.want_pool, j.want_gpus, 'running', p.gpu_type, j.remaining_work, j.want_nodes"
    " FROM jobs j JOIN pools p ON p.pool = j.want_pool WHERE j.job_id = ?"
)
_SHARING = (
    "INSERT INTO turns (job_id, generation, at_s, host, held_gpus) SELECT job_id, generation, ?,"
    " host, held_gpus FROM allocations WHERE host <> ''"
)
MOST_FINISHED = 200  # latest finished jobs of a model that count
_FINISHED = (
    "WITH m(model) AS (VALUES {rows}), t AS MATERIALIZED (SELECT model, COALESCE((SELECT"
    " finished_s FROM jobs d WHERE d.model = m.model AND d.state = 'done' ORDER BY finished_s DESC"
    f" LIMIT 1 OFFSET {MOST_FINISHED - 1}), -1e300) AS since_s FROM m) SELECT j.model, j.total_work"
    " FROM t JOIN jobs j ON j.model = t.model AND j.state = 'done' AND j.finished_s >= t.since_s"
    " ORDER BY j.model, j.finished_s, j.total_work"
)
_OVER = "SELECT job_id FROM jobs WHERE state IN ('cancelled', 'failed') AND job_id IN ({names})"


class PreviousRows:
    """Hold the rows of jobs of the last snapshot: only jobs that changed are read again.

    Every change of a job raises its version. A change of its allocation does so too, or it changes
    the phase, but for its progress, which is always read. So a snapshot is the same
    without the rows of the one before, to the last cell, and takes longer to build. They are of one
    queue. `wants` is what the last round wants of them, None once one of them has changed.
    `version` is that of the database at which they were as they are here.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # by mark
        self._columns: dict[str, Sequence[Any]] = {}
        self.version: Any = None
        self.wants: Mapping[str, Want] | None = None

    def read(self, connection: Connection, now_s: float) -> dict[str, Sequence[Any]]:
        """Return the active jobs by column, in the order of submission, and keep them."""
        active = as_columns(query(connection, _ACTIVE, now_s), _MARKED + len(_PROGRESS))
        keys = list(zip(*active[:_MARKED], strict=True))
        if not self._columns or keys != list(self._rows):
            self.wants = None
            self._read_rows(connection, keys)
        self._columns |= zip(_PROGRESS, active[_MARKED:], strict=True)
        self.version = read_version(connection)
        return self._columns

    def list_present(self, connection: Connection) -> Mapping[str, Sequence[Any]] | None:
        """Return the jobs by column as they were read; None if anything may have changed since."""
        return self._columns if self.version == read_version(connection) else None

    def _read_rows(self, connection: Connection, keys: Sequence[tuple[Any, ...]]) -> None:
        """Read the rows of the jobs with new marks."""
        new = [key[0] for key in keys if key not in self._rows]
        # by column, not row by row, because there may be thousands of rows
        columns = as_columns(query_of(connection, _ROWS, new), _MARKED + len(_ROW))
        for i, name in enumerate(_OF_JOB, _MARKED):
            if name in OWNED:
                columns[i] = values_of(JOBS.column(name), columns[i])
        known = self._rows | {row[:_MARKED]: row[_MARKED:] for row in zip(*columns, strict=True)}
        self._rows = {key: known[key] for key in keys}
        columns = as_columns([*self._rows.values()], len(_ROW))
        self._columns |= zip(_ROW, columns, strict=True)


def build_snapshot(
    connection: Connection, now_s: float, previous: PreviousRows | None = None
) -> Snapshot:
    """Return the snapshot of now; the same rows and now_s give the same snapshot, cell by cell.

    `previous` has the rows of an earlier snapshot of this queue. The result does not depend on it.
    """
    # not `or`: an empty one is kept for the next snapshot
    c = (PreviousRows() if previous is None else previous).read(connection, now_s)
    stuck = _find_blocked_jobs(connection, c)
    holds = [
        phase in ("ordered", "running") and request == ""
        for phase, request in zip(c["phase"], c["request"], strict=True)
    ]
    is_holding = np.array(holds, dtype=np.bool_)
    gpus = _floats(c["gpus"])
    attained = _floats(c["attained_gpu_s"])
    columns: dict[str, Cells] = {
        name: to_cells(JOBS.column(name), c[name])
        for name in OWNED
        if not len(c[name]) or c[name].count(None) < len(c[name])
    }
    columns["job_id"] = c["job_id"]
    columns["state"] = _states(c, holds, stuck, now_s)
    columns["pool"] = [pool if here else "" for pool, here in zip(c["pool"], holds, strict=True)]
    columns["gpus"] = np.where(is_holding, gpus, np.nan)
    columns["shared_with"] = _primary_jobs(c, holds)
    columns["submitted_s"] = _floats(c["submitted_s"])
    columns["remaining_work"] = np.maximum(
        _floats(c["remaining_work"]), LEAST_SHARE * _floats(c["total_work"])
    )
    columns["resizes_left"] = np.maximum(0.0, _floats(c["resizes_left"]) - _floats(c["resizes"]))
    turned_s = _floats(c["since_s"])
    since_s = np.where(np.isnan(turned_s), _floats(c["running_s"]), turned_s)
    held_s = np.fmax(0.0, now_s - since_s)  # nan (never seen running) counts as 0
    columns["attained_gpu_s"] = attained + held_s * np.fmax(0.0, _floats(c["held_gpus"]))
    columns |= {name: _floats(c[name]) for name in ("restarts", "largest_gpus")}
    columns |= {name: _floats(c[name]) for name in ("loss_work", "loss_error") if any(c[name])}
    ordered = {
        column.name: columns[column.name] for column in JOBS.columns if column.name in columns
    }
    tables = {
        JOBS.file: Table.of(JOBS, ordered),
        **_build_received(c, held_s),
        **_build_placements(c["job_id"], c["nodes"], holds),
        **cluster_tables.tables(connection),
    }
    config = {**OVER_TIME, **cluster_tables.config(connection), "now_s": now_s}
    if config.get("sizes") == "unknown":
        rows = query_of(connection, _FINISHED, sorted(set(c["model"])))
        tables |= _build_table(FINISHED, ("model", "total_work"), rows)
    if INTERACTIVE.file in tables:
        interval_s = float(config.get("interval_s", INTERVAL_S))
        tables[INTERACTIVE.file] = sessions.fill_headroom(
            connection, tables[INTERACTIVE.file], now_s, interval_s
        )
    return Snapshot(cluster_tables.get_meta(connection, "name") or "queue", config, tables)


def _primary_jobs(c: Mapping[str, Sequence[Any]], holds: Sequence[bool]) -> list[str]:
    """Return the primary jobs of each job that holds GPUs, "" where it holds its own."""
    if not any(c["host"]):
        return [""] * len(holds)
    here = set(compress(c["job_id"], holds))
    return [
        join_names(name for name in split_names(primaries) if name in here)
        if is_holding and primaries
        else ""
        for primaries, is_holding in zip(c["host"], holds, strict=True)
    ]


def _states(
    c: Mapping[str, Sequence[Any]], holds: Sequence[bool], stuck: set[str], now_s: float
) -> list[str]:
    out = []
    for job_id, state, request, retry_at_s, is_holding in zip(
        c["job_id"], c["state"], c["request"], c["retry_at_s"], holds, strict=True
    ):
        if is_holding:
            out.append("running")
        elif (
            state == "held"
            or request == "hold"
            or (retry_at_s is not None and retry_at_s > now_s)
            or job_id in stuck
        ):
            out.append("held")
        else:
            out.append("paused" if state == "running" else state)
    return out


def _find_blocked_jobs(connection: Connection, c: Mapping[str, Sequence[Any]]) -> set[str]:
    """Return the jobs that come after a job that was cancelled or parked."""
    waits = dict(compress(zip(c["job_id"], c["after"], strict=True), c["after"]))
    names = sorted({name for after in waits.values() for name in after})
    over = {row[0] for row in query_of(connection, _OVER, names)}
    return {job_id for job_id, after in waits.items() if not over.isdisjoint(after)}


def _build_table(
    schema: TableSchema, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> dict[str, Table]:
    """Return a table by the name of its file; without rows the mapping is empty."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=False))
    return {schema.file: cluster_tables.build_table(schema.file, columns)} if rows else {}


def _build_received(c: Mapping[str, Sequence[Any]], held_s: Floats) -> dict[str, Table]:
    """Return the table received.csv; the mapping is empty if no job has held GPUs.

    held_s (n,) is for how many seconds each job has had what it holds, 0 if it holds nothing.
    """
    had = list(map(_seconds, c["received"]))
    kinds = sorted({*chain(*had), *c["gpu_type"]} - {None})
    seconds = np.array([[received.get(kind, 0.0) for received in had] for kind in kinds], ndmin=2).T
    now = np.flatnonzero(held_s > 0)
    place = {kind: k for k, kind in enumerate(kinds)}
    seconds[now, [place[c["gpu_type"][j]] for j in now.tolist()]] += held_s[now]
    job, k = np.nonzero(seconds)
    columns: dict[str, Any] = {
        "job_id": list(map(c["job_id"].__getitem__, job.tolist())),
        "gpu_type": list(map(kinds.__getitem__, k.tolist())),
        "seconds": seconds[job, k],
    }
    name = RECEIVED.file
    return {name: cluster_tables.build_table(name, columns)} if len(job) else {}


def _build_placements(
    names: Sequence[str], nodes: Sequence[str], holds: Sequence[bool]
) -> dict[str, Table]:
    """Return the table placements.csv; the mapping is empty if no nodes of a job are known."""
    rows = [
        (name, part.node, part.gpus, part.gpu)
        for name, text in compress(zip(names, nodes, strict=True), holds)
        for part in parse_parts(text or "")
    ]
    return _build_table(PLACEMENTS, ("job_id", "node", "gpus", "gpu"), rows)


@lru_cache(maxsize=1 << 16)
def _seconds(text: str) -> Mapping[str, float]:
    """Return the seconds by GPU type of a cell of `received`.

    The cell changes only when an allocation ends, so the result is cached.
    """
    return {kind: s for kind, s in json.loads(text).items() if s > 0}


def _floats(values: Sequence[Any]) -> Floats:
    """Return values of the database as floats; NULL becomes nan."""
    return np.array(values, dtype=np.float64)


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """Return the snapshot as bytes for the journal.

    The same snapshot gives the same bytes, and the unpacked snapshot has the same digest. A column
    is one text, because a long text is written faster than many short ones.
    """
    document = {
        "name": snapshot.name,
        "config": snapshot.config,
        "tables": {
            file: {name: _pack_column(table, name) for name in table.columns}
            for file, table in snapshot.tables.items()
        },
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), SQUEEZE)


def _pack_column(table: Table, name: str) -> str | list[str]:
    """Return the cells of a column as one text, or as a list if the text could be misread."""
    joined = SEPARATOR.join(table.texts(name))
    is_plain = len(table) > 0 and joined.count(SEPARATOR) == len(table) - 1
    return joined if is_plain else list(table.texts(name))


def unpack_snapshot(content: bytes) -> Snapshot:
    """Return the snapshot that was packed."""
    document = json.loads(zlib.decompress(content))
    tables = {}
    for file, packed in document["tables"].items():
        columns = {
            name: cells.split(SEPARATOR) if isinstance(cells, str) else cells
            for name, cells in packed.items()
        }
        tables[file] = Table(file, columns, range(2, len(next(iter(columns.values()))) + 2))
    return Snapshot(document["name"], document["config"], tables)


def load_at(
    connection: Connection, snapshot: Snapshot, now_s: float | None = None
) -> tuple[Problem, tuple[str, ...]]:
    """Load the cluster, settings and jobs of a snapshot into a queue that has no jobs.

    Jobs that run in the snapshot run in the queue.

    Parameters
    ----------
    snapshot : Snapshot
        The state to load.
    now_s : float, optional
        Time on the clock of the queue, in seconds, that the snapshot's now becomes; all its times
        move by the same amount. They stay as they are without it, and if they are unix seconds.

    Returns
    -------
    tuple of (Problem, tuple of str)
        The checked problem, and warnings.

    Raises
    ------
    InvalidInput
        If the snapshot breaks a rule.
    UsageError
        If the queue has jobs.
    """
    if query(connection, "SELECT job_id FROM jobs LIMIT 1"):
        raise UsageError(
            "the queue has jobs already; a snapshot can only be loaded into an empty one"
        )
    problem = validate(snapshot)
    cluster_tables.store_cluster(connection, snapshot, problem)
    now = now_s if now_s is not None and problem.now_s < UNIX else problem.now_s
    for name, first, last in (
        ("reservations", "at_s", "until_s"),
        ("nodes", "leaves_s", "returns_s"),
    ):
        later = ", ".join(f"{column} = {column} + ?" for column in (first, last))
        execute(connection, f"UPDATE {name} SET {later}", *[now - problem.now_s] * 2)
    rows = _build_jobs(connection, snapshot.tables[JOBS.file], problem, now)
    purged_names.insert_jobs(connection, rows)
    running = (problem.jobs.state == State.RUNNING).tolist()
    holders = zip(problem.jobs.held.tolist(), problem.jobs.job_id, strict=True)
    execute_many(
        connection, _RUNNING, [(now, now, *holder) for holder in compress(holders, running)]
    )
    execute(connection, _SHARING, now)
    return problem, describe_unkept(snapshot)


def _build_jobs(connection: Connection, table: Table, problem: Problem, now_s: float) -> list[Json]:
    """Return the rows of the jobs of a snapshot whose now becomes now_s."""
    jobs = problem.jobs
    shift = now_s - problem.now_s
    nothing = [""] * len(table)
    owned = {name: to_sql(JOBS.column(name), table.columns.get(name, nothing)) for name in OWNED}
    owned["total_work"] = jobs.total_work.tolist()
    owned["submitted_s"] = (jobs.submitted_s + shift).tolist()
    owned["deadline_s"] = [None if at is None else at + shift for at in owned["deadline_s"]]
    runs = (jobs.state == State.RUNNING).tolist()
    has_started = (
        (jobs.state == State.RUNNING) | (jobs.state == State.PAUSED) | (jobs.attained_gpu_s > 0)
    )
    began = np.minimum(owned["submitted_s"], now_s).tolist()
    facts = {
        "state": [State(k).name.lower() for k in jobs.state.tolist()],
        **{name: getattr(jobs, name).tolist() for name in _KEPT},
        "want_pool": [
            problem.pools.pool[p] if is_here else ""
            for p, is_here in zip(jobs.pool.tolist(), runs, strict=True)
        ],
        "want_gpus": np.where(runs, jobs.gpus, 0).tolist(),
        "want_host": name_primaries(jobs.job_id, jobs.secondary),
        "want_nodes": format_places(problem, problem.placements),
        "received": [
            json.dumps(
                {kind: s for kind, s in zip(problem.gpu_types, row, strict=True) if s > 0},
                sort_keys=True,
            )
            for row in problem.received.tolist()
        ],
        "first_started_s": [
            at if was else None for at, was in zip(began, has_started.tolist(), strict=True)
        ],
    }
    rows = []
    for j, (values, fact) in enumerate(zip(as_rows(owned), as_rows(facts), strict=True)):
        cells = {name: value_of(JOBS.column(name), value) for name, value in values.items()}
        submission = Submission({"job_id": jobs.job_id[j], **cells})
        row = build_row(submission, submission.content(), values, now_s, j + 1) | fact
        rows.append(row | {"generation": int(runs[j])})
    return rows


def replace_cluster(connection: Connection, source: Snapshot, now_s: float) -> tuple[str, ...]:
    """Replace pools, tenants, rates, sharing and settings by those of a snapshot.

    The jobs of the snapshot are ignored.

    Returns
    -------
    tuple of str
        Warnings.

    Raises
    ------
    InvalidInput
        If the new cluster breaks a rule, alone or with the jobs of the queue, which the faults
        name.
    UsageError
        If a pool is missing of which jobs hold GPUs.
    """
    ours = ("jobs.csv", "placements.csv", "received.csv")
    here = build_snapshot(connection, now_s)
    old = {file: table for file, table in here.tables.items() if file in ours}
    new = {file: table for file, table in source.tables.items() if file not in ours}
    faults = tuple(f for f in source.faults if f.file not in ours)
    empty = {"jobs.csv": Table(JOBS.file, {c.name: [] for c in JOBS.columns if c.required}, ())}
    pools = new["pools.csv"].texts("pool") if "pools.csv" in new else ()
    for pool, number in cluster_tables.held(connection).items():
        if pool not in pools:
            raise UsageError(
                f"pool {quote(pool)} would be gone, but jobs hold {number} of its GPUs"
            )
    problem = validate(replace(source, tables={**new, **empty}, faults=faults))
    served = validate(
        replace(
            source,
            tables={**new, **old},
            faults=(),
            config={**source.config, "now_s": now_s},
        )
    )
    cluster_tables.store_cluster(connection, source, problem)
    return (
        *(w for w in problem.warnings if "jobs.csv" not in w),
        *describe_unkept(source),
        *(OF_JOBS.sub("jobs of the queue: ", w) for w in served.warnings if OF_JOBS.match(w)),
    )


def describe_unkept(snapshot: Snapshot) -> tuple[str, ...]:
    """Return warnings that name the parts of a snapshot that a queue does not keep."""
    words = {
        "prices.csv": "the prices and GPUs in force now are kept, later rows are not",
        "finished.csv": "is not kept; the jobs of the queue that are done count",
    }
    return tuple(
        f"{file}: {text}" for file, text in words.items() if len(snapshot.tables.get(file, ()))
    )
