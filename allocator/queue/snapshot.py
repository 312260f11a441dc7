"""The state of the queue at one moment as a snapshot of the contract, and back: loading one into an empty queue.

What the snapshot says of a job: running, with what it holds, while its allocation is ordered or runs; paused, holding
nothing, while it stops; held while its owner holds it, waits for the end of a pause after failures, or a job it comes
after was cancelled or parked. Jobs that are being cancelled, and those submitted for later than now, are left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.columns import JOBS, RECEIVED
from allocator.domain.problem import Problem, State
from allocator.domain.snapshot import Snapshot, Table
from allocator.domain.validate import validate
from allocator.errors import UsageError
from allocator.files.numbers_text import texts
from allocator.queue import cluster
from allocator.queue.jobs import PART
from allocator.queue.schema import ACTIVE, OPEN, OWNED, allocations, jobs
from allocator.queue.submit import Submission, cell

LEAST_SHARE = 1e-6       # of its work that a job which has not ended has left at least
UNIX = 1e9               # a clock that says less does not count unix seconds
_STATE = ("job_id", "state", "request", "remaining_work", "attained_gpu_s", "restarts", "resizes", "largest_gpus",
          "received", "submitted_s", "retry_at_s")


def build(connection: Connection, now_s: float) -> Snapshot:
    """The snapshot of now. The same rows and now_s give the same snapshot, cell by cell."""
    rows = _active(connection, now_s)
    stuck = _stuck(connection, [row for row in rows if row.after])
    columns: dict[str, list[str]] = {"job_id": [row.job_id for row in rows]}
    for name in OWNED:
        columns[name] = [getattr(row, name) for row in rows]
    holds = [row.phase in ("ordered", "running") and row.request == "" for row in rows]
    columns["state"] = [_state(row, held, row.job_id in stuck, now_s)
                        for row, held in zip(rows, holds, strict=True)]
    columns["pool"] = [row.pool if held else "" for row, held in zip(rows, holds, strict=True)]
    columns["gpus"] = [str(row.gpus) if held else "" for row, held in zip(rows, holds, strict=True)]
    columns["submitted_s"] = _texts([row.submitted_s for row in rows])
    columns["remaining_work"] = _texts([max(row.remaining_work, float(row.total_work) * LEAST_SHARE) for row in rows])
    columns["resizes_left"] = [text and str(max(0, int(float(text)) - row.resizes))
                               for text, row in zip(columns["resizes_left"], rows, strict=True)]
    held_s = [max(0.0, now_s - row.running_s) if row.running_s is not None else 0.0 for row in rows]
    columns["attained_gpu_s"] = _texts([row.attained_gpu_s + s * (row.gpus or 0)
                                        for row, s in zip(rows, held_s, strict=True)])
    columns["restarts"] = [str(row.restarts) for row in rows]
    columns["largest_gpus"] = [str(row.largest_gpus) for row in rows]
    tables = {"jobs.csv": Table(JOBS.file, {c.name: columns[c.name] for c in JOBS.columns if c.required or any(
        columns[c.name])}, range(2, len(rows) + 2))}
    received = _received(rows, held_s)
    if received is not None:
        tables[RECEIVED.file] = received
    return Snapshot(cluster.get_meta(connection, "name") or "queue", {**cluster.config(connection), "now_s": now_s},
                    {**tables, **cluster.tables(connection)})


def _active(connection: Connection, now_s: float) -> Sequence[Any]:
    held = ("pool", "gpus", "gpu_type", "phase", "running_s")
    return connection.execute(
        sa.select(*(jobs.c[n] for n in (*_STATE, *OWNED)), *(allocations.c[n] for n in held))
        .select_from(jobs.outerjoin(allocations, sa.and_(allocations.c.job_id == jobs.c.job_id,
                                                         allocations.c.phase.in_(OPEN))))
        .where(jobs.c.state.in_(ACTIVE), jobs.c.request != "cancel", jobs.c.submitted_s <= now_s)
        .order_by(jobs.c.submitted_s, jobs.c.seq)).all()


def _state(row: Any, held: bool, stuck: bool, now_s: float) -> str:
    if held:
        return "running"
    if row.state == "held" or row.request == "hold" or stuck or (row.retry_at_s is not None and row.retry_at_s > now_s):
        return "held"
    return "paused" if row.state == "running" else str(row.state)


def _stuck(connection: Connection, rows: Sequence[Any]) -> set[str]:
    """Jobs that come after one which was cancelled or parked."""
    waits = {row.job_id: [name.strip() for name in row.after.split("|")] for row in rows}
    names = sorted({name for after in waits.values() for name in after})
    over: set[str] = set()
    for part in range(0, len(names), PART):
        over |= set(connection.execute(sa.select(jobs.c.job_id).where(
            jobs.c.job_id.in_(names[part:part + PART]), jobs.c.state.in_(("cancelled", "failed")))).scalars())
    return {job_id for job_id, after in waits.items() if not over.isdisjoint(after)}


def _received(rows: Sequence[Any], held_s: Sequence[float]) -> Table | None:
    cells: list[tuple[str, str, str]] = []
    for row, now in zip(rows, held_s, strict=True):
        seconds = json.loads(row.received) if row.received != "{}" else {}
        if now > 0:
            seconds[row.gpu_type] = seconds.get(row.gpu_type, 0.0) + now
        cells += [(row.job_id, kind, cell(float(s))) for kind, s in sorted(seconds.items()) if s > 0]
    if not cells:
        return None
    names = [c.name for c in RECEIVED.columns]
    return Table(RECEIVED.file, dict(zip(names, map(list, zip(*cells, strict=True)), strict=True)),
                 range(2, len(cells) + 2))


def _texts(numbers: Sequence[float]) -> list[str]:
    return texts(np.array(numbers, dtype=np.float64))


def packed(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes for the journal; the same snapshot gives the same bytes, unpacking gives its digest."""
    document = {"name": snapshot.name, "config": snapshot.config, "tables": {
        file: {name: list(cells) for name, cells in table.columns.items()} for file, table in snapshot.tables.items()}}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 6)


