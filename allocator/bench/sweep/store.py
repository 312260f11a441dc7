"""A sweep on disk, and the run of what it lacks.

- DIR/tasks/<key>/ has the files of a finished task.
- DIR/failed/<key>.json records a task whose last run failed.

The folder of a task appears whole or not at all: it is written under a temporary name, flushed to
the disk, and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from allocator.bench.machine import write_machine
from allocator.bench.sweep.executors import Finished, TaskExecutor, TaskOutcome
from allocator.bench.sweep.tasks import METRICS_FILE, SweepTask, from_identity
from allocator.errors import UsageError
from allocator.executors.disk import try_lock
from allocator.io.plans import write_files

TASK_FILE = "task.json"
RUN_FILE = "run.json"
GRID_FILE = "grid.json"
_PART = ".part-"


class SweepStore:
    """Results in a folder, which is made if needed; one writer at a time.

    Raises UsageError if another sweep is writing to the folder.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.tasks = self.folder / "tasks"
        self.failed = self.folder / "failed"
        for child in (self.tasks, self.failed):
            child.mkdir(parents=True, exist_ok=True)
        lock = try_lock(self.folder / ".lock")
        if lock is None:
            raise UsageError(f'another sweep is writing to "{self.folder}"')
        self._lock = lock
        # of a sweep that was killed while writing
        for left in self.tasks.glob(f"{_PART}*"):
            shutil.rmtree(left, ignore_errors=True)

    def __enter__(self) -> SweepStore:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def is_done(self, task: SweepTask) -> bool:
        """Return whether the store has the result of the task."""
        return (self.tasks / task.key / METRICS_FILE).is_file()

    def metrics(self, task: SweepTask) -> dict[str, Any]:
        """Return the metrics of a finished task."""
        return dict(json.loads((self.tasks / task.key / METRICS_FILE).read_text(encoding="utf-8")))

    def add(self, task: SweepTask, outcome: TaskOutcome) -> None:
        """Keep a result, or record a failure.

        Raises AllocatorError if the disk is full. Then no partial result is left.
        """
        record = self.failed / f"{task.key}.json"
        seen = {name: value for name, value in vars(outcome).items() if name != "files"}
        if outcome.failure:
            write_files(self.failed, {record.name: _json(task.identity | seen)})
            return
        files = {**outcome.files, TASK_FILE: _json(task.identity), RUN_FILE: _json(seen)}
        part = self.tasks / f"{_PART}{task.key}"
        place = self.tasks / task.key
        try:
            write_files(part, files)
            # a user may have deleted some files of an old result
            shutil.rmtree(place, ignore_errors=True)
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        record.unlink(missing_ok=True)

    def save_request(self, tasks: Sequence[SweepTask], baseline: str) -> None:
        """Record the tasks that were asked for last; `report` reads them."""
        request = {"baseline": baseline, "tasks": [t.identity for t in tasks]}
        write_files(self.folder, {GRID_FILE: _json(request)})

    def last_request(self) -> tuple[list[SweepTask], str]:
        """Return the tasks that were asked for last, and their baseline.

        Raises UsageError if there is no such record.
        """
        try:
            grid = json.loads((self.folder / GRID_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f'"{self.folder}" holds no sweep') from None
        return [from_identity(t) for t in grid["tasks"]], str(grid["baseline"])


def _json(values: Mapping[str, object]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


Tell = Callable[[SweepTask, TaskOutcome], None]


def sweep(
    tasks: Sequence[SweepTask],
    store: SweepStore,
    executor: TaskExecutor,
    tell: Tell = lambda task, outcome: None,
) -> list[Finished]:
    """Run every task that has no result yet; return those that failed.

    tell(task, outcome) is called after each. A failure is recorded, and counts as missing next
    time. On an interrupt, or when the disk of the results is full (AllocatorError), the sweep stops
    at once and keeps all that has finished.
    """
    write_machine(store.folder)
    failed: list[Finished] = []
    missing = [task for task in tasks if not store.is_done(task)]
    with closing(executor(missing)) as results:
        for task, outcome in results:
            store.add(task, outcome)
            if outcome.failure:
                failed.append((task, outcome))
            tell(task, outcome)
    return failed
