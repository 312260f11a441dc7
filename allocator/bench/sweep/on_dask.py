"""Tasks on the workers of a Dask cluster (extra `dask`): each in a process of its own next to the
worker.

A task that crashes, hangs or eats memory ends its own process and never the worker. Results come
back as bytes, so no file system needs to be shared; folders of workloads travel the other way.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allocator.bench.sweep.executors import Finished
from allocator.bench.sweep.process import RUNNER, TaskOutcome, perform
from allocator.bench.sweep.tasks import SweepTask, contents, digest
from allocator.errors import UsageError
from allocator.solvers.isolation.scratch_folders import scratch_folder

CONNECT_S = 10.0


class DaskExecutor:
    """An Executor on the cluster whose scheduler listens at `address`, as many tasks at a time as
    it has threads.

    runner, limit_s: as in executors.Processes; the runner must be importable on the workers. quiet:
    turn the log of Dask's client off, which tells in many lines what the tasks' outcomes say in
    one. Raises UsageError if Dask is not installed or nobody answers.
    """

    def __init__(
        self, address: str, runner: str = RUNNER, limit_s: float = float("inf"), quiet: bool = False
    ) -> None:
        self._address, self._runner, self._limit_s, self._quiet = address, runner, limit_s, quiet

    def results(self, tasks: Sequence[SweepTask]) -> Generator[Finished, None, None]:
        """Executor.results; workers notice within a second that nobody waits any more, and kill
        the task.
        """
        if not tasks:
            return
        client = _connect(self._address, self._quiet)
        from distributed import as_completed as finished

        as_completed: Callable[..., Iterator[Any]] = finished

        try:
            folders = {path: contents(Path(path)) for path in {t.path for t in tasks} if path}
            data = {
                path: client.submit(_identical_files, files, pure=False)
                for path, files in folders.items()
            }
            # a result of an earlier call, perhaps a failure, does not count
            call = uuid.uuid4().hex[:8]
            asked = {
                client.submit(
                    on_worker,
                    task,
                    data.get(task.path),
                    self._runner,
                    self._limit_s,
                    _version(),
                    key=f"allocator-{call}-{task.key}",
                    pure=False,
                ): task
                for task in tasks
            }
            for future in as_completed(list(asked), loop=client.loop):
                task = asked.pop(future)
                yield task, _outcome(future)
                future.release()
        finally:
            # the scheduler forgets what is still asked, workers then kill it
            client.close()


def on_worker(
    task: SweepTask, files: Mapping[str, bytes] | None, runner: str, limit_s: float, version: str
) -> TaskOutcome:
    """What a worker does: lay out the workload's files if it has any, and perform the task."""
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


def _outcome(future: Any) -> TaskOutcome:
    """What the task returned, or why it could not: the worker died, or the scheduler did."""
    if future.status == "finished":
        try:
            return future.result(timeout=60)  # type: ignore[no-any-return]
        except Exception as lost:
            return TaskOutcome(
                failure=f"its result was lost: {type(lost).__name__}", words=str(lost)
            )
    error = future.exception(timeout=60) if future.status == "error" else None
    if error is None:
        return TaskOutcome(failure="the scheduler is gone, or took the task back")
    return TaskOutcome(failure=f"Dask: {type(error).__name__}", words=str(error))


def _cancelled() -> Callable[[], bool]:
    """Whether the client has taken back what this thread of the worker is doing, asked without
    leaving the worker.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def asked() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state in ("cancelled", "resumed", "released", "forgotten")

    return asked


def _connect(address: str, quiet: bool) -> Any:
    try:
        from distributed import Client as Connected
    except ImportError:
        raise UsageError(
            'Dask is not installed: it comes with the extra "dask" of this project'
        ) from None
    if quiet:
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL + 1)
    connect: Callable[..., Any] = Connected
    try:
        return connect(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f'no Dask scheduler answers at "{address}": {error}') from None


def _identical_files(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return files


def _version() -> str:
    from allocator import __version__

    return __version__
