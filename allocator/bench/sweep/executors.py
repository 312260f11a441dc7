"""Executors of tasks: the protocol, and one that uses the cores of this machine."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from allocator.bench.sweep.process import RUNNER, TaskOutcome, perform
from allocator.bench.sweep.tasks import SweepTask

Finished = tuple[SweepTask, TaskOutcome]


class TaskExecutor(Protocol):
    """Runs tasks, several at a time."""

    def results(self, tasks: Sequence[SweepTask]) -> Generator[Finished, None, None]:
        """Yield every task with its outcome, as they finish.

        Closing the iterator, or an exception in it, kills the running tasks and drops the rest.
        """
        ...


class ProcessExecutor:
    """Runs each task in a process on this machine, `workers` at a time.

    Parameters
    ----------
    workers : number of processes. The default is the cores that this process may use.
    runner : see process.RUNNER.
    limit_s : seconds after which a task is killed.
    """

    def __init__(
        self, workers: int | None = None, runner: str = RUNNER, limit_s: float = float("inf")
    ) -> None:
        self.workers = workers or cores()
        self._runner = runner
        self._limit_s = limit_s

    def results(self, tasks: Sequence[SweepTask]) -> Generator[Finished, None, None]:
        """Implement TaskExecutor.results; the threads only wait for their processes."""
        finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        stop = threading.Event()

        def perform_one(task: SweepTask) -> None:
            if stop.is_set():
                return
            try:
                outcome = perform(task, self._runner, self._limit_s, stop.is_set)
            # no process or folder could be made: a full disk, or no memory
            except Exception as error:
                outcome = TaskOutcome(failure=f"not started: {error}")
            finished.put((task, outcome))

        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="task")
        try:
            for task in tasks:
                pool.submit(perform_one, task)
            for _ in tasks:
                yield finished.get()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
