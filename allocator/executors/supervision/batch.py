"""What executors share that run an allocation as one job of a batch system.

A supervisor in the batch job claims the allocation by keeper.json and touches that file once a
second (batch_supervisor.py). Besides the files of supervisor.py an allocation has

    submitted.json   the batch job was submitted; from then on repeating the start changes nothing
    on.<name>        the allocation has GPUs of the batch job of another allocation, <name>
"""

from __future__ import annotations

import math
import os
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from allocator.errors import UsageError
from allocator.executors.disk import try_lock, write_json
from allocator.executors.errors import NotNow, find_shared
from allocator.executors.ledger import ORDER, STOP, OpenAllocation
from allocator.executors.supervision import supervisor
from allocator.executors.supervision.supervised import (
    GRACE_S,
    SupervisedExecutor,
    build_ending_without_work,
    ending_observation,
)
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import Observation, Order

SUBMITTED = "submitted.json"
GONE_S = 5.0  # after so many seconds a submitted job that is not listed is submitted again
LEASE_S = 15.0  # seconds without a heartbeat after which a supervisor is dead
PATIENCE_S = 60.0  # seconds that a submitted job may wait
LONGER_AT_MOST = 2  # times that the patience is doubled
FRESH_S = 2.0  # seconds for which an answer of the batch system counts as the present
KILL_S = 30.0  # seconds after the grace period until the whole batch job is ended


class ListedJob(Protocol):
    """A batch job, as the batch system lists it."""

    @property
    def job_id(self) -> str:
        """Return the id by which it is cancelled."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits to be started."""
        ...


BatchJob = TypeVar("BatchJob", bound=ListedJob)


