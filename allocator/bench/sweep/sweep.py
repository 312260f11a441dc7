"""Run the missing tasks of a sweep, and keep the results that finish."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from allocator.bench.machine import machine
from allocator.bench.solvers.run import MACHINE
from allocator.bench.sweep.executors import Finished, TaskExecutor, TaskOutcome
from allocator.bench.sweep.store import SweepStore
from allocator.bench.sweep.tasks import SweepTask
from allocator.io.plans import write_files

Tell = Callable[[SweepTask, TaskOutcome], None]


@dataclass(frozen=True)
class SweepSummary:
    """What a call did: tasks that were finished before, tasks that ran, and those that failed."""

    before: int
    ran: int
    failed: tuple[Finished, ...]


def sweep(
    tasks: Sequence[SweepTask],
    store: SweepStore,
    executor: TaskExecutor,
    tell: Tell = lambda task, outcome: None,
) -> SweepSummary:
    """Run every task that has no result yet; call tell(task, outcome) after each.

    A failure is recorded, and counts as missing next time. On an interrupt, or when the disk of the
    results is full (AllocatorError), the sweep stops at once and keeps all that has finished.
    """
    write_files(store.folder, {MACHINE: machine() + "\n"})
    missing = [task for task in tasks if not store.is_done(task)]
    failed: list[Finished] = []
    with closing(executor.results(missing)) as results:
        for task, outcome in results:
            store.add(task, outcome)
            if outcome.failure:
                failed.append((task, outcome))
            tell(task, outcome)
    return SweepSummary(len(tasks) - len(missing), len(missing), tuple(failed))
