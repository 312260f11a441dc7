"""The port of executors, which carry plans out on machines, and the values that cross it.

An allocation is known by (job_id, generation). The generation is the number of the allocation; each
of a job is larger than the one before. Every order carries the fencing token of the controller that
gave it. An executor refuses orders whose token or generation is older than one that it has seen. So
a controller that was paused cannot act on what it decided long ago.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from allocator.clusters.adapter import Capabilities
from allocator.errors import AllocatorError, UsageError

JOBS_PER_GPU = "ALLOCATOR_JOBS_PER_GPU"
# variables that say how a job shall run; they may change while it runs
SETTINGS = (
    "ALLOCATOR_BATCH_SIZE",
    "ALLOCATOR_ACCUMULATION",
    "ALLOCATOR_VARIANT",
    "ALLOCATOR_MODE",
    JOBS_PER_GPU,
)


# what a job may report with its progress (executors/report.py)
REPORTED = ("noise_scale", "small_batch", "small_norm2", "batch", "norm2", "loss", "loss_at")


class Phase(StrEnum):
    """What became of an allocation; the last four values end it for good.

    Examples
    --------
    >>> Phase.LOST in ENDED, Phase.RUNNING in ENDED
    (True, False)
    """

    RUNNING = "running"
    STOPPED = "stopped"  # it was ordered to stop, and wrote a checkpoint
    FINISHED = "finished"  # the job has done all its work
    FAILED = "failed"  # it ended by itself without having done its work
    LOST = "lost"  # its machine is gone, or its end is unknown


ENDED = frozenset((Phase.STOPPED, Phase.FINISHED, Phase.FAILED, Phase.LOST))


class StaleOrder(AllocatorError):
    """The order is out of date.

    An order with a newer token or generation was seen, or the end of the allocation was
    acknowledged. The controller that gave the order no longer leads, or knows less than before.
    """


class WrongState(UsageError):
    """The queue and the durable state of an executor do not match or contradict each other.

    Nothing may be started or stopped until a user has decided which of them is right.
    """


class OfAllocation:
    """What is about one allocation."""

    job_id: str
    generation: int

    @property
    def key(self) -> tuple[str, int]:
        """The job and the generation, by which the allocation is known."""
        return self.job_id, self.generation


@dataclass(frozen=True)
class ColocatedAllocation(OfAllocation):
    """The allocation on whose GPUs another one starts.

    `needed`: the start has to wait for this allocation (NotNow). Otherwise a start without it gets
    its own GPUs.
    """

    job_id: str
    generation: int
    needed: bool = True


@dataclass(frozen=True)
class NodePart:
    """GPUs of one node that an allocation has.

    Parameters
    ----------
    node : str
        Name of the node.
    gpus : int
        Its GPUs that the allocation has; 1 for a share of a GPU.
    gpu : int, optional
        Number of the shared GPU in the node. Allocations with the same node and number have shares
        of one GPU. None: whole GPUs, whichever are free.
    fraction : float, optional
        Share of that GPU, above 0 and at most 1. None: whole GPUs.

    Examples
    --------
    >>> NodePart("n1", 4)
    NodePart(node='n1', gpus=4, gpu=None, fraction=None)
    >>> str(NodePart("n1", 4)), str(NodePart("n1", 1, gpu=3, fraction=0.5))
    ('n1:4', 'n1:0.5@3')
    """

    node: str
    gpus: int
    gpu: int | None = None
    fraction: float | None = None

    def __str__(self) -> str:
        """Return NODE:GPUS, or NODE:FRACTION@GPU, as plan.csv has it."""
        share = self.gpus if self.fraction is None else f"{self.fraction:g}@{self.gpu}"
        return f"{self.node}:{share}"


@dataclass(frozen=True)
class Order(OfAllocation):
    """An order to start a job on GPUs.

    Parameters
    ----------
    job_id : str
        The job.
    generation : int
        Number of this allocation of the job.
    token : int
        Fencing token of the controller that orders it.
    pool, gpu_type : str
        Where it runs.
    gpus : int
        GPUs that it gets.
    remaining_work : float
        Work left at its last checkpoint, in the job's unit.
    command : tuple of str
        Command and arguments; empty where the executor knows how to run the job.
    environment : mapping of str to str
        Variables of the job.
    workdir : str
        Folder of the job.
    beside : tuple of ColocatedAllocation
        Allocations on whose GPUs it runs; if they have fewer GPUs together, it gets the others for
        itself. Empty: it has its own GPUs.
    first_generation : int
        First allocation of this job; earlier ones were of another job of the same name.
    nodes : tuple of NodePart
        The nodes that give its GPUs; empty where the pool has no nodes.

    Examples
    --------
    >>> order = Order("bert-1", 1, 7, "a100", 4, "A100", 90_000.0, ("python", "train.py"))
    >>> order.gpus, order.beside
    (4, ())
    """

    job_id: str
    generation: int
    token: int
    pool: str
    gpus: int
    gpu_type: str
    remaining_work: float
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    beside: tuple[ColocatedAllocation, ...] = ()
    first_generation: int = 1
    nodes: tuple[NodePart, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """The variables with which the job starts, and which may change while it runs."""
        return {name: self.environment[name] for name in SETTINGS if name in self.environment}


@dataclass(frozen=True)
class Observation(OfAllocation):
    """An observation: what became of an allocation.

    Parameters
    ----------
    job_id : str
        The job.
    generation : int
        Number of the allocation of the job.
    at_s : float
        Time of the observation, in unix seconds.
    phase : Phase
        What became of it.
    work_done : float
        Work since this allocation started that a checkpoint holds or a running job reports. The
        greatest one of an allocation counts, so that none counts twice.
    detail : str
        A message for users.
    reported : mapping of str to float
        The fields of REPORTED that a running job reports with its progress.

    Examples
    --------
    >>> Observation("bert-1", 1, 1.7e9, Phase.RUNNING, 1200.0).phase.value
    'running'
    """

    job_id: str
    generation: int
    at_s: float
    phase: Phase
    work_done: float
    detail: str = ""
    reported: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Identity:
    """Which durable state an executor has.

    `kind` is the name of the executor, and `state` the random name of its state. `queue` is the id
    of the queue that the state belongs to, "" if it has none yet. `token` is the highest fencing
    token that the state has seen, -1 if none. `place` says where the state is. `is_adopting`:
    another queue has begun to adopt the state and was interrupted.
    """

    kind: str
    state: str
    queue: str
    token: int
    place: str
    is_adopting: bool = False


@runtime_checkable
class Durable(Protocol):
    """An executor whose state outlives it, so that a queue has to know which state is its own."""

    def identity(self) -> Identity:
        """Return the identity of the state. Raises WrongState if it is another executor's."""
        ...

    def claim(self, queue: str) -> None:
        """Make the state belong to this queue from now on.

        Orders of other queues are refused with WrongState. Raises WrongState if the state belongs
        to another queue.
        """
        ...


