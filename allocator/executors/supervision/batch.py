"""What executors share that run an allocation as one job of a batch system.

A supervisor in the batch job claims the allocation by keeper.json and touches that file once a
second (supervisor.py). Besides the files of supervisor.py an allocation has

    submitted.json   the batch job was submitted; from then on repeating the start changes nothing
    on.<name>        the allocation has GPUs of the batch job of another allocation, <name>
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator.errors import UsageError
from allocator.executors.allocation import (
    EXIT,
    ORDER,
    STOP,
    SUPERVISOR,
    OpenAllocation,
    build_ending_without_work,
)
from allocator.executors.ledger_executor import (
    GRACE_S,
    ClusterExecutor,
    SupervisedExecutor,
    observe_ending,
)
from allocator.loop.executor import NotNow, Observation, Order, find_shared
from allocator.objects import Json, Record

SUBMITTED = "submitted.json"
GONE_S = 5.0  # after so many seconds a submitted job that is not listed is submitted again
LEASE_S = 15.0  # seconds without a heartbeat after which a supervisor is dead
PATIENCE_S = 60.0  # seconds that a submitted job may wait
LONGER_AT_MOST = 2  # times that the patience is doubled
FRESH_S = 2.0  # seconds for which an answer of the batch system counts as the present
KILL_S = 30.0  # seconds after the grace period until the whole batch job is ended


@dataclass(frozen=True)
class BatchJob:
    """A batch job, as the batch system lists it.

    Parameters
    ----------
    job_id : str
        The id by which it is cancelled.
    state : str
        Its state in the words of the batch system.
    is_waiting, is_live : bool
        It waits to be started; it holds its GPUs.
    nodes : tuple of str
        Where it runs.
    reason : str
        Why it waits, or what became of it.
    name : str
        What the allocation calls it: ids may be given out again.
    comment : str
        Words of the batch system, or for it.
    """

    job_id: str
    state: str
    is_waiting: bool
    is_live: bool
    nodes: tuple[str, ...] = ()
    reason: str = ""
    name: str = ""
    comment: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended for good."""
        return not (self.is_waiting or self.is_live)


