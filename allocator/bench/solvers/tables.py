"""The tables of the solver benchmarks.

runs.csv has a row per measurement, trace.csv one per plan or bound that an engine found; its column
`run` names the measurement.
"""

import json
from pathlib import Path
from typing import Any

from allocator.bench.solvers.runs import POINT, TRACE
from allocator.bench.sweep.store import RUN_FILE, TASK_FILE, SweepStore
from allocator.bench.sweep.tasks import METRICS_FILE, from_identity
from allocator.io.plans import write_files
from allocator.objects import Json

Frame = Any
"""A pandas.DataFrame, which is loaded where one is made."""
RUNS = "runs.csv"
KEY = ("instance", "rules", "seed", "engine", "gap_asked", "limit_s", "threads", "round")
GAPS = {"cpu_1pct": 1e-2, "cpu_0.1pct": 1e-3, "cpu_0.01pct": 1e-4}
"""Columns with the CPU seconds until a relative gap was certified, and that gap."""
FIELDS = (
    *KEY,
    "run",
    "version",
    "jobs",
    "columns",
    "rows",
    "entries",
    "ended",
    "value",
    "bound",
    "gap",
    "bound_by",
    "cpu_s",
    "wall_s",
    "cpu_first_plan",
    *GAPS,
    "cpu_asked_gap",
    "peak_mb",
    "detail",
)


def write_runs(store: SweepStore) -> None:
    """Write both tables from all measurements of a store."""
    import pandas as pd

    rows, traces = list[Json](), [pd.DataFrame(columns=["run", *POINT])]
    for path in sorted(store.tasks.glob(f"*/{TRACE}")):
        run = path.parent.name[:8]
        trace = pd.read_csv(path, dtype=float)
        traces.append(trace.assign(run=run))
        rows.append(_row(path.parent, trace) | {"run": run})
    table = pd.DataFrame(rows, columns=[*FIELDS]).sort_values([*KEY])
    texts = {RUNS: table, TRACE: pd.concat(traces)}
    write_files(store.folder, {n: t.to_csv(index=False) for n, t in texts.items()})


def _row(folder: Path, trace: Frame) -> Json:
    """Return a measurement by columns of runs.csv; a killed one was watched from outside alone."""
    identity, seen, metrics = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in (TASK_FILE, RUN_FILE, METRICS_FILE)
    )
    task = from_identity(identity)
    gap = (trace["bound"] - trace["value"]) / trace["value"].abs().clip(lower=1e-9)
    trace = trace.assign(gap=gap.clip(lower=0.0))
    ends = trace[["value", "bound", "gap"]].tail(1).to_dict("records")

    def first(is_reached: Any) -> float | None:
        """Return the CPU seconds of the first row of which that is so; None: there is none."""
        times = trace["cpu_s"][is_reached]
        return float(times.iloc[0]) if len(times) else None

    gaps = GAPS | {"cpu_asked_gap": task.options["gap_asked"]}
    return {
        "instance": task.workload,
        "engine": task.policy,
        "seed": task.seed,
        **task.options,
        **seen,
        "cpu_s": max(0.0, seen["cpu_s"] - metrics["ready_cpu_s"]),
        "detail": " ".join(seen["words"].split()),
        **metrics,
        **{name: value for end in ends for name, value in end.items()},
        "cpu_first_plan": first(trace["value"].notna()),
        **{name: first(trace["gap"] <= most * (1 + 1e-9)) for name, most in gaps.items()},
    }
