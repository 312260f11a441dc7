"""Run tasks, each in a child process; the protocol of executors, and one for this machine.

The parent starts the process, reads its output, kills it with all that it started if it is late,
and reads the files of the result.
"""

import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from allocator.bench.sweep.tasks import METRICS_FILE, SweepTask
from allocator.solvers.isolation.child_processes import LAST_WORDS, ONE_THREAD, Child
from allocator.solvers.isolation.scratch_folders import scratch_folder

RUNNER = "allocator.bench.sweep.runner:run"
"""The function that runs a task, as "module:function".

function(task, folder) writes the files of the result into the folder, METRICS_FILE last. Whatever
becomes of the process then, they are the result.
"""


@dataclass(frozen=True)
class TaskOutcome:
    """The result of a task.

    Attributes
    ----------
    files : the files by name.
    failure : why there are no files.
    words : the end of the output of the process.
    seconds : wall seconds.
    cpu_s : of the process and the children that it waited for.
    peak_mb : the largest memory of one of them.
    host : name of the machine.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    failure: str = ""
    words: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    host: str = ""


def perform(
    task: SweepTask,
    runner: str = RUNNER,
    limit_s: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
) -> TaskOutcome:
    """Run a task in a child process with one thread per library.

    Never raises for an error of the task. After limit_s seconds, or as soon as stop() returns true,
    the process is killed with its process group.
    """
    begin = time.monotonic()
    with scratch_folder("task") as home:
        out = Path(home, "out")
        out.mkdir()
        child = Child(
            "task",
            "allocator.bench.sweep.runner",
            runner,
            str(out),
            json.dumps({**task.identity, "path": task.path}),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            environment=ONE_THREAD,
        )
        failure, words = "", b""
        try:
            for piece in child.read(child.process.stderr):
                words = (words + piece)[-8 * LAST_WORDS :]
                if stop():
                    failure = "stopped"
                elif time.monotonic() > begin + limit_s:
                    failure = "killed at the time limit of the task"
                if failure:
                    break
        finally:
            child.kill()
        if not failure and child.process.returncode:
            failure = child.how_it_ended()
        files = {p.name: p.read_bytes() for p in sorted(out.iterdir()) if p.is_file()}
    is_result = METRICS_FILE in files
    return TaskOutcome(
        files if is_result else {},
        "" if is_result else failure or f"left no {METRICS_FILE}",
        words.decode("utf-8", "replace").strip()[-LAST_WORDS:],
        time.monotonic() - begin,
        child.cpu_s,
        child.peak_mb,
        platform.node(),
    )


Finished = tuple[SweepTask, TaskOutcome]


def finished(asked: dict[Future[TaskOutcome], SweepTask]) -> Generator[Finished, None, None]:
    """Yield the tasks of futures with their outcomes, as they finish."""
    for future in as_completed(list(asked)):
        try:
            outcome = future.result()
        except Exception as error:  # no process or folder was made; a worker or scheduler died
            outcome = TaskOutcome(failure=f"lost: {type(error).__name__}", words=str(error))
        yield asked.pop(future), outcome


TaskExecutor = Callable[[Sequence[SweepTask]], Generator[Finished, None, None]]
"""Runs tasks, several at a time, and yields each with its outcome, as they finish.

Closing the iterator, or an exception in it, kills the running tasks and drops the rest.
"""


def on_processes(
    workers: int | None = None, runner: str = RUNNER, limit_s: float = float("inf")
) -> TaskExecutor:
    """Return who runs each task in a process on this machine, `workers` at a time.

    Parameters
    ----------
    workers : number of processes. The default is the cores that this process may use.
    runner : see RUNNER.
    limit_s : seconds after which a task is killed.
    """

    def results(tasks: Sequence[SweepTask]) -> Generator[Finished, None, None]:
        stop = threading.Event()
        # these threads only wait for their processes
        pool = ThreadPoolExecutor(workers or cores(), thread_name_prefix="task")
        try:
            yield from finished(
                {pool.submit(perform, task, runner, limit_s, stop.is_set): task for task in tasks}
            )
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    return results


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
