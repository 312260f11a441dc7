"""How plans reach machines: the executor's port and the values that cross it.

An allocation is known by (job_id, generation): the generation counts the allocations a job was ever
given. Every order carries the fencing token of the controller that gave it; an executor refuses
orders of a token or generation older than one it has seen, so that a controller that was paused and
came back cannot act on what it decided long ago.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from allocator.errors import AllocatorError, UsageError


class Phase(StrEnum):
    """State what became of an allocation; the last four end it for good.

    Examples
    --------
    >>> Phase.LOST in ENDED, Phase.RUNNING in ENDED
    (True, False)
    """

    RUNNING = "running"
    STOPPED = "stopped"  # as it was told to, with a checkpoint
    FINISHED = "finished"  # the job has done all its work
    FAILED = "failed"  # it ended by itself without having done its work
    LOST = "lost"  # its machine is gone, or nobody knows what became of it


ENDED = frozenset((Phase.STOPPED, Phase.FINISHED, Phase.FAILED, Phase.LOST))


class StaleOrder(AllocatorError):
    """An order with an older token or generation than one already seen, or of an allocation whose
    end was acknowledged: whoever gave it is not leading any more, or knows less than it once did.
    """


class WrongState(UsageError):
    """A queue and the durable state of an executor do not belong together, or contradict each
    other: nothing may be started or stopped until somebody has said which of them is right."""


@dataclass(frozen=True)
class ColocatedAllocation:
    """The allocation on whose GPUs another one starts, so that two jobs run on them. needed: it was
    there first, and the start has to wait for it (NotNow); else one without it gets GPUs of its
    own."""

    job_id: str
    generation: int
    needed: bool = True


@dataclass(frozen=True)
class Order:
    """Order the start of a job on GPUs.

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
    beside : ColocatedAllocation, optional
        Allocation on whose GPUs it runs; None: it has GPUs of its own.
    first_generation : int
        First allocation of this job; earlier ones were of another job of the same name.

    Examples
    --------
    >>> order = Order("bert-1", 1, 7, "a100", 4, "A100", 90_000.0, ("python", "train.py"))
    >>> order.gpus, order.beside
    (4, None)
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
    beside: ColocatedAllocation | None = None
    first_generation: int = 1


@dataclass(frozen=True)
class Observation:
    """State what became of an allocation.

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
        What a user should be told.

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


@dataclass(frozen=True)
class Identity:
    """Whose durable state an executor has. kind: name of the executor; state: random name of the
    state; queue: id of the queue it belongs to, "" = of none yet; token: highest fencing token it
    has seen, -1 = none; place: where it is; is_adopting: it is going over to another queue, and
    that was cut short."""

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
        """Whose state it is. Raises WrongState if it is another executor's."""
        ...

    def claim(self, queue: str) -> None:
        """The state belongs to this queue from now on, and orders of others are refused with
        WrongState. Raises WrongState if it belongs to another queue."""
        ...


@dataclass(frozen=True)
class Capabilities:
    """State what an executor can do.

    Parameters
    ----------
    reports_progress : bool
        Its jobs are known to report their progress, so that silence means that a job is stuck.

    Examples
    --------
    >>> Capabilities(reports_progress=True)
    Capabilities(reports_progress=True)
    """

    reports_progress: bool = False


class Executor(Protocol):
    """Starts, stops and watches jobs. Every call may be repeated after a crash and then changes
    nothing more.
    """

    name: str
    capabilities: Capabilities

    def start(self, order: Order) -> None:
        """Start the allocation, once. GPUs of two allocations are free when both have ended.
        Raises StaleOrder.
        """
        ...

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Have the job write a checkpoint and end. Returns at once; the end is observed. Raises
        StaleOrder.
        """
        ...

    def observe(self) -> Sequence[Observation]:
        """What is known of every allocation whose end was not acknowledged. The same may be said
        again.
        """
        ...

    def acknowledge(self, job_id: str, generation: int) -> None:
        """The end of this allocation is durably recorded: nothing about it needs to be kept."""
        ...

    def capacity(self) -> Mapping[str, int]:
        """GPUs by pool that are there right now; pools that are not named have what the queue
        says.
        """
        ...


class Clock(Protocol):
    """Time, so that tests and simulations can bring their own."""

    def now(self) -> float:
        """Unix seconds. May jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait, interruptibly."""
        ...
