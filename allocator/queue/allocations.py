"""What jobs hold: starts and stops that a controller orders, and what executors observe.

    ordered -> running -> stopping -> stopped        every phase may also end in finished, failed, lost

GPUs count as used until the end of an allocation is recorded, and a start is ordered only beside those: so a pool is
never promised twice, in whatever order things happen. Each call is one transaction's work, guarded by the fencing
token, and may be repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.queue import cluster, lease
from allocator.queue.bulk import many
from allocator.queue.jobs import PART, Job, job_of
from allocator.queue.schema import OPEN, allocations, jobs, observations
from allocator.queue.states import Retries, ended

ENDED = ("stopped", "finished", "failed", "lost")
RETRIES = Retries()
# statements of every look, built once
_JOINED = jobs.c.job_id == allocations.c.job_id
_OPEN_ONES = sa.select(allocations).join(jobs, _JOINED).where(
    allocations.c.phase.in_(sa.bindparam("phases", expanding=True))).order_by(jobs.c.seq)
_ORDERED = sa.select(allocations, jobs.c.command, jobs.c.environment, jobs.c.workdir).join(
    jobs, _JOINED).where(allocations.c.phase == "ordered").order_by(jobs.c.seq)
_UNWANTED = sa.select(allocations.c.job_id, allocations.c.generation, jobs.c.want_pool, jobs.c.request).join(
    jobs, _JOINED).where(allocations.c.phase.in_(("ordered", "running")), sa.or_(
        jobs.c.request != "", jobs.c.want_pool != allocations.c.pool, jobs.c.want_gpus != allocations.c.gpus))
_WANTING = sa.select(*(jobs.c[n] for n in ("job_id", "generation", "version", "want_pool", "want_gpus",
                                           "remaining_work"))).where(
    jobs.c.state.in_(("queued", "paused")), jobs.c.want_gpus > 0,
    sa.or_(jobs.c.retry_at_s.is_(None), jobs.c.retry_at_s <= sa.bindparam("now_s"))).order_by(jobs.c.seq)


@dataclass(frozen=True)
class Allocation:
    """GPUs given to a job: one row of the table, known by (job_id, generation)."""

    job_id: str
    generation: int
    pool: str
    gpus: int
    gpu_type: str
    phase: str
    ordered_s: float
    running_s: float | None
    stop_ordered_s: float | None
    ended_s: float | None
    observed_s: float | None
    work_at_start: float
    work_done: float
    detail: str


@dataclass(frozen=True)
class Start:
    """An ordered allocation with all an executor needs to start it."""

    allocation: Allocation
    command: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str


@dataclass(frozen=True)
class Change:
    """What an observation changed. phase: of the allocation now; state: of the job now; work: done since what was
    known before."""

    job_id: str
    generation: int
    phase: str
    state: str
    work: float


class Seen(Protocol):
    """What an executor says of an allocation (allocator.control.executor.Observation is one)."""

    @property
    def job_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def at_s(self) -> float: ...
    @property
    def phase(self) -> str: ...
    @property
    def work_done(self) -> float: ...
    @property
    def detail(self) -> str: ...


def open_ones(connection: Connection, phases: Sequence[str] = OPEN) -> list[Allocation]:
    """Allocations in these phases, by submission of their jobs."""
    rows = connection.execute(_OPEN_ONES, {"phases": list(phases)}).all()
    return [Allocation(**row._mapping) for row in rows]


def starts(connection: Connection) -> list[Start]:
    """Every allocation that is ordered and not yet seen running, to be given to the executor (again)."""
    out = []
    for row in connection.execute(_ORDERED).all():
        values = dict(row._mapping)
        command, environment, workdir = (values.pop(name) for name in ("command", "environment", "workdir"))
        out.append(Start(Allocation(**values), tuple(json.loads(command)), json.loads(environment), workdir))
    return out


def order_stops(connection: Connection, token: int, now_s: float) -> list[Allocation]:
    """Order the stop of every allocation that its job shall not hold (any more); returns those that are stopping now,
    to be given to the executor (again), the earlier ones included.

    An allocation that is ordered but was never seen running is stopped the same way: its start may be under way.
    Raises LeaseLost.
    """
    lease.check(connection, token)
    rows = connection.execute(_UNWANTED).all()
    many(connection, "UPDATE allocations SET phase = 'stopping', stop_ordered_s = ? "
         "WHERE job_id = ? AND generation = ? AND phase IN ('ordered', 'running')",
         [(now_s, row.job_id, row.generation) for row in rows])
    many(connection, "UPDATE jobs SET resizes = resizes + 1, version = version + 1 WHERE job_id = ?",
         [(row.job_id,) for row in rows if row.want_pool and not row.request])
    return open_ones(connection, ("stopping",))


def order_starts(connection: Connection, token: int, now_s: float,
                 capacity: Mapping[str, int] | None = None) -> list[Start]:
    """Order the start of every job that wants GPUs, holds none, and fits beside all that is not known to have ended, in
    the order of submission; returns every start that is ordered now, to be given to the executor (again).

    capacity: GPUs by pool that are there right now, where that is less than the queue says. Raises LeaseLost.
    """
    lease.check(connection, token)
    rows = connection.execute(_WANTING, {"now_s": now_s}).all()
    if rows:
        room = free(connection, capacity)
        types = cluster.types(connection)
        fitting = []
        for job in rows:
            if job.want_gpus <= room.get(job.want_pool, 0):
                room[job.want_pool] -= job.want_gpus
                fitting.append(job)
        _order(connection, fitting, types, now_s)
    return starts(connection)


def free(connection: Connection, capacity: Mapping[str, int] | None = None) -> dict[str, int]:
    """GPUs of each pool that nothing holds; less than zero where machines went."""
    used = cluster.used(connection)
    return {pool: min(number, (capacity or {}).get(pool, number)) - used[pool]
            for pool, number in cluster.gpus(connection).items()}


def _order(connection: Connection, found: Sequence[Any], types: Mapping[str, str], now_s: float) -> None:
    """Open the next allocation of each job, with what it wants."""
    many(connection, "UPDATE jobs SET state = 'running', generation = generation + 1, retry_at_s = NULL, "
         "version = version + 1, updated_s = ? WHERE job_id = ? AND version = ?",
         [(now_s, job.job_id, job.version) for job in found])
    many(connection, "INSERT INTO allocations (job_id, generation, pool, gpus, gpu_type, phase, ordered_s, "
         "work_at_start) VALUES (?, ?, ?, ?, ?, 'ordered', ?, ?)",
         [(job.job_id, job.generation + 1, job.want_pool, job.want_gpus, types[job.want_pool], now_s,
           job.remaining_work) for job in found])


class Mark(NamedTuple):
    """What is known of an open allocation: rows, not objects, because they are many and looked at often."""

    job_id: str
    generation: int
    phase: str
    running_s: float | None
    observed_s: float | None
    work_done: float
    work_at_start: float
    detail: str


_MARKS = sa.select(*(allocations.c[name] for name in Mark._fields)).where(allocations.c.phase.in_(OPEN))


def marks(connection: Connection, names: Collection[str] | None = None) -> dict[str, Mark]:
    """Every open allocation, by job; names: of these jobs only (all the same where they are many)."""
    few = names is not None and len(names) <= PART
    rows = connection.execute(_MARKS.where(allocations.c.job_id.in_(names)) if few and names is not None else _MARKS)
    return {mark.job_id: mark for mark in map(Mark._make, rows.all())}


def observe(connection: Connection, token: int, seen: Iterable[Seen], retries: Retries = RETRIES,
            known: Mapping[str, Mark] | None = None) -> list[Change]:
    """Record what an executor observed; returns what changed, by job. What is already known, or of an
    allocation that has ended or never was, changes nothing.

    The work of an allocation is the greatest ever seen, at most what was left at its start. An end is final.
    known: `marks` of this transaction, if they were read already. Raises LeaseLost.
    """
    lease.check(connection, token)
    if known is None:
        known = marks(connection)
    moving: set[str] = set()
    given: list[tuple[Seen, Mark]] = []
    for one in seen:
        mark = known.get(one.job_id)
        if mark is not None and mark.generation == one.generation:
            given.append((one, mark))
            if mark.running_s is None or one.phase != "running":
                moving.add(one.job_id)
    quiet = _progress(connection, [pair for pair in given if pair[0].job_id not in moving])
    return quiet + _moves(connection, [one for one, _ in given if one.job_id in moving], moving, retries)


def _progress(connection: Connection, given: Sequence[tuple[Seen, Mark]]) -> list[Change]:
    """Record allocations that go on running; of several observations of one only the last that says something new."""
    news: dict[str, tuple[float, float, Mark]] = {}     # work, time
    for one, mark in given:
        before = news.get(one.job_id)
        work_before, at_before = (mark.work_done, mark.observed_s) if before is None else before[:2]
        said, at_s = one.work_done, one.at_s
        work = min(max(0.0 if math.isnan(said) else float(said), work_before), mark.work_at_start)
        if at_before is None or at_s > at_before or work > work_before:
            news[one.job_id] = work, at_s if at_before is None else max(at_s, at_before), mark
    found = news.values()
    many(connection, "UPDATE allocations SET work_done = ?, observed_s = ? WHERE job_id = ? AND generation = ?",
         [(work, at_s, mark.job_id, mark.generation) for work, at_s, mark in found])
    many(connection, "UPDATE jobs SET remaining_work = ?, version = version + 1, updated_s = ? WHERE job_id = ?",
         [(mark.work_at_start - work, at_s, mark.job_id) for work, at_s, mark in found])
    many(connection, "INSERT INTO observations (job_id, generation, at_s, work_done, kind) "
         "VALUES (?, ?, ?, ?, 'running')", [(mark.job_id, mark.generation, at_s, work) for work, at_s, mark in found])
    return [Change(mark.job_id, mark.generation, mark.phase, "running", work - mark.work_done)
            for work, _, mark in found]


def _moves(connection: Connection, given: Sequence[Seen], names: set[str], retries: Retries) -> list[Change]:
    """Record first sights and ends, and what was seen of the same allocations before and after."""
    before = _open(connection, names)
    now = dict(before)
    told: dict[tuple[str, str], Seen] = {}
    for one in given:
        pair = now[one.job_id]
        if pair[1].phase in ENDED:
            continue
        moved = _moved(one, *pair, retries)
        if moved is not None:
            now[one.job_id] = moved
            told[one.job_id, str(one.phase)] = one
    changed = {name: pair for name, pair in now.items() if pair is not before[name]}
    _write(connection, changed, told)
    return [Change(name, allocation.generation, allocation.phase, job.state,
                   allocation.work_done - before[name][1].work_done) for name, (job, allocation) in changed.items()]


def _open(connection: Connection, names: set[str]) -> dict[str, tuple[Job, Allocation]]:
    """The job and its open allocation, of these names that have one."""
    found: dict[str, tuple[Job, Allocation]] = {}
    ordered = sorted(names)
    for part in range(0, len(ordered), PART):
        chunk = ordered[part:part + PART]
        held = connection.execute(sa.select(allocations).where(
            allocations.c.job_id.in_(chunk), allocations.c.phase.in_(OPEN))).all()
        by_id = {row.job_id: job_of(row) for row in connection.execute(sa.select(jobs).where(
            jobs.c.job_id.in_([row.job_id for row in held])))}
        found |= {row.job_id: (by_id[row.job_id], Allocation(**row._mapping)) for row in held}
    return found


def _moved(one: Seen, job: Job, held: Allocation, retries: Retries) -> tuple[Job, Allocation] | None:
    """The job and its allocation after an observation; None: it says nothing new."""
    work, phase, at_s = _work(one, held), str(one.phase), one.at_s
    if phase == "running" and held.running_s is not None:
        if held.observed_s is not None and at_s <= held.observed_s and work <= held.work_done:
            return None
        held = replace(held, work_done=work, observed_s=max(at_s, held.observed_s or at_s))
        return replace(job, remaining_work=held.work_at_start - work, updated_s=at_s), held
    began = _began(one, held, work)
    if held.running_s is None and began is not None:
        first = job.first_started_s is None
        job = replace(job, first_started_s=began if first else job.first_started_s,
                      restarts=job.restarts + (0 if first else 1), largest_gpus=max(job.largest_gpus, held.gpus))
    held = replace(held, work_done=work, observed_s=at_s, detail=one.detail, running_s=began,
                   phase=held.phase if phase == "running" and held.phase == "stopping" else phase)
    job = replace(job, remaining_work=held.work_at_start - work, updated_s=at_s)
    if phase == "running":
        return job, held
    end = at_s if began is None else max(at_s, began)
    job = _had(job, held, 0.0 if began is None else end - began)
    return replace(job, **ended(job, phase, end, work > 0, one.detail, retries)), replace(held, ended_s=end)


def _work(one: Seen, held: Allocation) -> float:
    """Work done since the start, the greatest ever seen; what is no number counts as nothing."""
    if one.phase == "finished":
        return held.work_at_start
    said = one.work_done if one.work_done == one.work_done else 0.0
    return min(max(float(said), held.work_done), held.work_at_start)


def _began(one: Seen, held: Allocation, work: float) -> float | None:
    """When it began to run; None: it never did, as far as anybody knows. An end that comes before any sight of it
    running says that it ran since it was ordered."""
    if held.running_s is not None:
        return held.running_s
    if one.phase == "running":
        return one.at_s
    return None if one.phase in ("stopped", "lost") and work <= 0 else min(held.ordered_s, one.at_s)


def _had(job: Job, held: Allocation, seconds: float) -> Job:
    """The job with what it has had so far, these seconds more."""
    if seconds <= 0:
        return job
    received = {**job.received, held.gpu_type: job.received.get(held.gpu_type, 0.0) + seconds}
    return replace(job, attained_gpu_s=job.attained_gpu_s + seconds * held.gpus, received=received)


_OF_ALLOCATION = ("phase", "running_s", "ended_s", "observed_s", "work_done", "detail")
_OF_JOB = ("state", "request", "remaining_work", "attained_gpu_s", "restarts", "largest_gpus", "first_started_s",
           "finished_s", "failures", "retry_at_s", "park_reason", "want_pool", "want_gpus", "updated_s")


def _write(connection: Connection, changed: Mapping[str, tuple[Job, Allocation]],
           told: Mapping[tuple[str, str], Seen]) -> None:
    """All changes at once: two statements, and one for the observations, the last of each kind by job."""
    many(connection, f"UPDATE allocations SET {_set(_OF_ALLOCATION)} WHERE job_id = ? AND generation = ?",
         [(*(getattr(held, n) for n in _OF_ALLOCATION), name, held.generation)
          for name, (_, held) in changed.items()])
    many(connection, f"UPDATE jobs SET {_set(_OF_JOB)}, received = ?, version = version + 1 WHERE job_id = ?",
         [(*(getattr(job, n) for n in _OF_JOB), json.dumps(job.received, sort_keys=True), name)
          for name, (job, _) in changed.items()])
    many(connection, "INSERT INTO observations (job_id, generation, at_s, kind, detail, work_done) "
         "VALUES (?, ?, ?, ?, ?, ?)",
         [(one.job_id, one.generation, one.at_s, kind, one.detail, _work(one, changed[one.job_id][1]))
          for (_, kind), one in told.items()])


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


def prune(connection: Connection, token: int, keep: int) -> int:
    """Drop all but the last `keep` observations of each allocation, and all of jobs that are over. Returns how many.
    Raises LeaseLost."""
    lease.check(connection, token)
    ranked = sa.select(observations.c.id, sa.func.row_number().over(
        partition_by=(observations.c.job_id, observations.c.generation), order_by=observations.c.id.desc(),
    ).label("place")).subquery()
    over = sa.select(jobs.c.job_id).where(jobs.c.state.in_(("done", "cancelled")))
    done = connection.execute(sa.delete(observations).where(sa.or_(
        observations.c.id.in_(sa.select(ranked.c.id).where(ranked.c.place > keep)),
        observations.c.job_id.in_(over))))
    return int(done.rowcount)