class BatchExecutor(SupervisedExecutor, Generic[BatchJob]):
    """The executor of a batch system.

    `grace_s` is the seconds between SIGTERM and SIGKILL. `patience_s` is the seconds that a
    submitted job may wait until it counts as lost. It doubles for a job each time in succession
    that the job was lost before its start, at most twice: a batch system that starts jobs
    slowly would only get slower if each start was given up and asked for again. `lease_s` is the
    seconds without a heartbeat after which a supervisor whose job is not listed as running counts
    as dead.
    """

    def __init__(
        self,
        folder: Path,
        grace_s: float = GRACE_S,
        patience_s: float = PATIENCE_S,
        lease_s: float = LEASE_S,
    ) -> None:
        super().__init__(folder, grace_s)
        self.patience_s = patience_s
        self.lease_s = lease_s
        self._lost_starts: Counter[str] = Counter()  # in succession, by job
        self._looked_s = -math.inf
        self._to_cancel: list[str] = []
        self._suffix = f".{self.ledger.identity().state[:8]}"
        # last heartbeat of each supervisor, and when it was first seen, on the monotonic clock
        self._heartbeats: dict[Path, tuple[int, float]] = {}

    def start(self, order: Order) -> None:
        """Submit the batch job of the allocation.

        An allocation that can never start is observed as failed. Raises StaleOrder. Raises NotNow
        while the last allocation of the job has not ended, or its GPUs are not there.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(order.token)
            if self.ledger.is_new_generation(order.job_id, order.generation):
                self._create(order)
            place = self.ledger.place(order.job_id, order.generation)
            content = read_json(place / ORDER)
            if content is not None:
                self._submit(OpenAllocation(place, content))

    def observe(self) -> Sequence[Observation]:
        """Ask once for all jobs, and return every allocation that runs or has ended."""
        if any(is_to_be_submitted(one) for one in self.ledger.known()):
            with self.ledger.hold_lock():
                for one in self.ledger.known():
                    self._submit(one)
        self._look()
        self._act_on_look()
        known = list(self.ledger.known())
        self._to_cancel = []
        seen = [self._observe_allocation(one) for one in known]
        places = {one.folder for one in known}
        self._heartbeats = {p: mark for p, mark in self._heartbeats.items() if p in places}
        if self._to_cancel:
            self._cancel(self._to_cancel)
        return [one for one in seen if one is not None]

    @abstractmethod
    def _look(self) -> None:
        """Ask the batch system for its nodes and the jobs of this state, and set `_looked_s`."""

    def _act_on_look(self) -> None:
        """Do what follows from the look before anything is observed."""
        return

    @abstractmethod
    def _submit(self, one: OpenAllocation) -> None:
        """Submit the batch job of an allocation if that was not done and can be done now."""

    @abstractmethod
    def _cancel(self, job_ids: Sequence[str]) -> None:
        """End batch jobs; those that have ended are no error."""

    @abstractmethod
    def _list_batch_jobs(self, one: OpenAllocation) -> Sequence[BatchJob]:
        """Return the batch jobs of an allocation, as of the last look."""

    @abstractmethod
    def _observe_started(
        self, one: OpenAllocation, who: Mapping[str, Any], jobs: Sequence[BatchJob]
    ) -> dict[str, Any] | None:
        """Return the end of an allocation whose supervisor has started; None: it goes on."""

    @abstractmethod
    def _observe_unstarted(
        self, one: OpenAllocation, jobs: Sequence[BatchJob]
    ) -> dict[str, Any] | None:
        """Return the end of an allocation whose supervisor has not started; None: none yet."""

    @abstractmethod
    def _choose_shape(self, order: Order) -> list[tuple[str, int]]:
        """Return the nodes to ask for, and the GPUs of each; the name "" stands for any node.

        Raises UsageError if the job can never get its GPUs.
        """

    def _name_batch_job(self, place: Path) -> str:
        return place.name + self._suffix

    def _look_if_old(self) -> None:
        if time.monotonic() - self._looked_s > FRESH_S:
            self._look()

    def _create(self, order: Order) -> None:
        """Write the order down. Raises NotNow."""
        alive = {
            (one.job_id, one.generation): one
            for one in self.ledger.known()
            if not (one.folder / supervisor.EXIT).exists()
        }
        for job_id, generation in alive:
            if job_id == order.job_id:
                raise NotNow(f'job "{job_id}": its allocation {generation} has not ended')
        shared = find_shared(order, lambda one: (one.job_id, one.generation) in alive)
        if shared:
            primary = alive[shared[0].job_id, shared[0].generation]
            if len(shared) > 1 or primary.order["gpus"] != order.gpus:
                raise NotNow(
                    f'job "{order.job_id}": a batch job runs on the GPUs of one job of as many GPUs'
                    " only (max_primaries = 1)"
                )
            holder = primary.order.get("holder") or primary.folder.name
            place = self._create_supervised(order, asked=[], holder=holder)
            write_json(place / f"on.{holder}", {})
            return
        try:
            self._create_supervised(order, asked=self._choose_shape(order), holder=None)
        except UsageError as error:
            ending = build_ending_without_work("failed", str(error))
            self.ledger.create(order, {supervisor.EXIT: ending})

    def _is_holder_ready(self, one: OpenAllocation) -> bool:
        """Return whether the allocation whose GPUs it uses runs; end it if that one has ended."""
        holder = self._holder_folder(one)
        if not holder.is_dir():
            self._end(one, "lost", "the job whose GPUs it was to use has ended")
        return (holder / supervisor.SUPERVISOR).exists()

    @staticmethod
    def _holder_folder(one: OpenAllocation) -> Path:
        return one.folder.parent / str(one.order["holder"])

    def _observe_allocation(self, one: OpenAllocation) -> Observation | None:
        """Return what is known of an allocation; None: it has not started yet."""
        jobs = self._list_batch_jobs(one)
        who = read_json(one.folder / supervisor.SUPERVISOR)  # before its end, which comes later
        end = supervisor.read_ending(one.folder)
        if end is None and who is None:
            end = self._observe_unstarted(one, jobs)
            if end is None:
                return None
            self._lost_starts[one.job_id] += end["phase"] == "lost"
        elif end is None and who is not None:
            self._lost_starts.pop(one.job_id, None)
            end = self._observe_started(one, who, jobs)
            if end is None:
                return self._running_observation(one, self._describe_progress(one))
        self._to_cancel += [job.job_id for job in jobs if job.is_waiting]
        return ending_observation(one.job_id, one.generation, end or {})

    def _start_patience_s(self, job_id: str) -> float:
        """Return the seconds that the next start of a job may take."""
        return self.patience_s * 2.0 ** min(self._lost_starts[job_id], LONGER_AT_MOST)

    def _has_heartbeat(self, place: Path) -> bool:
        """Return whether the supervisor has touched its file in the last `lease_s` seconds."""
        now = time.monotonic()
        touched = (place / supervisor.SUPERVISOR).stat().st_mtime_ns
        known = self._heartbeats.get(place)
        if known is None or known[0] != touched:
            known = self._heartbeats[place] = (touched, now)
        return now - known[1] < self.lease_s

    def _end(self, one: OpenAllocation, phase: str, why: str) -> dict[str, Any] | None:
        """Record the end of an allocation; None: its supervisor lives."""
        lock = try_lock(one.folder / supervisor.LOCK)
        if lock is None:
            return None
        try:
            end = supervisor.read_ending(one.folder)
            if end is None:
                end = supervisor.build_ending(one.folder, dict(one.order), phase, why)
                write_json(one.folder / supervisor.EXIT, end)
            return end
        finally:
            os.close(lock)


def is_to_be_submitted(one: OpenAllocation) -> bool:
    """Return whether an allocation has no batch job and shall run."""
    return not any((one.folder / name).exists() for name in (SUBMITTED, STOP, supervisor.EXIT))
