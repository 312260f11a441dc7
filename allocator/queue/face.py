"""The queue from Python: one object, one method per verb, each a transaction of its own.

queue = allocator.Queue("cluster.db") queue.submit(job_id="bert-1", model="bert",
total_work=90_000, max_gpus=8, command=["python", "train.py"]) queue.jobs(states=["active"])
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from allocator.domain.snapshot import Snapshot
from allocator.domain.validate import validate
from allocator.queue import cluster, jobs, lease, snapshot, wants
from allocator.queue.engine import WAIT_S, Store, create_queue, open_queue
from allocator.queue.jobs import Job
from allocator.queue.submit import PLACE, Submission, Submitted, of_values, submit


class Queue:
    """An open queue. queue: a path (SQLite) or a URL (postgresql://...); use it as a context, or
    close it.

    clock: unix seconds; the time of what is done. store: for what has no method here, see
    allocator/queue. Raises InvalidInput if there is no such queue, QueueUnavailable where it cannot
    be reached.
    """

    def __init__(
        self,
        queue: str | os.PathLike[str] | Store,
        *,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = queue if isinstance(queue, Store) else open_queue(queue, wait_s=wait_s)
        self.clock = clock

    @classmethod
    def create(
        cls,
        queue: str | os.PathLike[str],
        source: Snapshot | None = None,
        *,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> Queue:
        """Make a queue or upgrade the one there is, and fill it with a snapshot, if one is given
        and it has no jobs.

        The snapshot's times move so that its now is now, unless it counts unix seconds.
        """
        if source is not None:
            validate(source)  # a source with faults leaves no queue behind
        store, _ = create_queue(queue, wait_s=wait_s)
        try:
            if source is not None:
                with store.write() as connection:
                    snapshot.load_at(connection, source, clock())
        except BaseException:
            store.close()
            raise
        return cls(store, clock=clock)

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self.store.close()

    def submit(self, **job: Any) -> Submitted:
        """Submit one job: columns of workload.csv, and key, command (list), environment (mapping),
        workdir.

        It is on disk when this returns. Sent again (same key, or same job_id without a key) it is
        found, not doubled. Raises InvalidInput with every rule it breaks.
        """
        return self.submit_many([job])[0]

    def submit_many(
        self, rows: Iterable[Mapping[str, Any] | Submission], *, file: str = PLACE
    ) -> list[Submitted]:
        """Submit many jobs, all or none."""
        submissions = [row if isinstance(row, Submission) else of_values(row) for row in rows]
        with self.store.write() as connection:
            return submit(connection, submissions, self.clock(), file)[0]

    def job(self, job_id: str) -> Job:
        """One job. Raises UsageError if there is no such job."""
        with self.store.read() as connection:
            return jobs.show(connection, job_id)

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        tenant: str | None = None,
        model: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Jobs in the order of submission; states: of them, "active" = not over; limit: the
        latest so many.
        """
        with self.store.read() as connection:
            return jobs.listed(connection, states=states, tenant=tenant, model=model, limit=limit)

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        with self.store.read() as connection:
            return jobs.counts(connection)

    def hold(self, *job_ids: str) -> list[Job]:
        """Give jobs nothing until release; running ones are stopped with a checkpoint. All or
        none.
        """
        return self._act("hold", job_ids)

    def release(self, *job_ids: str) -> list[Job]:
        """Undo hold."""
        return self._act("release", job_ids)

    def cancel(self, *job_ids: str) -> list[Job]:
        """End jobs; running ones are stopped first, and cancelled when their end is known."""
        return self._act("cancel", job_ids)

    def retry(self, *job_ids: str) -> list[Job]:
        """Bring parked or cancelled jobs back; end the pause of jobs that failed."""
        return self._act("retry", job_ids)

    def purge(self, older_s: float) -> int:
        """Forget jobs that ended longer ago than this many seconds; returns how many."""
        with self.store.write() as connection:
            return jobs.purge(connection, self.clock() - older_s)

    def _act(self, verb: str, job_ids: Sequence[str]) -> list[Job]:
        with self.store.write() as connection:
            return jobs.act(connection, verb, job_ids, self.clock())

    def pools(self) -> dict[str, int]:
        """GPUs of each pool."""
        with self.store.read() as connection:
            return cluster.gpus(connection)

    def set_gpus(self, changes: Mapping[str, int]) -> dict[str, int]:
        """Change how many GPUs of pools may be used."""
        with self.store.write() as connection:
            return cluster.set_gpus(connection, changes)

    def configure(self, **settings: Any) -> dict[str, Any]:
        """Change settings of config.toml (None: back to the default); returns all that are set."""
        with self.store.write() as connection:
            return cluster.set_config(connection, settings)

    def snapshot(self, now_s: float | None = None) -> Snapshot:
        """The state of now (or of now_s, as far as time alone matters) as a snapshot for
        `solve`.
        """
        with self.store.read() as connection:
            return snapshot.build(connection, self.clock() if now_s is None else now_s)

    def rounds(self, limit: int | None = None) -> list[wants.Round]:
        """The journal, oldest first, without snapshots and plans."""
        with self.store.read() as connection:
            return wants.history(connection, limit=limit)

    def lease(self) -> lease.Lease | None:
        """Who is in charge."""
        with self.store.read() as connection:
            return lease.current(connection)
