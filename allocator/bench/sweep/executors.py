"""Run tasks, each in a child process, on this machine or on a Dask cluster (extra `dask`).

The parent starts the process, reads its output, kills it with all that it started if it is late,
and reads the files of the result. A task that crashes, hangs or uses too much memory ends its
process and never a worker of Dask, to which folders of workloads are sent as bytes, so that no
shared file system is needed.
"""

import json
import logging
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.bench.sweep.tasks import METRICS_FILE, SweepTask, contents, digest
from allocator.errors import UsageError, install_command
from allocator.solvers.isolation.child_processes import LAST_WORDS, ONE_THREAD, Child
from allocator.solvers.isolation.scratch_folders import scratch_folder

RUNNER = "allocator.bench.sweep.runner:run"
"""The function that runs a task, as "module:function".

function(task, folder) writes the files of the result into the folder, METRICS_FILE last. Whatever
becomes of the process then, they are the result.
"""
CONNECT_S = 10.0


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
TaskExecutor = Callable[[Sequence[SweepTask]], Generator[Finished, None, None]]
"""Runs tasks, several at a time, and yields each with its outcome, as they finish.

Closing the iterator, or an exception in it, kills the running tasks and drops the rest.
"""


def finished(futures: dict[Future[TaskOutcome], SweepTask]) -> Generator[Finished, None, None]:
    """Yield the tasks of futures with their outcomes, as they finish."""
    for future in as_completed(list(futures)):
        try:
            outcome = future.result()
        except Exception as error:  # no process or folder was made; a worker or scheduler died
            outcome = TaskOutcome(failure=f"lost: {type(error).__name__}", words=str(error))
        yield futures.pop(future), outcome


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


def on_dask(address: str, runner: str = RUNNER, limit_s: float = float("inf")) -> TaskExecutor:
    """Return who runs tasks on the cluster whose scheduler listens at `address`.

    It runs as many tasks at a time as the cluster has threads. Workers notice within a second that
    a result is no longer wanted, and kill the task.

    Parameters
    ----------
    address : address of the scheduler.
    runner, limit_s : as in on_processes; the workers must be able to import the runner.

    Raises
    ------
    UsageError
        As soon as tasks are run, if Dask is not installed, or the scheduler does not answer.
    """

    def results(tasks: Sequence[SweepTask]) -> Generator[Finished, None, None]:
        if not tasks:
            return
        client = _connect(address)
        pool = client.get_executor(pure=False)
        try:
            folders = {path: contents(Path(path)) for path in {t.path for t in tasks} if path}
            data = {path: client.submit(dict, files, pure=False) for path, files in folders.items()}
            given = runner, limit_s, _version()
            yield from finished(
                {pool.submit(on_worker, t, data.get(t.path), *given): t for t in tasks}
            )
        finally:
            # the scheduler drops the tasks that are still open, and workers then kill them
            client.close()

    return results


def on_worker(
    task: SweepTask, files: Mapping[str, bytes] | None, runner: str, limit_s: float, version: str
) -> TaskOutcome:
    """Run a task on a worker; first write the files of its workload if it has any."""
    if version != _version():
        return TaskOutcome(
            failure=f"the worker has another version of the project: {_version()}, not {version}"
        )
    stop = _cancelled()
    if files is None:
        return perform(task, runner, limit_s, stop)
    if digest(files) != task.digest:
        return TaskOutcome(failure="the files of the workload have changed since the sweep began")
    with scratch_folder("workload") as parent:
        folder = Path(parent, task.workload)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return perform(replace(task, path=str(folder)), runner, limit_s, stop)


def _cancelled() -> Callable[[], bool]:
    """Return a function that says whether the client has cancelled the task of this thread.

    The function asks without leaving the worker.
    """
    distributed: Any = import_module("distributed")
    worker = distributed.get_worker()
    key = worker.get_current_task()

    def asked() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state in ("cancelled", "resumed", "released", "forgotten")

    return asked


def _connect(address: str) -> Any:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError(
            f"Dask is not installed; here and on every worker: {install_command('distributed')}"
        ) from None
    # it would repeat the outcomes of tasks in many lines
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL + 1)
    try:
        return distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f'no Dask scheduler answers at "{address}": {error}') from None


def _version() -> str:
    from allocator import __version__

    return __version__
