"""Run solver benchmarks for each engine, size, seed and set of rules; write their results to CSV.

    runs = grid(["auto", "highs"], ["S", "M"], 5, ["standard"],
                gap=lambda size, rules: 1e-4, limit_s=60)
    run_all(runs, MeasurementStore("results"))

Each measurement runs in its own process with a hard time limit; this process never loads an engine.

runs.csv has a row per measurement. trace.csv has a row per plan or bound that the solver found, and
its column `run` names the measurement. Rows are appended, so that a benchmark can be stopped at any
time and continued. Only one process may write at a time.
"""

import csv
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allocator.bench.machine import write_machine
from allocator.bench.solvers.process import Point, measure
from allocator.bench.solvers.runs import KEY, SolverRun
from allocator.errors import UsageError

RUNS = "runs.csv"
TRACE = "trace.csv"
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
TRACE_FIELDS = ("run", *Point._fields)


class MeasurementStore:
    """The files runs.csv and trace.csv in a folder, which is created if needed."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, fields in ((RUNS, FIELDS), (TRACE, TRACE_FIELDS)):
            _prepare(self.folder / name, fields)

    def finished(self) -> set[tuple[str, ...]]:
        """Return the keys of the measurements that have a row."""
        with (self.folder / RUNS).open(newline="", encoding="utf-8") as source:
            return {tuple(row[k] for k in KEY) for row in csv.DictReader(source)}

    def add(
        self, run: SolverRun, told: Mapping[str, object], trace: Sequence[Point]
    ) -> dict[str, object]:
        """Append a measurement, which was told so by columns; return its row.

        The trace is written first, so that a row of runs.csv always has its whole trace.
        """
        last = trace[-1] if trace else Point(0.0, 0.0, None, None)
        row: dict[str, object] = {
            **dict(zip(KEY, run.key, strict=True)),
            "run": secrets.token_hex(4),
            **told,
            "value": last.value,
            "bound": last.bound,
            "gap": last.gap,
            "bound_by": told.get("bound_by", "engine") if last.bound is not None else "",
            "cpu_first_plan": next((p.cpu_s for p in trace if p.value is not None), None),
            **{name: seconds_to_gap(trace, gap) for name, gap in GAPS.items()},
            "cpu_asked_gap": seconds_to_gap(trace, run.gap),
            "detail": " ".join(str(told.get("detail", "")).split()),
        }
        _append(self.folder / TRACE, [(row["run"], *map(_number, point)) for point in trace])
        _append(self.folder / RUNS, [[_number(row.get(f)) for f in FIELDS]])
        return row


def seconds_to_gap(trace: Sequence[Point], gap: float) -> float | None:
    """Return the CPU seconds until plan and bound were within the gap; None: they never were."""
    return next((p.cpu_s for p in trace if p.gap is not None and p.gap <= gap * (1 + 1e-9)), None)


def _number(x: object) -> object:
    if x is None:
        return ""
    return f"{x:.12g}" if isinstance(x, float) else x


def _prepare(path: Path, fields: Sequence[str]) -> None:
    """Write the header of a new file; cut an incomplete last line, which a kill can leave.

    Raises UsageError on another header.
    """
    if not path.exists() or not path.stat().st_size:
        path.write_text(",".join(fields) + "\n", encoding="utf-8")
        return
    with path.open("rb+") as file:
        text = file.read()
        if not text.endswith(b"\n"):
            file.truncate(text.rfind(b"\n") + 1)
    if path.read_text(encoding="utf-8").partition("\n")[0] != ",".join(fields):
        raise UsageError(f'"{path}" holds results of another version; choose another folder')


def _append(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("a", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)
        out.flush()
        os.fsync(out.fileno())


def summary(row: Mapping[str, object]) -> str:
    """Return a measurement in a few words."""
    gap = row["gap"]
    proven = f"gap {100 * gap:.4f} %" if isinstance(gap, float) else "no gap"
    cpu = row["cpu_s"]
    return (
        f"{row['engine']} {row['instance']} {row['rules']} seed {row['seed']} {row['round']}:"
        f" {proven}, {cpu:.2f} CPU s, ended by {row['ended']}"
    )


Tell = Callable[[SolverRun, "dict[str, object] | None"], None]
"""tell(run, None) before a measurement, tell(run, its row) after it."""


def run_all(
    runs: Sequence[SolverRun], store: MeasurementStore, tell: Tell = lambda run, row: None
) -> int:
    """Run all measurements that have no row yet, one at a time; return how many were run."""
    finished = store.finished()
    waiting = [run for run in runs if run.key not in finished]
    write_machine(store.folder)
    for run in waiting:
        tell(run, None)
        tell(run, store.add(run, *measure(run)))
    return len(waiting)
