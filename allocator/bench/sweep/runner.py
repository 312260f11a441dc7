"""The default runner of a task: make or read the workload, simulate it, write the result as files.

jobs.csv, timeline.csv, rounds.csv and spans.csv are those of `allocator simulate`; metrics.json is
added. Only decision times (rounds.csv, and decision_s_* of metrics.json) differ between two runs of
a task.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from allocator.bench.sweep.process import ASSUMED, METRICS_FILE
from allocator.bench.sweep.tasks import SweepTask, contents, digest
from allocator.domain.workload import Workload
from allocator.errors import UsageError


def run(task: SweepTask, folder: Path) -> None:
    """Run the task; write its files into the folder."""
    from allocator.simulator import SimulationOptions, simulate
    from allocator.simulator.results.files import texts_of

    simulated = workload(task)
    simulation = simulate(
        simulated,
        policy=task.policy,
        options=SimulationOptions(seed=task.seed, **task.options),
    )
    for name, text in texts_of([simulation]).items():
        (folder / name).write_text(text, encoding="utf-8")
    metrics = {**simulation.metrics, **({ASSUMED: simulated.assumed} if simulated.assumed else {})}
    (folder / METRICS_FILE).write_text(metrics_json(metrics), encoding="utf-8")


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


def metrics_json(metrics: Mapping[str, object]) -> str:
    """Return metrics as JSON; a number that is not finite becomes null."""
    plain = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()
    }
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"
