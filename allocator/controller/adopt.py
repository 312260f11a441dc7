"""Make a queue and the state of an executor agree after one of them was restored or replaced.

    runs, and is a job of the queue          the queue records that it runs
    runs, and is no job of the queue         it is stopped, with a checkpoint
    has ended, and is a job of the queue     the queue records the end
    runs only as far as the queue knows      it counts as lost, unless the state is the queue's own

Tokens and generations of the queue are raised above all that the state has seen, so that its orders
are accepted again. The adoption has four steps, and each is done completely or not at all:

    1. The state is detached from its queue.
    2. The queue changes in one transaction.
    3. The stops are ordered.
    4. The state is attached to the queue.

After an interruption, run the command again.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.controller.belonging import build_state
from allocator.errors import UsageError
from allocator.executors.allocation import STOP, OpenAllocation
from allocator.executors.ledger_executor import LedgerExecutor
from allocator.executors.registry import ExecutorSite, make_executor
from allocator.loop.executor import ENDED, Observation, Phase
from allocator.objects import Record
from allocator.queue import cluster_tables, lease, observations
from allocator.queue.allocations import Allocation, read_held
from allocator.queue.database import identity
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.rows import insert
from allocator.queue.database.schema import jobs
from allocator.queue.errors import LeaseLost
from allocator.queue.holdings import FRESH, NOTHING, Retries, format_parts
from allocator.queue.jobs import purged_names

HOLDER = "allocator queue adopt"
TTL_S = 60.0
LOST = "the queue was restored, or its executor's state replaced"


@dataclass(frozen=True)
class Adopted:
    """The result of an adoption, as names of jobs.

    `running` go on. `stopped` ran, but are no jobs of this queue or not as it knows them. `done`
    ended in the meantime. `lost` do not run, although the queue believed so. `token` is the token
    of the queue from now on.
    """

    token: int
    running: tuple[str, ...]
    stopped: tuple[str, ...]
    done: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass
class _JobRecord:
    """What the state of the executor knows of one job."""

    last: int = 0  # newest generation ever seen
    open: list[OpenAllocation] = field(default_factory=list)
    over: Record = field(default_factory=dict)  # acknowledged.json


def adopt(store: QueueDatabase, executor: LedgerExecutor, now_s: float) -> Adopted:
    """Attach the state of an executor to the queue, and record in the queue what the state knows.

    Parameters
    ----------
    store : QueueDatabase
        The queue.
    executor : LedgerExecutor
        The executor with the state.
    now_s : float
        Time of the adoption in seconds.

    Returns
    -------
    Adopted
        What became of the jobs.

    Raises
    ------
    UsageError
        If a controller leads, or jobs run under the state that the queue had so far.
    """
    state = executor.identity()
    with store.write() as connection:
        queue = identity.queue_id(connection)
        known = identity.state(connection)
        current = lease.read_current(connection)
    if current is not None and current.is_held(now_s):
        raise UsageError(
            f'"{current.holder}" leads the queue: stop it first, or wait until its lease is over'
        )
    if known is not None and known.state != state.state:
        _refuse_running(known)
    ledger = executor.ledger
    with ledger.hold_lock():
        before = ledger.fence.begin_adoption(
            queue, max(state.token, 0 if current is None else current.token) + 1
        )
        token = ledger.fence.identity().token
    is_own = before.queue in ("", queue)
    seen = {observation.key for observation in executor.observe()}
    is_known_to_queue = is_own and (known is None or known.state == state.state)
    records = _read_known_state(executor)
    with store.write() as connection:
        taken = lease.take(connection, HOLDER, TTL_S, now_s, token)
        if taken is None or taken.token != token:
            raise LeaseLost("a controller took the lease meanwhile")
        work = _Adoption(connection, token, is_own, is_known_to_queue, seen, now_s)
        work.write(records)
        identity.remember_state(connection, build_state(state))
        lease.release(connection, taken)
    for allocation in work.stops:
        executor.stop(allocation.job_id, allocation.generation, token)
    with ledger.hold_lock():
        ledger.fence.end_adoption(queue)
    return Adopted(
        token,
        tuple(work.running),
        tuple(allocation.job_id for allocation in work.stops),
        tuple(work.done),
        tuple(work.lost),
    )


def _refuse_running(known: identity.State) -> None:
    """Raise UsageError if jobs run under the earlier state, if that is on this machine."""
    host, _, name = known.place.partition(":")
    folder = Path(name)
    if host != socket.gethostname() or not (folder / "fence.json").exists():
        return
    old = make_executor(known.kind, ExecutorSite(folder, {}))
    if not isinstance(old, LedgerExecutor):
        return
    if old.identity().state != known.state:
        return
    over = {observation.key for observation in old.observe() if observation.phase in ENDED}
    alive = [
        allocation.job_id
        for allocation in old.ledger.known()
        if (allocation.job_id, allocation.generation) not in over
    ]
    if alive:
        raise UsageError(
            f'{len(alive)} jobs of the queue run under executor "{known.kind}" with the state in'
            f' "{folder}", "{alive[0]}" for one: they would be started a second time. Run the queue'
            " with that state, or hold or cancel the jobs there first"
        )


def _read_known_state(executor: LedgerExecutor) -> dict[str, _JobRecord]:
    """Return what the state knows, by job."""
    out: dict[str, _JobRecord] = {}
    for allocation in executor.ledger.known():
        record = out.setdefault(allocation.job_id, _JobRecord())
        record.open.append(allocation)
        record.last = max(record.last, allocation.generation)
    for ended in executor.ledger.all_acknowledged():
        record = out.setdefault(str(ended["job_id"]), _JobRecord())
        record.over, record.last = ended, max(record.last, int(ended["generation"]))
    return out


@dataclass
class _Adoption:
    """The changes of the queue that an adoption makes, in one transaction.

    `is_own`: the state belongs to this queue, as far as it is known. `is_known_to_queue`: the queue
    knew that too, so that an order that the state has not seen was simply not given yet. `seen` has
    the allocations that were observed.
    """

    connection: Connection
    token: int
    is_own: bool
    is_known_to_queue: bool
    seen: set[tuple[str, int]]
    now_s: float
    stops: list[OpenAllocation] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def write(self, known: Mapping[str, _JobRecord]) -> None:
        """Make all changes, by what the state of the executor knows of each job."""
        open_allocations = read_held(self.connection)
        self.gpu_types = cluster_tables.read_gpu_types(self.connection)
        rows = {row.job_id: row for row in self.connection.execute(sa.select(jobs))}
        unknown = {name: record.last for name, record in known.items() if name not in rows}
        purged_names.remember(self.connection, unknown)
        for name, record in known.items():
            if name in rows:
                self._adopt_job(rows[name], record, open_allocations.get(name))
            else:
                self.stops += record.open
        for name, mark in open_allocations.items():
            if name not in known and not self.is_known_to_queue:
                self._record_lost(mark, None)

    def _adopt_job(self, row: Any, record: _JobRecord, mark: Allocation | None) -> None:
        """Adopt one job that both the queue and the state know by name."""
        newest = max(record.open, key=lambda known: known.generation, default=None)
        is_same = self.is_own and _first_generation(record, newest) == row.first_generation
        can_go_on = newest is not None and is_same and self._can_continue(row, newest, mark)
        kept = newest if can_go_on else None
        self.stops += [
            known
            for known in record.open
            if known is not kept
            and not (is_same and known.generation <= row.generation and mark is None)
        ]
        if kept is not None:
            self.running.append(row.job_id)
            if mark is None or mark.generation != kept.generation:
                self._take_over(row, kept, mark)
            return
        over = record.over if is_same else {}
        ended, left = int(over.get("generation", -1)), over.get("left")
        is_news = ended > row.generation or (mark is not None and ended >= mark.generation)
        if is_news and over.get("phase") == "finished" and row.state not in ("done", "cancelled"):
            self._record_finished(row, over, mark)
        elif mark is not None and (not self.is_known_to_queue or record.last >= mark.generation):
            self._record_lost(mark, left if is_news else None)
        elif (
            is_news
            and left is not None
            and mark is None
            and row.state in ("queued", "paused", "held")
        ):
            self._update_job(row.job_id, remaining_work=left)
        self._raise_generation(row, record.last, is_same)

    def _can_continue(self, row: Any, allocation: OpenAllocation, mark: Allocation | None) -> bool:
        """Return whether the allocation can go on as that of the job.

        It has to run the same command on GPUs that the queue has. It has to be alone on them or
        share them with a known job. The queue must not have recorded its end.
        """
        order = allocation.order
        if (
            list(order["command"]) != json.loads(row.command)
            or self.gpu_types.get(order["pool"]) != order["gpu_type"]
            or row.state in ("done", "cancelled", "failed")
            or order["gpus"] < 1
        ):
            return False
        if mark is not None and mark.generation == allocation.generation:
            return True
        return allocation.generation > row.generation and not order.get("beside")

    def _take_over(self, row: Any, kept: OpenAllocation, mark: Allocation | None) -> None:
        """Record that the allocation is ordered, runs or stops, as its order says."""
        if mark is not None:
            self._end_allocation(mark, Phase.LOST, self.now_s)
        order = kept.order
        given = [
            {name: value for name, value in part.items() if value is not None}
            for part in order["nodes"]
        ]
        wanted = {
            "want_pool": order["pool"],
            "want_gpus": order["gpus"],
            "want_host": "",
            "want_nodes": format_parts(given),
        }
        phase = (
            "stopping"
            if (kept.folder / STOP).exists()
            else "running"
            if (kept.job_id, kept.generation) in self.seen
            else "ordered"
        )
        allocation = {
            "job_id": row.job_id,
            "generation": kept.generation,
            "pool": order["pool"],
            "gpus": order["gpus"],
            "held_gpus": order["gpus"],
            "memory_gb": row.want_memory_gb if row.want_pool == order["pool"] else 0.0,
            "gpu_type": order["gpu_type"],
            "phase": phase,
            "ordered_s": self.now_s,
            "work_at_start": order["remaining_work"],
            "running_s": self.now_s if phase == "running" else None,
            "nodes": wanted["want_nodes"],
        }
        insert(self.connection, "allocations", [allocation])
        self._update_job(
            row.job_id,
            **wanted,
            want_generation=0,
            state="running",
            request="hold" if row.state == "held" else row.request,
            generation=kept.generation,
            remaining_work=order["remaining_work"],
            retry_at_s=None,
            finished_s=None,
            first_started_s=self.now_s if row.first_started_s is None else row.first_started_s,
        )

    def _record_finished(self, row: Any, over: Record, mark: Allocation | None) -> None:
        """Record that the job is done."""
        at_s = float(over["at_s"])
        if mark is not None:
            is_last = mark.generation == over["generation"]
            self._end_allocation(mark, Phase.FINISHED if is_last else Phase.LOST, at_s)
        done = {"state": "done", "request": "", "finished_s": at_s, "remaining_work": 0.0}
        self._update_job(row.job_id, **NOTHING, **FRESH, **done)
        self.done.append(row.job_id)

    def _record_lost(self, mark: Allocation, left: float | None) -> None:
        """Record that an open allocation of the queue does not run; no round wants it any more."""
        work = mark.work_done if left is None else mark.work_at_start - left
        self._end_allocation(mark, Phase.LOST, self.now_s, work)
        self._update_job(mark.job_id, **NOTHING)
        self.lost.append(mark.job_id)

    def _end_allocation(
        self, mark: Allocation, phase: Phase, at_s: float, work: float = 0.0
    ) -> None:
        """Record an end as if it was observed, so that nothing of it is forgotten."""
        end = Observation(mark.job_id, mark.generation, at_s, phase, work, LOST)
        observations.record(
            self.connection, self.token, [(end, mark)], Retries(first_s=0.0), history=False
        )

    def _raise_generation(self, row: Any, last: int, is_same: bool) -> None:
        """Raise the generation of the job above all that the state has seen of its name.

        If the state knows another job of that name, nothing of what it knows is used for this job.
        """
        if is_same:
            if last > row.generation:
                self._update_job(row.job_id, generation=last)
            return
        has_run = row.generation >= row.first_generation
        last = max(last, row.generation) + has_run
        self._update_job(row.job_id, generation=last, first_generation=last + (not has_run))

    def _update_job(self, job_id: str, **values: Any) -> None:
        changed = sa.update(jobs).where(jobs.c.job_id == job_id)
        self.connection.execute(changed.values(**values, version=jobs.c.version + 1))


def _first_generation(record: _JobRecord, newest: OpenAllocation | None) -> int:
    """Return the first generation of the job, from the latest that the state knows of it."""
    latest: Record = (
        record.over
        if newest is None or newest.generation <= int(record.over.get("generation", -1))
        else newest.order
    )
    return int(latest.get("first_generation", 1))
