"""The process of one task, and the default runner: simulate a workload, write the result as files.

    python -m allocator.bench.sweep.runner MODULE:FUNCTION FOLDER '{"path": ..., ...}'

The function writes the files of the task into the folder, METRICS_FILE when they are a result; the
last argument is the identity of the task with its path. Errors go to standard error. When
standard input ends, the parent is gone, and this process ends itself with everything that it
started.

Of the default runner jobs.csv, timeline.csv, rounds.csv and spans.csv are those of `allocator
simulate`; metrics.json is added. Only decision times (rounds.csv, and decision_s_* of metrics.json)
differ between two runs of a task.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.bench.sweep.tasks import (
    ASSUMED,
    LEAST,
    METRICS_FILE,
    SweepTask,
    contents,
    digest,
    from_identity,
)
from allocator.errors import AllocatorError, UsageError
from allocator.io.plans import dumps, write_files
from allocator.solvers.isolation.child_processes import end_with_parent

if TYPE_CHECKING:  # heavy; other runners do without
    from allocator.domain.workload import Workload


def run(task: SweepTask, folder: Path) -> None:
    """Run the task; write its files into the folder."""
    from allocator.bench.least import least_mean_completion_s
    from allocator.simulator import SimulationOptions, simulate
    from allocator.simulator.results.files import texts_of

    simulated, options = workload(task), SimulationOptions(seed=task.seed, **task.options)
    metrics: dict[str, Any] = {ASSUMED: simulated.assumed} if simulated.assumed else {}
    if task.policy == LEAST:
        metrics["jct_s_mean"] = least_mean_completion_s(simulated, options)
    else:
        simulation = simulate(simulated, policy=task.policy, options=options)
        for name, text in texts_of([simulation]).items():
            (folder / name).write_text(text, encoding="utf-8")
        metrics |= simulation.metrics
    write_metrics(folder, metrics)


def write_metrics(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Write METRICS_FILE whole, which makes the files of the folder a result."""
    write_files(folder, {METRICS_FILE: dumps(metrics) + "\n"})


def workload(task: SweepTask) -> Workload:
    """Return the workload of a task.

    Raises UsageError if the files of a folder have changed since the task was made.
    """
    from allocator.bench.workloads import generate
    from allocator.io.workloads import read_workload

    if task.digest:
        if digest(contents(Path(task.path))) != task.digest:
            raise UsageError(f'the files in "{task.path}" have changed since the sweep began')
        return read_workload(task.path)
    return generate(task.workload, seed=task.seed, load=task.load, jobs=task.jobs).workload()


def main(runner: str, folder: str, spec: str) -> int:
    """Run one task; return the exit code."""
    end_with_parent()
    identity = json.loads(spec)
    task = from_identity(identity, identity.pop("path"))
    module, _, name = runner.partition(":")
    try:
        getattr(importlib.import_module(module), name)(task, Path(folder))
    except AllocatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
