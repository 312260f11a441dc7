"""What every executor does whose state is a ledger: the life of an allocation in its folder.

Its order is written down before anything is asked of machines. Its end is a file in its folder, and
counts from the moment at which that is there. When the queue has recorded the end, the folder goes,
and what is kept of the job is in acknowledged.json: how it ended, for a queue that was set back,
and the work that is safe, from which its next allocation goes on.

Jobs of some executors run under a supervisor, on this machine or on another one that sees the state
(allocation.py, supervisor.py).
"""

from __future__ import annotations

import os
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allocator.clusters.adapter import Capabilities, ClusterUnreachable
from allocator.errors import AllocatorError, UsageError
from allocator.executors import report
from allocator.executors.allocation import (
    ERR,
    EXIT,
    OUT,
    PROGRESS,
    SUPERVISOR,
    OpenAllocation,
    build_unstarted_ending,
)
from allocator.executors.ledger import Ledger
from allocator.io.tables.private_folders import refuse_foreign
from allocator.loop.executor import Identity, NodeStatus, NotNow, Observation, Order, Phase
from allocator.objects import Json, Record

GRACE_S = 60.0


class LedgerExecutor(ABC):
    """An executor whose state is a ledger, which can be compared with what a queue knows.

    `ending` is the name of the file that says how an allocation ended: phase, detail, at_s,
    work_done since its start, fields that it reported, and `safe`, the safe work of the job in all
    (None: unknown), if the executor knows that. `grace_s` is the seconds between the request to
    stop and the kill.
    """

    name: str
    capabilities: Capabilities
    ending = "exit.json"
    unreachable: tuple[type[AllocatorError], ...] = (ClusterUnreachable,)

    def __init__(self, folder: Path, grace_s: float = GRACE_S) -> None:
        self.ledger = Ledger(Path(folder), self.name)
        self.grace_s = grace_s

    def identity(self) -> Identity:
        """Return the identity of the folder, which gets a name if need be. Raises WrongState."""
        with self.ledger.hold_lock():
            return self.ledger.fence.identity()

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue. Raises WrongState."""
        with self.ledger.hold_lock():
            self.ledger.fence.claim(queue)

    @contextmanager
    def _say_not_now(self) -> Iterator[None]:
        """Turn a cluster that does not answer into NotNow: it is asked again later."""
        try:
            yield
        except self.unreachable as error:
            raise NotNow(str(error)) from error

    @contextmanager
    def _admit(self, token: int) -> Iterator[None]:
        """Hold the lock of the ledger for an order with this token. Raises StaleOrder."""
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            yield

    def start(self, order: Order) -> None:
        """Write the order down, and start the allocation.

        An allocation that can never start is observed as failed. Raises StaleOrder. Raises NotNow
        while its GPUs are taken, or the last allocation of the job has not ended.
        """
        with self._say_not_now(), self._admit(order.token):
            if self.ledger.is_new_generation(order.job_id, order.generation):
                self._create(order)
            allocation = self.ledger.read(order.job_id, order.generation)
            if allocation is not None:
                self._begin(allocation)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Write stop.json, from which the end follows. Raises StaleOrder.

        An allocation that was never ordered is observed as stopped.
        """
        with self._admit(token):
            self.ledger.stop(job_id, generation, {self.ending: build_unstarted_ending()})
            allocation = self.ledger.read(job_id, generation)
            if allocation is not None:
                self._begin_to_stop(allocation)

    def observe(self) -> Sequence[Observation]:
        """Return every open allocation that has started or ended.

        Raises NotNow if the cluster does not answer: nothing is known then.
        """
        with self._say_not_now():
            return [observation for observation in self._observe_all() if observation is not None]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget the allocation, but for how it ended and the safe work of its job.

        Raises UsageError if it has not ended.
        """
        with self.ledger.hold_lock():
            before = self.ledger.acknowledged(job_id)
            kept = _read_safe_work(before)
            if (allocation := self.ledger.read(job_id, generation)) is not None:
                end = self._read_ending(allocation)
                if end is None:
                    raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
                kept = _compute_safe_work(before, allocation.order, end)
                # how it ended, for a queue that was set back; `left` is the work that was not done,
                # None for an allocation that was stopped before it was ordered
                left = max(0.0, float(allocation.order["remaining_work"]) - end["work_done"])
                kept |= {
                    "phase": end["phase"],
                    "at_s": end["at_s"],
                    "first_generation": int(allocation.order["first_generation"]),
                    "left": left if int(allocation.order["gpus"]) > 0 else None,
                }
                self._clear(allocation)
            self.ledger.forget(job_id, generation, **kept)

    @abstractmethod
    def _create(self, order: Order) -> None:
        """Make the folder of a new allocation. Raises NotNow."""

    def _begin(self, allocation: OpenAllocation) -> None:
        """Do what an open allocation still needs to run. A second call does no harm."""
        return

    def _begin_to_stop(self, allocation: OpenAllocation) -> None:
        """Begin to stop an open allocation, and return at once. A second call does no harm."""
        return

    def _observe_all(self) -> Sequence[Observation | None]:
        """Return what is known of each open allocation; None: it has not started yet."""
        return [self._observe_allocation(allocation) for allocation in self.ledger.known()]

    @abstractmethod
    def _observe_allocation(self, allocation: OpenAllocation) -> Observation | None:
        """Return what is known of an open allocation; None: it has not started yet."""

    def _read_ending(self, allocation: OpenAllocation) -> Json | None:
        """Return the content of the file `ending` of an allocation; None: it has not ended."""
        return allocation.read(self.ending)

    def _clear(self, allocation: OpenAllocation) -> None:
        """Keep what outlives the folder of an allocation, which goes now."""
        return

    def _find_base(self, order: Order) -> float | None:
        """Return the safe work of a job before this order, None if it is unknown."""
        before = self.ledger.acknowledged(order.job_id)
        return _find_safe_work(before, order.first_generation, order.generation)


class SettingsExecutor(LedgerExecutor):
    """An executor whose jobs read how they shall run in a file of their allocation."""

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Replace settings.json of the allocation. Raises StaleOrder."""
        with self._admit(token):
            self.ledger.write_settings(job_id, generation, settings)