@dataclass(frozen=True)
class NodeStatus:
    """A node as an executor observes it.

    Parameters
    ----------
    node, pool : str
        The node, and its pool.
    gpus : int
        Its GPUs that jobs of the queue hold or may get; GPUs of other jobs do not count.
    state : str
        "up"; "drain": it takes no new job; "down": nothing runs there.
    leaves_s, returns_s : float
        When it leaves, and when it is back, as the cluster announces in unix seconds.

    Examples
    --------
    >>> NodeStatus("n1", "a100", 8).state
    'up'
    """

    node: str
    pool: str
    gpus: int
    state: str = "up"
    leaves_s: float = math.inf
    returns_s: float = math.inf


@runtime_checkable
class NodeWatcher(Protocol):
    """An executor that observes the nodes of its pools."""

    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node of the pools that it observes.

        A node of such a pool that is not named is gone. Nothing is known of other pools.
        """
        ...


@runtime_checkable
class SettingsWriter(Protocol):
    """An executor whose running jobs can read settings that change."""

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Replace the settings that a running job reads. Raises StaleOrder.

        `settings` has those of the variables SETTINGS that are set. Nothing happens if the
        allocation has not started or was acknowledged.
        """
        ...


@dataclass(frozen=True)
class ClusterJob:
    """A job that a user submitted to the cluster itself, and that waits for the allocator.

    Parameters
    ----------
    job_id : str
        Its name in the queue, which no other job of the cluster ever has.
    is_over : bool
        It has ended for good.

    Examples
    --------
    >>> ClusterJob("slurm-17-1700000000").is_over
    False
    """

    job_id: str
    is_over: bool = False


