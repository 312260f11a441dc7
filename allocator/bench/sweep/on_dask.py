"""Run tasks on the workers of a Dask cluster (extra `dask`).

Each task runs in a child process of the worker. A task that crashes, hangs or uses too much memory
ends this process and never the worker. Results come back as bytes, and folders of workloads are
sent as bytes, so that no shared file system is needed.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.bench.sweep.executors import (
    RUNNER,
    Finished,
    TaskExecutor,
    TaskOutcome,
    finished,
    perform,
)
from allocator.bench.sweep.tasks import SweepTask, contents, digest
from allocator.errors import UsageError, install_command
from allocator.solvers.isolation.scratch_folders import scratch_folder

CONNECT_S = 10.0


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
