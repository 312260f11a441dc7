"""The solver benchmarks: engines x sizes x seeds x rules, each in a process of its own with a hard
limit, resumable.

    runs = grid(["decomposition", "highs"], ["S", "M"], 5, ["standard"], gap=lambda size, rules:
    1e-4, limit_s=60) run_all(runs, Store("results"))

No engine is ever loaded in this process. What the columns mean: docs/benchmarks-solvers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allocator.bench.machine import machine
from allocator.bench.solvers.process import measure
from allocator.bench.solvers.records import MeasurementStore
from allocator.bench.solvers.runs import SolverRun
from allocator.io.plans import write_files

TARGETS = {"S": 5e-4, "M": 5e-4, "L": 2e-4, "XL": 5e-4, "XXL": 1e-4}
"""Relative gaps that the project's table of targets asks for under the standard rules; 1e-3
under the others.
"""
MACHINE = "machine.txt"

Tell = Callable[[SolverRun, "dict[str, object] | None"], None]
"""tell(run, None) before a measurement, tell(run, its row) after it."""


def target_gap(size: str, rules: str) -> float:
    """The gap to ask for in the full run."""
    return TARGETS.get(size, 1e-3) if rules == "standard" else 1e-3


def run_all(
    runs: Sequence[SolverRun], store: MeasurementStore, tell: Tell = lambda run, row: None
) -> int:
    """Measure what has no row yet, one at a time; returns how many were measured."""
    finished = store.finished()
    waiting = [run for run in runs if run.key not in finished]
    write_files(store.folder, {MACHINE: machine() + "\n"})
    for run in waiting:
        tell(run, None)
        tell(run, store.add(run, measure(run)))
    return len(waiting)
