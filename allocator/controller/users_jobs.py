"""Jobs that users submit to the cluster itself and that wait for the allocator, in the queue.

The queue knows such a job by a submission key of its own. It is submitted once, under a name that
no other job of the cluster has. It is cancelled when its user has cancelled it or the cluster
has forgotten it, and a job that was cancelled in the queue is cancelled in the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import Connection

from allocator.controller.reporting.telemetry import Telemetry
from allocator.errors import AllocatorError
from allocator.loop.executor import JobSource
from allocator.objects import Json, Record
from allocator.queue import cluster_tables, lease
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.rows import query, query_of
from allocator.queue.errors import LeaseLost
from allocator.queue.jobs import verbs
from allocator.queue.jobs.submit import SET, build_submission, submit

KEY = "cluster:"  # beginning of the submission keys of these jobs
AGAIN_S = 30.0  # seconds after which a job that was refused is looked at again
_STATES = "SELECT job_id, state FROM jobs WHERE job_id IN ({names})"
_WAITING = (
    "SELECT job_id FROM jobs WHERE state IN ('queued', 'paused', 'held', 'failed')"
    f" AND submission_key >= '{KEY}' AND submission_key < '{KEY[:-1]};'"
)


class UsersJobs:
    """The jobs of users of a cluster, in the queue."""

    def __init__(self, store: QueueDatabase, source: JobSource, log: Telemetry) -> None:
        self._store = store
        self._source = source
        self._log = log
        self._refused: dict[str, tuple[str, float]] = {}  # why, and when, on the monotonic clock

    def take(self, token: int, now_s: float) -> None:
        """Submit new jobs to the queue, and pass cancellations on, both ways. Raises LeaseLost."""
        listed = {job.job_id: job for job in self._source.list_cluster_jobs()}
        with self._store.read() as connection:
            states = dict(query_of(connection, _STATES, list(listed)))
            gone = [
                name
                for (name,) in query(connection, _WAITING)
                if name not in listed or listed[name].is_over
            ]
        if gone:
            with self._store.write() as connection:
                lease.check(connection, token)
                verbs.change_state(connection, "cancel", gone, now_s)
            for name in gone:
                self._log.event("cancelled_in_cluster", job_id=name)
        self._refused = {name: why for name, why in self._refused.items() if name in listed}
        old = time.monotonic() - AGAIN_S
        new = [
            name
            for name, job in listed.items()
            if name not in states
            and not job.is_over
            and self._refused.get(name, ("", -AGAIN_S))[1] <= old
        ]
        if new:
            self._submit(new, token, now_s)
        for name, state in states.items():
            if state == "cancelled" and not listed[name].is_over:
                self._source.cancel_cluster_job(name)

    def _submit(self, new: Sequence[str], token: int, now_s: float) -> None:
        values, refused = self._source.take_cluster_jobs(new)
        for name, why in refused.items():
            self._refuse(name, why)
        # jobs that come after others follow them
        for name in sorted(values, key=lambda name: len(values[name].get("after") or ())):
            try:
                with self._store.write() as connection:
                    lease.check(connection, token)
                    submission = build_submission(_choose_gpu_types(connection, name, values[name]))
                    submit(connection, [submission], now_s)
            except LeaseLost:
                raise
            except AllocatorError as error:
                self._refuse(name, str(error))
            else:
                self._log.event("taken_from_cluster", job_id=name)

    def _refuse(self, name: str, why: str) -> None:
        if self._refused.get(name, ("", 0.0))[0] != why:
            self._log.event("not_taken_from_cluster", job_id=name, detail=why)
        self._refused[name] = (why, time.monotonic())


def _choose_gpu_types(connection: Connection, name: str, values: Record) -> Json:
    """Return the values of a submission, with the GPU types of the pools that it may use."""
    types = cluster_tables.read_gpu_types(connection)
    allowed = {types[pool] for pool in values["pools"] if pool in types}
    if not allowed:
        raise AllocatorError(f"the queue has no pool {' or '.join(values['pools'])}")
    cells = {key: value for key, value in values.items() if key in (*SET, "environment")}
    return {**cells, "gpu_types": sorted(allowed), "key": f"{KEY}{name}"}
