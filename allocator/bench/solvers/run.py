"""Run the solver benchmarks: engines x sizes x seeds x rules, resumably.

Each measurement runs in its own process with a hard time limit:

    runs = grid(["auto", "highs"], ["S", "M"], 5, ["standard"],
                gap=lambda size, rules: 1e-4, limit_s=60)
    run_all(runs, MeasurementStore("results"))

This process never loads an engine. docs/results.md explains the columns.
"""

from collections.abc import Callable, Sequence

from allocator.bench.machine import machine
from allocator.bench.solvers.process import measure
from allocator.bench.solvers.records import MeasurementStore
from allocator.bench.solvers.runs import SolverRun
from allocator.io.plans import write_files

MACHINE = "machine.txt"

Tell = Callable[[SolverRun, "dict[str, object] | None"], None]
"""tell(run, None) before a measurement, tell(run, its row) after it."""


def run_all(
    runs: Sequence[SolverRun], store: MeasurementStore, tell: Tell = lambda run, row: None
) -> int:
    """Run all measurements that have no row yet, one at a time; return how many were run."""
    finished = store.finished()
    waiting = [run for run in runs if run.key not in finished]
    write_files(store.folder, {MACHINE: machine() + "\n"})
    for run in waiting:
        tell(run, None)
        tell(run, store.add(run, *measure(run)))
    return len(waiting)
