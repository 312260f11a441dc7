"""The queue from Python: one object, one method per verb, each in a transaction."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from allocator.domain.records import Job as JobRecord
from allocator.domain.snapshot import Snapshot
from allocator.problem import Problem, as_problem
from allocator.queue import cluster_tables, lease, nodes, round_journal, snapshot, tenants
from allocator.queue.database.connection import WAIT_S, QueueDatabase, create_queue, open_queue
from allocator.queue.jobs import verbs
from allocator.queue.jobs.submit import (
    PLACE,
    Submission,
    Submitted,
    build_submission,
    change_jobs,
    submit,
)
from allocator.queue.jobs.verbs import Job

P = ParamSpec("P")
T = TypeVar("T")


class Queue:
    """Open a durable queue of jobs; use it in a with statement, or close it.

    Parameters
    ----------
    queue : str, path or QueueDatabase
        Path (SQLite) or URL (postgresql://...).
    wait_s : float
        Seconds to wait for a locked database.
    clock : callable
        Returns the time of what is done, in unix seconds.

    Raises
    ------
    InvalidInput
        If there is no such queue.
    QueueUnavailable
        If it cannot be reached.

    Examples
    --------
    >>> import allocator, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = allocator.read_snapshot("data/snapshots/demo")
    >>> with allocator.Queue.create(f"{folder.name}/cluster.db", source) as queue:
    ...     submitted = queue.submit(
    ...         job_id="bert-1", model="bert", total_work=90_000, max_gpus=8, command=["train"]
    ...     )
    ...     submitted.new, queue.job("bert-1").state, queue.pools()
    (True, 'queued', {'a100': 8, 'v100': 8})
    >>> folder.cleanup()
    """

    def __init__(
        self,
        queue: str | os.PathLike[str] | QueueDatabase,
        *,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = queue if isinstance(queue, QueueDatabase) else open_queue(queue, wait_s=wait_s)
        self.clock = clock

    @classmethod
    def create(
        cls,
        queue: str | os.PathLike[str],
        source: Problem | Snapshot | None = None,
        *,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> Queue:
        """Make a queue or open an existing one, and load a snapshot into it.

        Parameters
        ----------
        queue : str or path
            Path (SQLite) or URL (postgresql://...).
        source : Problem or Snapshot, optional
            Jobs, pools and speeds; the queue must have no jobs. Its times move so that its now is
            the present time, unless they are unix seconds.
        wait_s, clock
            See the class.

        Returns
        -------
        Queue
            The open queue.

        Raises
        ------
        InvalidInput
            If the source breaks rules; then no queue is made.
        UsageError
            If there is a source and the queue has jobs.
        """
        content = None if source is None else as_problem(source).snapshot
        store, _ = create_queue(queue, wait_s=wait_s)
        try:
            if content is not None:
                with store.write() as connection:
                    snapshot.load_at(connection, content, clock())
        except BaseException:
            store.close()
            raise
        return cls(store, clock=clock)

    def __repr__(self) -> str:
        """Return a text with the name of the queue."""
        return f"Queue({self.store.name!r})"

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the database."""
        self.store.close()

    def _read(
        self, reader: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs
    ) -> T:
        with self.store.read() as connection:
            return reader(connection, *given, **named)

    def _write(
        self, writer: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs
    ) -> T:
        with self.store.write() as connection:
            return writer(connection, *given, **named)

    def submit(self, job: JobRecord | None = None, **values: Any) -> Submitted:
        """Submit one job; it is on disk when this returns.

        A job that is sent again (same key, or same job_id without a key) is not added again.

        Parameters
        ----------
        job : allocator.Job, optional
            The job as a record; its whole work is `total_work`, else `remaining_work`.
        **values
            Columns of workload.csv, and `key`, `command` (list of str), `environment` (mapping of
            str to str), `workdir`.

        Returns
        -------
        Submitted
            The name of the job, and whether it is new.

        Raises
        ------
        InvalidInput
            With every rule that the job breaks.
        UsageError
            For an unknown column.

        Examples
        --------
        >>> import allocator, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> source = allocator.Problem.read("data/snapshots/demo")
        >>> with allocator.Queue.create(f"{folder.name}/cluster.db", source) as queue:
        ...     job = allocator.Job("bert-1", "bert", remaining_work=90_000, max_gpus=8)
        ...     queue.submit(job, command=["train"])
        Submitted(job_id='bert-1', new=True)
        >>> folder.cleanup()
        """
        if job is not None:
            given = job.given()
            values = {"total_work": given.pop("remaining_work"), **given, **values}
        return self.submit_many([values])[0]

    def submit_many(
        self, rows: Iterable[Mapping[str, Any] | Submission], *, file: str = PLACE
    ) -> list[Submitted]:
        """Submit many jobs, all or none.

        Parameters
        ----------
        rows : iterable of mapping
            The arguments of `submit` for each job.
        file : str
            What a fault names as the file.

        Returns
        -------
        list of Submitted
            One for each job.

        Raises
        ------
        InvalidInput
            With every rule that a job breaks; then no job was submitted.
        """
        submissions = [
            row if isinstance(row, Submission) else build_submission(row) for row in rows
        ]
        with self.store.write() as connection:
            return submit(connection, submissions, self.clock(), file)[0]

    def job(self, job_id: str) -> Job:
        """Return one job.

        Parameters
        ----------
        job_id : str
            Name of the job.

        Returns
        -------
        Job
            The job as the queue knows it.

        Raises
        ------
        UsageError
            If there is no such job.
        """
        return self._read(verbs.show, job_id)

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        limit: int | None = None,
        **wanted: str | None,
    ) -> list[Job]:
        """Return jobs in the order of submission.

        Parameters
        ----------
        states : sequence of str
            States of the jobs; "active": those that are not over. Default: all.
        limit : int, optional
            Only the latest so many.
        **wanted : str
            Only jobs with these values of columns: tenant, model, cluster.

        Returns
        -------
        list of Job
            The jobs as the queue knows them.
        """
        return self._read(verbs.list_jobs, states=states, limit=limit, **wanted)

    def counts(self) -> dict[str, int]:
        """Count the jobs by state.

        Returns
        -------
        dict of str to int
            Number of jobs of each state.
        """
        return self._read(verbs.counts)

    def hold(self, *job_ids: str) -> list[Job]:
        """Give jobs nothing until `release`; running ones are stopped with a checkpoint.

        Parameters
        ----------
        *job_ids : str
            Names of jobs; all of them, or none.

        Returns
        -------
        list of Job
            The jobs as they are now.

        Raises
        ------
        UsageError
            If there is no such job, or its state does not allow it.
        """
        return self._act("hold", job_ids)

    def release(self, *job_ids: str) -> list[Job]:
        """Undo `hold`.

        Parameters
        ----------
        *job_ids : str
            Names of jobs; all of them, or none.

        Returns
        -------
        list of Job
            The jobs as they are now.

        Raises
        ------
        UsageError
            If there is no such job, or its state does not allow it.
        """
        return self._act("release", job_ids)

    def cancel(self, *job_ids: str) -> list[Job]:
        """End jobs; running ones are stopped first, and cancelled when their end is known.

        Parameters
        ----------
        *job_ids : str
            Names of jobs; all of them, or none.

        Returns
        -------
        list of Job
            The jobs as they are now.

        Raises
        ------
        UsageError
            If there is no such job, or its state does not allow it.
        """
        return self._act("cancel", job_ids)

    def retry(self, *job_ids: str) -> list[Job]:
        """Bring parked or cancelled jobs back; end the pause of jobs that failed.

        Parameters
        ----------
        *job_ids : str
            Names of jobs; all of them, or none.

        Returns
        -------
        list of Job
            The jobs as they are now.

        Raises
        ------
        UsageError
            If there is no such job, or its state does not allow it.
        """
        return self._act("retry", job_ids)

    def change(self, *job_ids: str, **values: Any) -> list[Job]:
        """Change weight, sizes or deadline of jobs.

        Parameters
        ----------
        *job_ids : str
            Names of jobs; all of them, or none.
        **values
            `weight`, `min_gpus`, `max_gpus`, `requested_gpus`, `sizes`, `deadline_s`; None is the
            default.

        Returns
        -------
        list of Job
            The jobs as they are now.

        Raises
        ------
        UsageError
            If there is no such job, or it is over.
        InvalidInput
            With every rule that a changed job would break.
        """
        return self._write(change_jobs, job_ids, values, self.clock())

    def purge(self, older_s: float) -> int:
        """Forget jobs that ended long ago.

        Parameters
        ----------
        older_s : float
            Seconds since their end, at least.

        Returns
        -------
        int
            How many were forgotten.
        """
        return self._write(verbs.purge, self.clock() - older_s)

    def _act(self, verb: str, job_ids: Sequence[str]) -> list[Job]:
        return self._write(verbs.change_state, verb, job_ids, self.clock())

    def pools(self) -> dict[str, int]:
        """Count the GPUs of each pool.

        Returns
        -------
        dict of str to int
            GPUs by pool.
        """
        return self._read(cluster_tables.gpus)

    def set_gpus(self, changes: Mapping[str, int]) -> dict[str, int]:
        """Change how many GPUs of pools may be used.

        Parameters
        ----------
        changes : mapping of str to int
            GPUs by pool.

        Returns
        -------
        dict of str to int
            GPUs of all pools.

        Raises
        ------
        UsageError
            For an unknown pool.
        """
        return self._write(cluster_tables.set_gpus, changes)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes with what jobs hold of them.

        Returns
        -------
        list of dict
            The columns of nodes.csv, `labels` by level, `used` GPUs, and the names of `jobs`.
        """
        return self._read(nodes.read_nodes)

    def add_nodes(self, *names: str, **values: Any) -> list[str]:
        """Add nodes that are alike.

        Parameters
        ----------
        *names : str
            Their names.
        **values
            `pool`, `gpus`, and perhaps `state`, `cpus`, `host_memory_gb`, and `labels` by level.

        Returns
        -------
        list of str
            The nodes that were not there before.

        Raises
        ------
        UsageError
            If a value is not valid, or a node of that name has other values.
        """
        return self._write(nodes.add_nodes, names, values)

    def change_nodes(self, *names: str, **values: Any) -> list[str]:
        """Change nodes, all or none; drain them with state="drain".

        Parameters
        ----------
        *names : str
            Their names.
        **values
            `state`, `gpus`, `cpus`, `host_memory_gb`, `labels` by level, or `leaves_s` and
            `returns_s`.

        Returns
        -------
        list of str
            The nodes that are different now.

        Raises
        ------
        UsageError
            For an unknown node, or a value that is not valid.
        """
        return self._write(nodes.change_nodes, names, values)

    def remove_nodes(self, *names: str) -> list[str]:
        """Remove nodes, all or none.

        Parameters
        ----------
        *names : str
            Their names.

        Returns
        -------
        list of str
            Their names.

        Raises
        ------
        UsageError
            For an unknown node, or one of which jobs hold GPUs.
        """
        return self._write(nodes.remove_nodes, names)

    def tenants(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tenants and their quotas.

        Returns
        -------
        dict of str to list of dict
            Rows of tenants.csv as `tenants`, and of quotas.csv as `quotas`.
        """
        return self._read(tenants.read_tenants)

    def set_tenant(
        self,
        tenant: str,
        values: Mapping[str, Any],
        quota: Mapping[str, Any] | None = None,
        gpu_type: str = "",
        pool: str = "",
    ) -> tuple[str, ...]:
        """Change a tenant and one of its quotas, or add them.

        Parameters
        ----------
        tenant : str
            Name of the tenant.
        values : mapping of str to object
            Columns of tenants.csv; None is the default.
        quota : mapping of str to object, optional
            Columns of quotas.csv.
        gpu_type, pool : str
            GPUs of the quota, both empty for all.

        Returns
        -------
        tuple of str
            Warnings.

        Raises
        ------
        UsageError
            For a column that does not exist.
        InvalidInput
            If the cluster would break a rule.
        """
        return self._write(
            tenants.set_tenant, self.clock(), tenant, values, quota or {}, gpu_type, pool
        )

    def reservations(self) -> list[dict[str, Any]]:
        """Return the reservations.

        Returns
        -------
        list of dict
            Rows of reservations.csv.
        """
        return self._read(cluster_tables.read_stored_rows, "reservations.csv")

    def reserve(self, name: str, **values: Any) -> tuple[str, ...]:
        """Keep GPUs from a time on, or change what a reservation keeps.

        Parameters
        ----------
        name : str
            Name of the reservation.
        **values
            `pool`, `gpus`, `at_s`, and perhaps `until_s`, and `job_id` or `tenant`.

        Returns
        -------
        tuple of str
            Warnings.

        Raises
        ------
        UsageError
            For a column or a job that does not exist.
        InvalidInput
            If the cluster would break a rule.
        """
        return self._write(tenants.reserve, self.clock(), name, values)

    def cancel_reservation(self, name: str) -> None:
        """Forget a reservation.

        Parameters
        ----------
        name : str
            Name of the reservation.

        Raises
        ------
        UsageError
            If there is none of that name.
        """
        self._write(tenants.cancel_reservation, name)

    def configure(self, **settings: Any) -> dict[str, Any]:
        """Change settings of config.toml.

        Parameters
        ----------
        **settings
            Settings by name; None: back to the default.

        Returns
        -------
        dict
            All settings that are not the default.

        Raises
        ------
        UsageError
            For an unknown setting.
        """
        return self._write(cluster_tables.set_config, settings)

    def snapshot(self, now_s: float | None = None) -> Snapshot:
        """Return the state of now as a snapshot, for `solve` and `explain`.

        Parameters
        ----------
        now_s : float, optional
            Another time, in unix seconds, as far as time alone matters.

        Returns
        -------
        Snapshot
            The tables of the round.
        """
        return self._read(snapshot.build_snapshot, self.clock() if now_s is None else now_s)

    def rounds(self, limit: int | None = None) -> list[round_journal.JournalRound]:
        """Return the journal of rounds, the oldest first, without snapshots and plans.

        Parameters
        ----------
        limit : int, optional
            Only the latest so many.

        Returns
        -------
        list of JournalRound
            The rounds.
        """
        return self._read(round_journal.history, limit=limit)

    def lease(self) -> lease.Lease | None:
        """Return which controller leads.

        Returns
        -------
        Lease or None
            The lease; None: no controller ever took it.
        """
        return self._read(lease.read_current)