@runtime_checkable
class JobSource(Protocol):
    """An executor whose cluster has jobs of its own users, which the queue may take over."""

    def list_cluster_jobs(self) -> Sequence[ClusterJob]:
        """Return the jobs that are held for this queue, as of the last `observe`."""
        ...

    def take_cluster_jobs(
        self, job_ids: Sequence[str]
    ) -> tuple[Mapping[str, Mapping[str, Any]], Mapping[str, str]]:
        """Mark jobs as those of the queue.

        Returns the values of their submissions, and why some of them cannot be taken.
        """
        ...

    def cancel_cluster_job(self, job_id: str) -> None:
        """End a job for good that has no allocation."""
        ...


class Executor(Protocol):
    """Starts, stops and watches jobs.

    Every call may be repeated after a crash and then changes nothing more.
    """

    name: str
    capabilities: Capabilities

    def start(self, order: Order) -> None:
        """Start the allocation, once. Raises StaleOrder.

        GPUs that two allocations share are free when both have ended.
        """
        ...

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Make the job write a checkpoint and end. Raises StaleOrder.

        The call returns at once, and the end is observed later.
        """
        ...

    def observe(self) -> Sequence[Observation]:
        """Return what is known of every allocation whose end was not acknowledged.

        The same observation may be returned again.
        """
        ...

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Note that the end of this allocation is durably recorded, so that it can be forgotten."""
        ...

    def capacity(self) -> Mapping[str, int]:
        """Return the GPUs of pools that are available right now.

        A pool that is not named has as many as the queue says.
        """
        ...


class Clock(Protocol):
    """The source of time; tests and simulations have their own."""

    def now(self) -> float:
        """Return the time in unix seconds. It may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; the wait can be interrupted."""
        ...


class NotNow(AllocatorError):
    """The order cannot be carried out yet, and nothing was done.

    Its GPUs are still held, or an older allocation of the job has not ended. The same order may be
    given again later.
    """


def refuse_several_primaries(executor: Executor, max_primaries: int) -> None:
    """Raise UsageError if a queue wants more of the executor than jobs in pairs of one size."""
    if max_primaries > 1 and not executor.capabilities.shares_with_several:
        raise UsageError(
            f'max_primaries is {max_primaries}: executor "{executor.name}" runs a job on the GPUs'
            " of one job of as many GPUs only. Set it to 1 with `allocator queue config`, or use"
            " another executor"
        )


def find_shared(
    order: Order, is_alive: Callable[[ColocatedAllocation], bool]
) -> tuple[ColocatedAllocation, ...]:
    """Return the allocations of `order.beside` on whose GPUs the order starts.

    `is_alive` says whether an allocation was started and has not ended. Raises NotNow if the start
    has to wait for one.
    """
    alive = tuple(allocation for allocation in order.beside if is_alive(allocation))
    for allocation in order.beside:
        if allocation.needed and allocation not in alive:
            raise NotNow(
                f'job "{order.job_id}": it shall run on the GPUs of job "{allocation.job_id}",'
                f" whose allocation {allocation.generation} does not run"
            )
    return alive