def unpacked(content: bytes) -> Snapshot:
    """The snapshot that was packed."""
    document = json.loads(zlib.decompress(content))
    tables = {file: Table(file, columns, range(2, len(next(iter(columns.values()))) + 2))
              for file, columns in document["tables"].items()}
    return Snapshot(document["name"], document["config"], tables)


def load(connection: Connection, snapshot: Snapshot, now_s: float | None = None) -> tuple[Problem, tuple[str, ...]]:
    """Fill a queue without jobs with a snapshot: cluster, settings and jobs; what runs there runs here.

    now_s: what the snapshot's now is on the clock of the queue; all its times move along. None: its own. Returns the
    checked problem and warnings. Raises InvalidInput, UsageError if the queue has jobs.
    """
    if connection.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one():
        raise UsageError("the queue has jobs already; a snapshot can only be loaded into an empty one")
    problem = validate(snapshot)
    shift = 0.0 if now_s is None else now_s - problem.now_s
    cluster.put(connection, snapshot, problem)
    for part in range(0, len(problem.jobs), PART):
        connection.execute(sa.insert(jobs), [
            _job(snapshot.tables["jobs.csv"], problem, j, shift)
            for j in range(part, min(part + PART, len(problem.jobs)))])
    running = np.flatnonzero(problem.jobs.state == State.RUNNING).tolist()
    if running:
        connection.execute(sa.insert(allocations), [_allocation(problem, j, shift) for j in running])
    return problem, lost(snapshot)


def load_at(connection: Connection, snapshot: Snapshot, now_s: float) -> tuple[Problem, tuple[str, ...]]:
    """Load a snapshot, with its now moved to now_s unless it counts unix seconds."""
    own = validate(snapshot).now_s
    return load(connection, snapshot, None if own >= UNIX else now_s)


