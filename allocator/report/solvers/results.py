"""Read results of the solver benchmarks back from runs.csv and trace.csv."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator.errors import UsageError

TOLERANCE = 1e-7  # relative, between a bound and a plan of equal value
SIZES = ("S", "M", "L", "XL", "XXL")
RULES = {
    "standard": "standard rules (20 tenants, quotas, budget)",
    "tenants": "100 tenants",
    "all": "every rule (100 tenants, guarantees, limit on change, 5 % may not move)",
    "file": "files",
}
ENGINES = ("auto", "highs", "cpsat", "pulp", "marginal", "greedy")
TITLES = {
    "auto": "auto (own proof)",
    "highs": "HiGHS",
    "cpsat": "CP-SAT",
    "pulp": "PuLP with CBC",
    "marginal": "marginal (prices, no solver)",
    "greedy": "plain greedy",
}


@dataclass(frozen=True)
class SolverRun:
    """A row of runs.csv.

    Seconds are CPU seconds; inf means never. Gaps are relative; inf means that none was proven.
    Unknown values are nan.
    """

    instance: str
    rules: str
    seed: int
    engine: str
    asked: float
    limit_s: float
    round: str
    run: str
    jobs: int
    ended: str
    value: float
    bound: float
    gap: float
    cpu_s: float
    first_plan: float
    to_1: float
    to_01: float
    to_001: float
    to_asked: float
    peak_mb: float

    @property
    def problem(self) -> tuple[str, str, int, str]:
        """Return what was solved, without the engine."""
        return self.rules, self.instance, self.seed, self.round


@dataclass(frozen=True)
class Results:
    """All results.

    Attributes
    ----------
    rows : in the order of the file.
    trace : run -> list of (CPU seconds, value, bound).
    machine : one line.
    """

    rows: Sequence[SolverRun]
    trace: Mapping[str, Sequence[tuple[float, float, float]]]
    machine: str

    def best_bound(self) -> dict[tuple[str, str, int, str], float]:
        """Return the tightest bound that any engine proved, per problem; inf if none did."""
        best: dict[tuple[str, str, int, str], float] = {}
        for r in self.rows:
            best[r.problem] = min(best.get(r.problem, math.inf), r.bound)
        return best

    def lies(self) -> list[tuple[SolverRun, SolverRun]]:
        """Return (row, other) if the bound of row lies below a plan that another engine found.

        Correct engines give no such pair.
        """
        best: dict[tuple[str, str, int, str], SolverRun] = {}
        for r in self.rows:
            if r.problem not in best or r.value > best[r.problem].value:
                best[r.problem] = r
        return [
            (r, best[r.problem])
            for r in self.rows
            if r.bound
            < best[r.problem].value * (1 - math.copysign(TOLERANCE, best[r.problem].value))
        ]


def read_results(folder: Path | str) -> Results:
    """Return the results in a folder; raise UsageError if it has none."""
    folder = Path(folder)
    try:
        rows = [_parse_run(row) for row in _rows(folder / "runs.csv")]
        trace: dict[str, list[tuple[float, float, float]]] = {}
        for row in _rows(folder / "trace.csv"):
            trace.setdefault(row["run"], []).append(
                (
                    float(row["cpu_s"]),
                    _float(row["value"], -math.inf),
                    _float(row["bound"], math.inf),
                )
            )
        machine = folder / "machine.txt"
        return Results(
            rows, trace, machine.read_text(encoding="utf-8").strip() if machine.exists() else ""
        )
    except FileNotFoundError as error:
        raise UsageError(
            f'"{folder}" holds no results of the solver benchmarks: {Path(error.filename).name} is '
            "missing"
        ) from error
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(
            f'"{folder}" holds no results of the solver benchmarks: {error}'
        ) from error


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as source:
        yield from csv.DictReader(source)


def _float(text: str, empty: float) -> float:
    return float(text) if text else empty


def _parse_run(row: dict[str, str]) -> SolverRun:
    def seconds(name: str) -> float:
        return _float(row[name], math.inf)

    return SolverRun(
        row["instance"],
        row["rules"],
        int(row["seed"]),
        row["engine"],
        float(row["gap_asked"]),
        float(row["limit_s"]),
        row["round"],
        row["run"],
        int(row["jobs"] or 0),
        row["ended"],
        _float(row["value"], -math.inf),
        _float(row["bound"], math.inf),
        _float(row["gap"], math.inf),
        seconds("cpu_s"),
        seconds("cpu_first_plan"),
        seconds("cpu_1pct"),
        seconds("cpu_0.1pct"),
        seconds("cpu_0.01pct"),
        seconds("cpu_asked_gap"),
        _float(row["peak_mb"], math.nan),
    )


def size_order(instance: str) -> tuple[int, str]:
    """Return a sort key: the sizes by their jobs, then everything else by name."""
    return (SIZES.index(instance), "") if instance in SIZES else (len(SIZES), instance)


def engine_order(engine: str) -> tuple[int, str]:
    """Return a sort key: the engines in their usual order, then others by name."""
    return (ENGINES.index(engine), "") if engine in ENGINES else (len(ENGINES), engine)
