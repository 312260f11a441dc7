"""Read simulations back from folders of `allocator simulate` or `allocator bench policies`."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.errors import Fault, InvalidInput, UsageError
from allocator.report.measures import BY_KEY
from allocator.report.theme import order_policies

if TYPE_CHECKING:
    import pandas as pd

FILES: Mapping[str, tuple[str, ...]] = {
    "jobs": (
        "policy",
        "job_id",
        "submitted_s",
        "started_s",
        "finished_s",
        "queue_s",
        "jct_s",
        "requested_gpus",
    ),
    "timeline": ("policy", "round", "at_s", "pool", "gpus", "price_per_gpu_hour"),
    "rounds": ("policy", "round", "at_s", "active", "gap", "decision_s", "fallback"),
    "spans": ("policy", "job_id", "pool", "gpus", "from_s", "to_s"),
}
"""The columns that reports need; all other columns are optional."""
OF_NODES: Mapping[str, tuple[str, ...]] = {
    "places": ("policy", "job_id", "node", "gpus", "gpu", "from_s", "to_s", "shared_with"),
    "node_states": ("policy", "node", "gpus", "state", "from_s", "to_s"),
    "fragmentation": ("policy", "at_s", "free", "unusable"),
}
"""The same of files that only simulations with nodes have."""
SHARED_WITH = "shared_with"
"""Column of spans: the primary job that held the GPUs; empty for the job itself."""
MEMORY_PRICE = "memory_price"
"""Column of spans: dollars per hour for the memory of each GPU, if any pool has a price of it."""
TEXT = (
    *("policy", "job_id", "pool", "node", "state", "fallback", SHARED_WITH),
    *("workload", "load", "task", "baseline", "metric", "verdict"),
)
"""The columns that hold text; all others hold numbers."""
RESULTS_JSON = "results.json"
RESULTS = "results.csv"
COMPARISON = "comparison.csv"
GRID = "grid.json"
METRICS = "metrics.json"  # of a task
POOLED = "all"
"""The load of rows of comparison.csv that pool all loads of a workload."""
IDENTITY = ("workload", "load", "seed", "policy", "task")
"""The columns of results.csv that are not metrics."""
COMPARISON_COLUMNS = (
    "workload",
    "load",
    "policy",
    "baseline",
    "metric",
    "n",
    "change_percent",
    "low_percent",
    "high_percent",
)
"""The columns of comparison.csv that reports need."""


@dataclass(frozen=True, eq=False)
class SimulationRun:
    """One simulation: its metrics (nan for a missing one), and the folder of its CSV files."""

    workload: str
    load: str
    seed: int
    policy: str
    metrics: Mapping[str, float]
    folder: Path

    @property
    def unfinished(self) -> int:
        """Return the number of jobs that were not finished."""
        left = self.metrics.get("jobs", math.nan) - self.metrics.get("finished", math.nan)
        return int(left) if math.isfinite(left) else 0


@dataclass(frozen=True)
class MetricChange:
    """A policy against the baseline in one metric.

    Attributes
    ----------
    percent : the change.
    low, high : its 95 % interval; nan for a single pair.
    verdict : better, worse or open.
    n : pairs (seeds).
    """

    workload: str
    load: str
    policy: str
    metric: str
    n: int
    percent: float
    low: float = math.nan
    high: float = math.nan
    verdict: str = "open"


@dataclass(frozen=True)
class Study:
    """Everything of which a report is made.

    Attributes
    ----------
    single : whether it is one folder of `simulate` and not a benchmark.
    notes : what a reader should know first.
    """

    name: str
    single: bool
    baseline: str
    runs: Sequence[SimulationRun]
    changes: Sequence[MetricChange]
    notes: Sequence[str] = ()
    machine: str = ""
    _frames: dict[tuple[Path, str, str], Any] = field(default_factory=dict, repr=False)

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(r.workload for r in self.runs))

    def loads(self, workload: str) -> list[str]:
        return sorted({r.load for r in self.runs if r.workload == workload}, key=load_order)

    def together(self, workload: str) -> str:
        """Return the name of all loads of the workload together."""
        n = len(self.loads(workload))
        return "both loads" if n == 2 else f"all {n} loads"

    def policies(self, workload: str | None = None) -> list[str]:
        """Return the policies in their usual order, the baseline last."""
        return order_policies(
            (r.policy for r in self.runs if workload in (None, r.workload)), self.baseline
        )

    def of(self, workload: str, load: str, policy: str) -> list[SimulationRun]:
        return [r for r in self.runs if (r.workload, r.load, r.policy) == (workload, load, policy)]

    def mean(self, workload: str, load: str, policy: str, key: str) -> float:
        """Return the mean over the seeds that have a value; nan if none has."""
        found = (r.metrics.get(key, math.nan) for r in self.of(workload, load, policy))
        values = list(filter(math.isfinite, found))
        return sum(values) / len(values) if values else math.nan

    def change(self, workload: str, load: str, policy: str, metric: str) -> MetricChange | None:
        return next(
            (
                c
                for c in self.changes
                if (c.workload, c.load, c.policy, c.metric) == (workload, load, policy, metric)
            ),
            None,
        )

    def typical_seed(self, workload: str, load: str) -> int:
        """Return the seed whose mean completion time of the baseline is the (lower) median."""
        runs = self.of(workload, load, self.baseline) or [
            r for r in self.runs if (r.workload, r.load) == (workload, load)
        ]
        by = sorted(runs, key=lambda r: (_last(r.metrics.get("jct_s_mean", math.nan)), r.seed))
        return by[(len(by) - 1) // 2].seed

    def frame(self, run: SimulationRun, name: str) -> pd.DataFrame:
        """Read jobs, timeline, rounds or spans of a run, or a file of its nodes.

        Spans get the column `held`: the GPUs that the job itself held. A secondary job has 0, so
        that the GPUs of a colocation count once. Raises InvalidInput for columns that are missing
        or not numeric.
        """
        key = (run.folder, name, run.policy)
        if key not in self._frames:
            whole = read_frame(
                run.folder / f"{name}.csv",
                FILES.get(name) or OF_NODES[name],
                (SHARED_WITH, MEMORY_PRICE) if name == "spans" else (),
            )
            if name == "spans":
                whole["held"] = whole["gpus"].where(whole[SHARED_WITH].isna(), 0.0)
                whole[MEMORY_PRICE] = whole[MEMORY_PRICE].astype("float64").fillna(0.0)
            self._frames.update(
                {
                    (run.folder, name, str(p)): rows
                    for p, rows in whole.groupby("policy", sort=False)
                }
            )
            self._frames.setdefault(key, whole.iloc[:0])
        frame: pd.DataFrame = self._frames[key]
        return frame


def _last(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def load_order(load: str) -> tuple[float, str]:
    """Return the sort key of loads as texts of the tables: numbers first."""
    try:
        return float(load), ""
    except ValueError:
        return math.inf, load


def read_frame(
    path: Path, columns: Sequence[str], more: Sequence[str] | None = None
) -> pd.DataFrame:
    """Read the named columns of a CSV file as texts or floats, and the columns `more`.

    A column of `more` that the file does not have is empty; None: all others. Raises UsageError if
    there is no such file, and InvalidInput for columns that are missing or not numeric.
    """
    import pandas as pd

    if not path.is_file():
        raise UsageError(f'"{path}" is missing')

    def read(kinds: Mapping[str, str]) -> pd.DataFrame:
        return pd.read_csv(
            path,
            usecols=lambda name: more is None or name in (*columns, *more),
            dtype=kinds,
            # a job may be named "NA"; only an empty cell is a missing value
            keep_default_na=False,
            na_values=[""],
        )

    try:
        frame = read(defaultdict(lambda: "float64", dict.fromkeys(TEXT, "str")))
    except ValueError:  # also of a file that is no CSV, or no text
        raise InvalidInput(_find_faults(path, columns, read)) from None
    missing = [c for c in columns if c not in frame]
    if missing:
        raise InvalidInput([Fault(str(path), 1, f'column "{c}" is missing') for c in missing])
    # without rows pandas does not know that they are numbers
    frame = frame.astype({c: "float64" for c in frame if c not in TEXT})
    return frame.assign(**{c: None for c in more or () if c not in frame})


def _find_faults(
    path: Path, columns: Sequence[str], read: Callable[[Mapping[str, str]], pd.DataFrame]
) -> list[Fault]:
    """Return why the columns of a file cannot be read."""
    import pandas as pd

    try:
        text = read(defaultdict(lambda: "str"))
    except (pd.errors.EmptyDataError, UnicodeDecodeError):
        needed = f"has no header; the columns {', '.join(columns)} are needed"
        return [Fault(str(path), 1, needed)]
    except ValueError as error:
        return [Fault(str(path), None, f"cannot be read: {str(error).strip().splitlines()[-1]}")]
    faults = []
    for name in (c for c in text if c not in TEXT):
        odd = text[name].notna() & pd.to_numeric(text[name], errors="coerce").isna()
        faults += [
            Fault(str(path), int(i) + 2, f'{name} "{text[name][i]}" is not a number')
            for i in text.index[odd][:5]
        ]
    return faults or [Fault(str(path), None, "cannot be read")]


def read_simulation(folder: Path) -> Study:
    """Read a folder of `allocator simulate --out`.

    Raises UsageError for missing files, and InvalidInput for invalid ones.
    """
    path = folder / RESULTS_JSON
    document = _json(path)
    policies = document.get("policies")
    if (
        not isinstance(policies, dict)
        or not policies
        or not all(isinstance(m, dict) for m in policies.values())
    ):
        raise InvalidInput(
            [Fault(str(path), None, '"policies" should hold the metrics of each policy')]
        )
    workload = str(document.get("workload", folder.name))
    seed = int(document.get("seed") or 0)
    runs = [
        SimulationRun(workload, "", seed, str(p), _numbers(m), folder) for p, m in policies.items()
    ]
    baseline = "greedy" if "greedy" in policies else next(iter(policies))
    by = {r.policy: r for r in runs}
    changes = [
        MetricChange(
            workload,
            "",
            r.policy,
            key,
            1,
            _percent(r.metrics.get(key), by[baseline].metrics.get(key)),
        )
        for r in runs
        if r.policy != baseline
        for key in BY_KEY
    ]
    notes = (*map(str, document.get("warnings") or ()), *_unfinished(runs))
    study = Study(workload, True, baseline, runs, changes, notes)
    for name in FILES:
        study.frame(runs[0], name)
    return study


def read_benchmark(folder: Path) -> Study:
    """Read a folder of `allocator bench policies --out`: results.csv, comparison.csv, tasks/.

    Raises the errors of read_simulation.
    """
    results = read_frame(folder / RESULTS, IDENTITY)
    keys = [c for c in results.columns if c not in IDENTITY]
    runs = [
        SimulationRun(
            str(r["workload"]),
            _load(r["load"]),
            int(r["seed"]),
            str(r["policy"]),
            _numbers({k: r[k] for k in keys}),
            folder / "tasks" / str(r["task"]),
        )
        for r in results.to_dict("records")
    ]
    changes, baseline = _comparison(folder / COMPARISON)
    grid = folder / GRID
    asked = _json(grid) if grid.is_file() else {}
    baseline = baseline or str(asked.get("baseline", "")) or _find_baseline(runs)
    notes = [*_assumed(runs), *_unfinished(runs)]
    if len(asked.get("tasks", ())) > len(runs):
        notes.append(
            f"Incomplete: {len(asked['tasks']) - len(runs)} of {len(asked['tasks'])} simulations"
            " have no result; they failed, or have not run yet."
        )
    machine = folder / "machine.txt"
    return Study(
        folder.resolve().name,
        False,
        baseline,
        runs,
        changes,
        notes,
        machine.read_text(encoding="utf-8").strip() if machine.is_file() else "",
    )


def _find_baseline(runs: Sequence[SimulationRun]) -> str:
    names = [r.policy for r in runs]
    return "greedy" if "greedy" in names or not names else names[0]


def _comparison(path: Path) -> tuple[list[MetricChange], str]:
    """Return the rows of comparison.csv and their baseline; nothing if the file does not exist."""
    if not path.is_file():
        return [], ""
    rows = read_frame(path, COMPARISON_COLUMNS).to_dict("records")
    return [
        MetricChange(
            str(r["workload"]),
            _load(r["load"]),
            str(r["policy"]),
            str(r["metric"]),
            int(r["n"]),
            float(r["change_percent"]),
            float(r["low_percent"]),
            float(r["high_percent"]),
            str(r.get("verdict", "open")),
        )
        for r in rows
    ], (str(rows[0]["baseline"]) if rows else "")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput([Fault(str(path), None, f"is not JSON: {error}")]) from None
    if not isinstance(found, dict):
        raise InvalidInput([Fault(str(path), None, "should be a JSON object")])
    return found


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        k: math.nan if v is None else float(v)
        for k, v in values.items()
        if v is None or isinstance(v, int | float)
    }


def _load(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _percent(x: float | None, b: float | None) -> float:
    if x is None or b is None or not (math.isfinite(x) and math.isfinite(b)):
        return math.nan
    return 0.0 if x == b else 100.0 * (x - b) / abs(b) if b else math.nan


def _assumed(runs: Sequence[SimulationRun]) -> Iterator[str]:
    """Yield what is assumed of the jobs of each workload of a benchmark."""
    for workload, folder in {r.workload: r.folder for r in runs}.items():
        metrics = folder / METRICS
        if metrics.is_file() and (words := _json(metrics).get("assumed")):
            yield f"{workload}: assumed: {words}"


def _unfinished(runs: Sequence[SimulationRun]) -> list[str]:
    """Return a sentence per policy that did not finish all jobs."""
    notes = []
    for policy in order_policies(r.policy for r in runs):
        mine = [r for r in runs if r.policy == policy and r.unfinished]
        if mine:
            where = (
                "" if len(runs) == len({r.policy for r in runs}) else f" in {len(mine)} simulations"
            )
            notes.append(
                f"{policy} left {sum(r.unfinished for r in mine):,} jobs unfinished{where};"
                " completion times know finished jobs only and look better for it."
            )
    return notes
