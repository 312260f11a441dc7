"""Read simulations back from folders of `allocator simulate` or `allocator bench policies`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from allocator.domain.findings import input_error
from allocator.errors import Fault, InvalidInput, UsageError
from allocator.objects import Json
from allocator.report.measures import BY_KEY, interval, percent
from allocator.report.theme import order_policies

Frame = Any
"""A pandas.DataFrame; what type a column has, its stubs do not know."""
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
    "places": ("policy", "job_id", "node", "gpus", "gpu", "from_s", "to_s", "shared_with"),
    "node_states": ("policy", "node", "gpus", "state", "from_s", "to_s"),
    "fragmentation": ("policy", "at_s", "free", "unusable"),
}
"""The columns that reports need; only simulations with nodes have the last three files."""
SHARED_WITH = "shared_with"
"""Column of spans: the primary job that held the GPUs; empty for the job itself."""
MEMORY_PRICE = "memory_price"
"""Column of spans: dollars per hour for the memory of each GPU, if any pool has a price of it."""
CLOCKS = ("submitted_s", "started_s", "finished_s", "at_s", "from_s", "to_s")
"""The columns with times on the clock of the workload."""
TEXT = (
    *("policy", "job_id", "pool", "node", "state", "fallback", SHARED_WITH),
    *("workload", "load", "task", "baseline", "metric", "verdict"),
)
"""The columns that hold text; all others hold numbers."""
RESULTS_JSON = "results.json"
RESULTS = "results.csv"
LEAST = "least"
"""The policy of rows that bound all policies; it has no files."""
POOLED = "all"
"""The load of rows of comparison.csv that pool all loads of a workload."""
IDENTITY = ("workload", "load", "seed", "policy", "task")
"""The columns of results.csv that are not metrics."""
Key = tuple[str, str, str, str]
KEY = ("workload", "load", "policy", "metric")
CHANGE = ("change_percent", "low_percent", "high_percent")
COMPARISON = (*KEY, "baseline", "n", *CHANGE)
"""The columns of comparison.csv that reports need."""


class Files(dict[tuple[Path, str], Frame]):
    """The CSV files of simulations, each read once, by folder and name.

    Spans get the column `held`: the GPUs that the job itself held. A secondary job has 0, so
    that the GPUs of a colocation count once.
    """

    def __missing__(self, key: tuple[Path, str]) -> Frame:
        """Read a file. Raises InvalidInput for columns that are missing or not numeric."""
        folder, name = key
        more = (SHARED_WITH, MEMORY_PRICE) if name == "spans" else ()
        whole = read_frame(folder / f"{name}.csv", FILES[name], more)
        if name == "spans":
            whole["held"] = whole["gpus"].where(whole[SHARED_WITH].isna(), 0.0)
            whole[MEMORY_PRICE] = whole[MEMORY_PRICE].astype("float64").fillna(0.0)
        self[key] = whole
        return whole


@dataclass(frozen=True, eq=False)
class SimulationRun:
    """One simulation: its metrics (nan for a missing one), and the folder of its CSV files."""

    workload: str
    load: str
    seed: int
    policy: str
    metrics: Mapping[str, float]
    folder: Path
    files: Files

    @property
    def unfinished(self) -> int:
        """The number of jobs that were not finished."""
        left = self.metrics.get("jobs", math.nan) - self.metrics.get("finished", math.nan)
        return int(left) if math.isfinite(left) else 0

    @cached_property
    def begin_s(self) -> float:
        """The first submission, on the clock of the workload; without jobs the first round."""
        for name, column in (("jobs", "submitted_s"), ("timeline", "at_s"), ("spans", "from_s")):
            times = self._read(name)[column]
            if len(times):
                return float(times.min())
        return 0.0

    @cached_property
    def length_s(self) -> float:
        """The last time of which anything is known, since the first submission."""
        frames = [self.frame(name) for name in ("jobs", "timeline", "spans")]
        ends = [frame[c].max() for frame in frames for c in frame if c in CLOCKS]
        return max([0.0, *(float(end) for end in ends if math.isfinite(end))])

    def _read(self, name: str) -> Frame:
        whole = self.files[self.folder, name]
        return whole[whole["policy"] == self.policy]

    def frame(self, name: str) -> Frame:
        """Return a table of FILES; times are since the first submission."""
        table = self._read(name)
        return table.assign(**{c: table[c] - self.begin_s for c in table if c in CLOCKS})


class MetricChange(NamedTuple):
    """A policy against the baseline in one metric.

    `percent` has the 95 % interval from `low` to `high`, nan for a single pair. The verdict is
    better, worse or open.
    """

    workload: str
    load: str
    policy: str
    metric: str
    percent: float
    low: float = math.nan
    high: float = math.nan
    verdict: str = "open"

    @property
    def words(self) -> str:
        """The change and its interval as text."""
        return f"{percent(self.percent)} % {interval(self.low, self.high)}".strip()


@dataclass(frozen=True, eq=False)
class Study:
    """Everything of which a report is made, or the part of one workload.

    Attributes
    ----------
    single : whether it is one folder of `simulate` and not a benchmark.
    changes : by workload, load, policy and metric.
    notes : what a reader should know first.
    """

    single: bool
    baseline: str
    runs: Sequence[SimulationRun]
    changes: Mapping[Key, MetricChange]
    notes: Sequence[str] = ()
    machine: str = ""

    def split(self) -> list[Study]:
        """Return the part of each workload."""
        names = dict.fromkeys(run.workload for run in self.runs)
        return [replace(self, runs=[r for r in self.runs if r.workload == n]) for n in names]

    @property
    def name(self) -> str:
        """The workload, the first of several."""
        return self.runs[0].workload

    @cached_property
    def loads(self) -> list[str]:
        """The loads, by size."""
        return sorted({run.load for run in self.runs}, key=load_order)

    @cached_property
    def policies(self) -> list[str]:
        """The policies in their usual order, the baseline last."""
        return order_policies((run.policy for run in self.runs), self.baseline)

    @property
    def together(self) -> str:
        """The name of all loads together."""
        n = len(self.loads)
        return "both loads" if n == 2 else f"all {n} loads"

    @property
    def is_pooled(self) -> bool:
        """Whether there are changes over all loads together."""
        return any(key[:2] == (self.name, POOLED) for key in self.changes)

    def of(self, load: str, policy: str) -> list[SimulationRun]:
        """Return the runs of a policy at a load."""
        return [run for run in self.runs if (run.load, run.policy) == (load, policy)]

    def sum(self, load: str, policy: str, key: str) -> float:
        """Return the sum of a metric over the seeds."""
        return sum(run.metrics.get(key, 0.0) for run in self.of(load, policy))

    def mean(self, load: str, policy: str, key: str) -> float:
        """Return the mean over the seeds that have a value; nan if none has."""
        figures = (run.metrics.get(key, math.nan) for run in self.of(load, policy))
        values = list(filter(math.isfinite, figures))
        return sum(values) / len(values) if values else math.nan

    def change(self, load: str, policy: str, key: str) -> MetricChange | None:
        """Return the change of a metric, None if it is not known."""
        change = self.changes.get((self.name, load, policy, key))
        return change if change is not None and math.isfinite(change.percent) else None

    def typical_seed(self, load: str) -> int:
        """Return the seed whose mean completion time of the baseline is the (lower) median."""
        runs = self.of(load, self.baseline) or [run for run in self.runs if run.load == load]
        times = [(run.metrics.get("jct_s_mean", math.nan), run.seed) for run in runs]
        by = sorted((x if math.isfinite(x) else math.inf, seed) for x, seed in times)
        return by[(len(by) - 1) // 2][1]


def load_order(load: str) -> tuple[float, str]:
    """Return the sort key of loads as texts of the tables: numbers first."""
    try:
        return float(load), ""
    except ValueError:
        return math.inf, load


def read_frame(path: Path, columns: Sequence[str], more: Sequence[str] | None = None) -> Frame:
    """Read the named columns of a CSV file as texts or floats, and the columns `more`.

    A column of `more` that the file does not have is empty; None: all others. Raises UsageError if
    there is no such file, and InvalidInput for columns that are missing or not numeric.
    """
    import pandas as pd

    if not path.is_file():
        raise UsageError(f'"{path}" is missing')
    try:
        frame: Frame = pd.read_csv(
            path,
            usecols=lambda name: more is None or name in (*columns, *more),
            dtype=dict.fromkeys(TEXT, "str"),
            # a job may be named "NA"; only an empty cell is a missing value
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
        )
    except (pd.errors.EmptyDataError, UnicodeDecodeError):
        needed = f"has no header; the columns {', '.join(columns)} are needed"
        raise input_error(path, needed, 1) from None
    except ValueError as error:
        why = f"cannot be read: {str(error).strip().splitlines()[-1]}"
        raise input_error(path, why) from None
    faults = [Fault(str(path), 1, f'column "{c}" is missing') for c in columns if c not in frame]
    numbers = [c for c in frame if c not in TEXT]
    for name in numbers:
        odd = frame[name].notna() & pd.to_numeric(frame[name], errors="coerce").isna()
        faults += [
            Fault(str(path), int(i) + 2, f'{name} "{frame[name][i]}" is not a number')
            for i in frame.index[odd][:5]
        ]
    if faults:
        raise InvalidInput(faults)
    # without rows pandas does not know that they are numbers
    frame = frame.astype(dict.fromkeys(numbers, "float64"))
    return frame.assign(**{c: None for c in more or () if c not in frame})


def read_simulation(folder: Path) -> Study:
    """Read a folder of `allocator simulate --out`.

    Raises UsageError for missing files, and InvalidInput for invalid ones.
    """
    path = folder / RESULTS_JSON
    document = read_json(path)
    policies = document.get("policies")
    if (
        not isinstance(policies, dict)
        or not policies
        or not all(isinstance(m, dict) for m in policies.values())
    ):
        raise input_error(path, '"policies" should hold the metrics of each policy')
    workload = str(document.get("workload", folder.name))
    seed = int(document.get("seed") or 0)
    baseline = "greedy" if "greedy" in policies else next(iter(policies))
    files = Files()
    metrics = {
        name: {
            key: math.nan if value is None else float(value)
            for key, value in figures.items()
            if value is None or isinstance(value, int | float)
        }
        for name, figures in policies.items()
    }
    runs = [SimulationRun(workload, "", seed, p, m, folder, files) for p, m in metrics.items()]
    changes = {
        key: MetricChange(*key, _compare(figures, metrics[baseline], key[-1]))
        for name, figures in metrics.items()
        if name != baseline
        for key in ((workload, "", name, metric) for metric in BY_KEY)
    }
    for name in ("jobs", "timeline", "rounds", "spans"):
        runs[0].frame(name)
    notes = (*map(str, document.get("warnings") or ()), *_list_unfinished(runs))
    return Study(True, baseline, runs, changes, notes)


def read_benchmark(folder: Path) -> Study:
    """Read a folder of `allocator bench policies --out`: results.csv, comparison.csv, tasks/.

    Raises the errors of read_simulation.
    """
    results = read_frame(folder / RESULTS, IDENTITY).fillna({"load": ""})
    files = Files()
    runs = [
        SimulationRun(
            str(row["workload"]),
            row["load"],
            int(row["seed"]),
            str(row["policy"]),
            {key: value for key, value in row.items() if key not in IDENTITY},
            folder / "tasks" / str(row["task"]),
            files,
        )
        for row in results[results["policy"] != LEAST].to_dict("records")
    ]
    compared, grid, machine = (
        folder / name for name in ("comparison.csv", "grid.json", "machine.txt")
    )
    changes, baseline = dict[Key, MetricChange](), ""
    if compared.is_file():
        for row in read_frame(compared, COMPARISON).fillna({"load": ""}).to_dict("records"):
            cells = [row[name] for name in (*KEY, *CHANGE)]
            change = MetricChange._make((*cells, row.get("verdict", "open")))
            changes.setdefault(change[:4], change)
            baseline = baseline or str(row["baseline"])
    sweep = read_json(grid) if grid.is_file() else {}
    names = [run.policy for run in runs]
    usual = "greedy" if "greedy" in names or not names else names[0]
    tasks = len(sweep.get("tasks", ()))
    notes = [*_list_assumed(runs), *_list_unfinished(runs)]
    if tasks > len(results):
        notes.append(
            f"Incomplete: {tasks - len(results)} of {tasks} simulations"
            " have no result; they failed, or have not run yet."
        )
    words = machine.read_text(encoding="utf-8").strip() if machine.is_file() else ""
    baseline = baseline or str(sweep.get("baseline", "")) or usual
    return Study(False, baseline, runs, changes, notes, words)


def read_json(path: Path) -> Json:
    """Return a JSON object. Raises InvalidInput if it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise input_error(path, f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise input_error(path, "should be a JSON object")
    return document


def _compare(figures: Mapping[str, float], base: Mapping[str, float], key: str) -> float:
    """Return a change in percent, nan if it is not known."""
    x, b = (metrics.get(key, math.nan) for metrics in (figures, base))
    if not (math.isfinite(x) and math.isfinite(b)):
        return math.nan
    return 0.0 if x == b else 100.0 * (x - b) / abs(b) if b else math.nan


def _list_assumed(runs: Sequence[SimulationRun]) -> Iterator[str]:
    """Yield what is assumed of the jobs of each workload of a benchmark."""
    for workload, folder in {r.workload: r.folder for r in runs}.items():
        metrics = folder / "metrics.json"
        if metrics.is_file() and (words := read_json(metrics).get("assumed")):
            yield f"{workload}: assumed: {words}"


def _list_unfinished(runs: Sequence[SimulationRun]) -> Iterator[str]:
    """Yield a sentence per policy that did not finish all jobs."""
    policies = order_policies(r.policy for r in runs)
    for policy in policies:
        left = [r.unfinished for r in runs if r.policy == policy and r.unfinished]
        if left:
            where = "" if len(runs) == len(policies) else f" in {len(left)} simulations"
            yield (
                f"{policy} left {sum(left):,} jobs unfinished{where};"
                " completion times know finished jobs only and look better for it."
            )