def replace_cluster(connection: Connection, source: Snapshot, now_s: float) -> tuple[str, ...]:
    """Replace pools, tenants, rates, sharing and settings by those of a snapshot; its jobs do not count.

    Returns warnings. Raises InvalidInput if the new cluster breaks a rule, alone or with the jobs of the queue (the
    faults name them), UsageError if a pool that jobs hold GPUs of would be gone.
    """
    ours = ("jobs.csv", "placements.csv", "received.csv")
    here = build(connection, now_s)
    old = {file: table for file, table in here.tables.items() if file in ours}
    new = {file: table for file, table in source.tables.items() if file not in ours}
    faults = tuple(f for f in source.faults if f.file not in ours)
    times = {k: v for k, v in source.config.items() if k == "now_s"}
    empty = {"jobs.csv": Table(JOBS.file, {c.name: [] for c in JOBS.columns if c.required}, ())}
    cluster.refuse_lost_pools(connection, new["pools.csv"].columns.get("pool", ()) if "pools.csv" in new else ())
    problem = validate(replace(source, tables={**new, **empty}, faults=faults))
    validate(replace(source, tables={**new, **old}, faults=(), config={
        **{k: v for k, v in source.config.items() if k not in times}, "now_s": now_s}))
    cluster.put(connection, source, problem)
    return (*(w for w in problem.warnings if "jobs.csv" not in w), *lost(source))


def lost(snapshot: Snapshot) -> tuple[str, ...]:
    """What of a snapshot a queue does not keep, in words."""
    words = {"prices.csv": "the prices and GPUs in force now are kept, later rows are not",
             "nodes.csv": "pools have the GPUs of their up nodes; the nodes are not kept",
             "placements.csv": "is not kept"}
    return tuple(f"{file}: {text}" for file, text in words.items() if len(snapshot.tables.get(file, ())))


def _job(table: Table, problem: Problem, j: int, shift: float) -> dict[str, Any]:
    held, columns = problem.jobs, table.columns
    cells = {name: columns[name][j] if name in columns else "" for name in OWNED}
    cells["total_work"] = cell(float(held.total_work[j]))
    if shift and cells["deadline_s"]:
        cells["deadline_s"] = cell(float(held.deadline_s[j]) + shift)
    state = ("queued", "running", "paused", "held")[int(held.state[j])]
    now = problem.now_s + shift
    submitted = float(held.submitted_s[j]) + shift
    started = state in ("running", "paused") or float(held.attained_gpu_s[j]) > 0
    received = {t: float(s) for t, s in zip(problem.gpu_types, problem.received[j].tolist(), strict=True) if s > 0}
    said = Submission({"job_id": held.job_id[j], "submitted_s": cell(submitted), **cells})
    runs = state == "running"
    pool = problem.pools.pool[int(held.pool[j])] if runs else ""
    return {"job_id": held.job_id[j], "seq": j + 1, "submission_key": None, "content": said.content(), **cells,
            "state": state, "remaining_work": float(held.remaining_work[j]), "generation": int(runs),
            "want_pool": pool, "want_gpus": int(held.gpus[j]) if runs else 0,
            "attained_gpu_s": float(held.attained_gpu_s[j]), "restarts": int(held.restarts[j]),
            "largest_gpus": int(held.largest_gpus[j]), "received": json.dumps(received, sort_keys=True),
            "submitted_s": submitted, "first_started_s": min(submitted, now) if started else None, "updated_s": now}


def _allocation(problem: Problem, j: int, shift: float) -> dict[str, Any]:
    held, pool, now = problem.jobs, int(problem.jobs.pool[j]), problem.now_s + shift
    return {"job_id": held.job_id[j], "generation": 1, "pool": problem.pools.pool[pool], "gpus": int(held.gpus[j]),
            "gpu_type": problem.gpu_types[int(problem.pools.gpu_type[pool])], "phase": "running", "ordered_s": now,
            "running_s": now, "work_at_start": float(held.remaining_work[j])}