class BatchExecutor(SupervisedExecutor, ClusterExecutor):
    """The executor of a batch system.

    `grace_s` is the seconds between SIGTERM and SIGKILL. `patience_s` is the seconds that a
    submitted job may wait until it counts as lost. It doubles for a job each time in succession
    that the job was lost before its start, at most twice: a batch system that starts jobs
    slowly would only get slower if each start was given up and asked for again. `lease_s` is the
    seconds without a heartbeat after which a supervisor whose job is not listed as running counts
    as dead. `unready` says why an allocation is not submitted, and `no_shares` why none has a share
    of a GPU.
    """

    unready: str
    no_shares: str

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
        self._jobs: dict[str, list[BatchJob]] = {}  # of this state, by name, as of the last look
        self._suffix = f".{self.identity().state[:8]}"
        # last heartbeat of each supervisor, and when it was first seen, on the monotonic clock
        self._heartbeats: dict[Path, tuple[int, float]] = {}

    def _observe_all(self) -> Sequence[Observation | None]:
        """Ask once for all jobs, and return what is known of each allocation."""
        if any(is_to_be_submitted(allocation) for allocation in self.ledger.known()):
            with self.ledger.hold_lock():
                for allocation in self.ledger.known():
                    self._begin(allocation)
        self._look()
        self._act_on_look()
        known = list(self.ledger.known())
        self._to_cancel = []
        seen = [self._observe_allocation(allocation) for allocation in known]
        places = {allocation.folder for allocation in known}
        self._heartbeats = {p: mark for p, mark in self._heartbeats.items() if p in places}
        if self._to_cancel:
            self._cancel(self._to_cancel)
        return seen

    @abstractmethod
    def _look(self) -> None:
        """Ask the batch system for its nodes and the jobs of this state, and set `_looked_s`."""

    def _act_on_look(self) -> None:
        """Do what follows from the look before anything is observed."""
        return

    @abstractmethod
    def _cancel(self, job_ids: Sequence[str]) -> None:
        """End batch jobs; those that have ended are no error."""

    @abstractmethod
    def _observe_started(
        self, allocation: OpenAllocation, who: Record, jobs: Sequence[BatchJob]
    ) -> Json | None:
        """Return the end of an allocation whose supervisor has started; None: it goes on."""

    @abstractmethod
    def _give_up(self, allocation: OpenAllocation, jobs: Sequence[BatchJob]) -> Json | None:
        """Cancel batch jobs that do not start; return the end of their allocation if known."""

    @abstractmethod
    def _judge_unstarted(self, allocation: OpenAllocation, job: BatchJob) -> tuple[str, str]:
        """Return phase and detail of an allocation whose batch job ended without a supervisor."""

    def _check_options(self, order: Order) -> None:
        """Raise UsageError if what the owner of a job asks of the batch system makes no sense."""
        return

    @abstractmethod
    def _choose_nodes(self, order: Order) -> list[tuple[str, int]]:
        """Return the nodes to ask for where the order names none, and the GPUs of each.

        The name "" stands for any node. Raises UsageError if the job can never get its GPUs.
        """

    def _name_batch_job(self, allocation: OpenAllocation) -> str:
        return allocation.folder.name + self._suffix

    def _look_if_old(self) -> None:
        if time.monotonic() - self._looked_s > FRESH_S:
            self._look()

    def _create(self, order: Order) -> None:
        """Write the order down. Raises NotNow."""
        alive = self._list_unended(order)
        shared = find_shared(order, lambda other: other.key in alive)
        if shared:
            partner = alive[shared[0].key]
            if len(shared) > 1 or partner.order["gpus"] != order.gpus:
                raise NotNow(
                    f'job "{order.job_id}": a batch job runs on the GPUs of one job of as many GPUs'
                    " only (max_primaries = 1)"
                )
            holder = partner.order["holder"] or partner.folder.name
            sharing = {"holder": holder, "partner": partner.folder.name}
            self._create_supervised(order, {f"on.{holder}": {}}, asked=[], **sharing)
            return
        try:
            if any(part.fraction is not None for part in order.nodes):
                raise UsageError(self.no_shares)
            self._check_options(order)
            asked = [(part.node, part.gpus) for part in order.nodes] or self._choose_nodes(order)
            self._create_supervised(order, asked=asked, holder=None)
        except UsageError as error:
            ending = build_ending_without_work("failed", str(error))
            self.ledger.create(order, {EXIT: ending})

    def _is_partner_ready(self, allocation: OpenAllocation) -> bool:
        """Return whether the allocation whose GPUs it uses has run; end it if that one is gone."""
        partner = self._partner_of(allocation)
        if not partner.folder.is_dir():
            allocation.end("lost", "the job whose GPUs it was to use has ended")
        return partner.has(SUPERVISOR)

    @staticmethod
    def _partner_of(allocation: OpenAllocation) -> OpenAllocation:
        return OpenAllocation(allocation.folder.parent / str(allocation.order["partner"]), {})

    def _observe_allocation(self, allocation: OpenAllocation) -> Observation | None:
        """Return what is known of an allocation; None: it has not started yet."""
        jobs = self._jobs.get(self._name_batch_job(allocation), [])
        who = allocation.read(SUPERVISOR)  # before its end, which comes later
        end = allocation.read_ending()
        if end is None and who is None:
            end = self._observe_unstarted(allocation, jobs)
            if end is None:
                return None
            self._lost_starts[allocation.job_id] += end["phase"] == "lost"
        elif end is None and who is not None:
            self._lost_starts.pop(allocation.job_id, None)
            end = self._observe_started(allocation, who, jobs)
            if end is None:
                return self._running_observation(allocation)
        self._to_cancel += [job.job_id for job in jobs if job.is_waiting]
        return observe_ending(allocation, end or {})

    def _observe_unstarted(
        self, allocation: OpenAllocation, jobs: Sequence[BatchJob]
    ) -> Json | None:
        """Return the end of an allocation whose supervisor has not started; None: none yet."""
        is_submitted = allocation.has(SUBMITTED)
        is_stopping = allocation.has(STOP)
        patience_s = self._start_patience_s(allocation)
        waited_s = allocation.age_s(SUBMITTED if is_submitted else ORDER)
        active = [job for job in jobs if not job.is_over]
        if active:
            is_waiting = any(job.is_waiting for job in active)
            is_late = waited_s > patience_s * (2 - is_waiting)
            if is_late or (is_waiting and is_stopping):
                return self._give_up(allocation, active)
            return None
        if is_stopping and (jobs or not is_submitted or waited_s > GONE_S):
            return allocation.end("stopped", "was told to stop before it was started")
        if jobs:
            return allocation.end(*self._judge_unstarted(allocation, jobs[-1]))
        if not is_submitted and waited_s > patience_s:
            return allocation.end("lost", f"{self.unready} for {patience_s:g} s")
        if is_submitted and waited_s > GONE_S:
            # the batch system crashed before it saved the job: it is submitted again
            (allocation.folder / SUBMITTED).unlink(missing_ok=True)
        return None

    def _start_patience_s(self, allocation: OpenAllocation) -> float:
        """Return the seconds that the next start of a job may take."""
        return self.patience_s * 2.0 ** min(self._lost_starts[allocation.job_id], LONGER_AT_MOST)

    def _has_heartbeat(self, allocation: OpenAllocation) -> bool:
        """Return whether the supervisor has touched its file in the last `lease_s` seconds."""
        now, place = time.monotonic(), allocation.folder
        touched = (place / SUPERVISOR).stat().st_mtime_ns
        known = self._heartbeats.get(place)
        if known is None or known[0] != touched:
            known = self._heartbeats[place] = (touched, now)
        return now - known[1] < self.lease_s


def build_command(module: str, folder: Path) -> str:
    """Return the command of the shell that supervises an allocation in its batch job."""
    return shlex.join([sys.executable, "-m", f"allocator.executors.{module}", str(folder)])


def is_to_be_submitted(allocation: OpenAllocation) -> bool:
    """Return whether an allocation has no batch job and shall run."""
    return not allocation.has(SUBMITTED, STOP, EXIT)