class ClusterExecutor(LedgerExecutor):
    """An executor of a cluster that others use too: pools are the nodes that it observes."""

    @abstractmethod
    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node, once for each of its pools, without the GPUs of others.

        Nodes that take no job have the GPUs that jobs of this state hold. Raises NotNow.
        """

    def capacity(self) -> Mapping[str, int]:
        """Count the GPUs of each pool on the nodes that are observed. Raises NotNow."""
        count = Counter[str]()
        for node in self.observe_nodes():
            count[node.pool] += node.gpus
        return count


def observe_ending(allocation: OpenAllocation, end: Record) -> Observation:
    """Return the observation in the file of an ending."""
    return Observation(
        allocation.job_id,
        allocation.generation,
        float(end["at_s"]),
        Phase(end["phase"]),
        float(end["work_done"]),
        end["detail"],
        end.get("reported", {}),
    )


def _read_safe_work(before: Record) -> Json:
    """Return the safe work in acknowledged.json, and the allocation after which it was known."""
    if before.get("safe") is None:
        return {}
    since = int(before.get("safe_since", before.get("generation", 0)))
    return {"safe": float(before["safe"]), "safe_since": since}


def _find_safe_work(before: Record, first: int, generation: int) -> float | None:
    """Return the safe work before an allocation of a job whose first one is `first`.

    acknowledged.json may be about a forgotten job of the same name. A new job begins without work.
    None: it is unknown.
    """
    kept = _read_safe_work(before)
    if kept and kept["safe_since"] >= first:
        return float(kept["safe"])
    return 0.0 if generation <= first else None


def _compute_safe_work(before: Record, order: Record, end: Record) -> Json:
    """Return what to keep of safe work when an allocation has ended.

    `before` is the content of acknowledged.json so far.
    """
    generation, first = int(order["generation"]), int(order["first_generation"])
    if "safe" not in end or (int(order["gpus"]) < 1 and generation > first):
        return _read_safe_work(before)  # nothing is known, or it was stopped before it was ordered
    known = (_find_safe_work(before, first, generation), end["safe"])
    safe = [s for s in known if s is not None]
    return {"safe": max(safe), "safe_since": generation} if safe else {}


PACKAGES = Path(__file__).resolve().parents[2]  # from which supervisors are started
EMPTY: Record = MappingProxyType({})
KEPT_LOGS = 2000  # most files that are kept under logs/


class SupervisedExecutor(SettingsExecutor):
    """The state folder of an executor, and how allocations begin and end in it.

    `grace_s` is the seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, folder: Path, grace_s: float = GRACE_S) -> None:
        if os.path.lexists(folder):
            # commands of orders in it are run, so a folder that another user made
            # must not be used
            refuse_foreign(Path(os.path.realpath(folder)))
        super().__init__(folder, grace_s)
        (self.ledger.folder / "logs").mkdir(mode=0o700, exist_ok=True)

    def _begin_to_stop(self, allocation: OpenAllocation) -> None:
        """Record the end of an allocation that nothing has begun; else its supervisor obeys."""
        if not self._may_have_begun(allocation):
            with allocation.hold_unless_supervised() as is_free:
                if is_free and not allocation.has(SUPERVISOR, EXIT):
                    allocation.write(EXIT, build_unstarted_ending())

    def _may_have_begun(self, allocation: OpenAllocation) -> bool:
        """Return whether something may run for the allocation before its supervisor does."""
        return False

    def _read_ending(self, allocation: OpenAllocation) -> Json | None:
        return allocation.read_ending()

    def _list_unended(self, order: Order | None = None) -> dict[tuple[str, int], OpenAllocation]:
        """Return the allocations that have not ended.

        Raises NotNow if one of them is of the job of a new order.
        """
        alive = [allocation for allocation in self.ledger.known() if not allocation.has(EXIT)]
        for allocation in alive:
            if order is not None and allocation.job_id == order.job_id:
                raise NotNow(
                    f'job "{order.job_id}": its allocation {allocation.generation} has not ended'
                )
        return {(allocation.job_id, allocation.generation): allocation for allocation in alive}

    def _create_supervised(
        self, order: Order, files: Mapping[str, Record] = EMPTY, **more: Any
    ) -> None:
        """Make the folder of a new allocation whose supervisor has not started."""
        self.ledger.job_folder(order.job_id).mkdir(mode=0o700, exist_ok=True)
        self.ledger.create(
            order,
            {report.SETTINGS_FILE: order.settings, **files},
            grace_s=self.grace_s,
            base=self._find_base(order),
            marker=secrets.token_hex(16),
            **more,
        )

    def _running_observation(
        self, allocation: OpenAllocation, detail: str | None = None
    ) -> Observation:
        """Return the observation of one that runs; without a detail it has its progress."""
        seen = report.read(allocation.folder / PROGRESS)
        if detail is None:
            detail = "" if seen is None else f"{seen.done:g} done, {seen.safe:g} of it safe"
        return Observation(
            allocation.job_id,
            allocation.generation,
            time.time(),
            Phase.RUNNING,
            allocation.read_safe_work(),
            detail,
            {} if seen is None else seen.fields,
        )

    def _clear(self, allocation: OpenAllocation) -> None:
        """Keep the output of the job under logs/."""
        logs = self.ledger.folder / "logs"
        for name in (OUT, ERR):
            with suppress(FileNotFoundError):
                os.replace(allocation.folder / name, logs / f"{allocation.folder.name}.{name}")
        files = list(os.scandir(logs))
        if len(files) > KEPT_LOGS:
            files.sort(key=lambda entry: entry.stat().st_mtime)
            for entry in files[: len(files) - KEPT_LOGS * 9 // 10]:
                os.unlink(entry)
