"""Results of the solver benchmarks, read back from runs.csv and trace.csv, and their tables."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.errors import UsageError
from allocator.report.runs import Frame

TOLERANCE = 1e-7  # relative, between a bound and a plan of equal value
SIZES = ("S", "M", "L", "XL", "XXL")
RULES = {
    "standard": "standard rules (20 tenants, quotas, budget)",
    "tenants": "100 tenants",
    "all": "every rule (100 tenants, guarantees, limit on change, 5 % may not move)",
    "file": "files",
}
TITLES = {
    "auto": "auto (own proof)",
    "highs": "HiGHS",
    "cpsat": "CP-SAT",
    "pulp": "PuLP with CBC",
    "marginal": "marginal (prices, no solver)",
    "greedy": "plain greedy",
}
PROBLEM = ["rules", "instance", "seed", "round"]
"""The columns that say what was solved, without the engine."""
TEXT = ("instance", "rules", "engine", "round", "run", "ended")
SECONDS = {
    "cpu_first_plan": "first plan",
    "cpu_1pct": "1 %",
    "cpu_0.1pct": "0.1 %",
    "cpu_0.01pct": "0.01 %",
    "cpu_asked_gap": "asked gap",
    "cpu_s": "whole run",
}
"""Columns of CPU seconds, and their heads; inf means never."""
HEAD = ("engine", "runs", *SECONDS.values(), "gap proven", "below best bound", "peak MB")
UNKNOWN = {"value": -math.inf, **dict.fromkeys(("bound", "gap", *SECONDS), math.inf), "jobs": 0}
"""What an empty cell stands for."""
WARM = " warm rounds (2 % of the jobs replaced, 5 % of the values moved),"
NO_LIES = "No bound lies below a plan that any engine found."


@dataclass(frozen=True)
class Results:
    """All results.

    Attributes
    ----------
    rows : those of runs.csv, by engine and size; `below` is how far the plan is from the tightest
    bound that any engine proved for the problem. Gaps are relative.
    trace : the rows of trace.csv.
    machine : one line.
    """

    rows: Frame
    trace: Frame
    machine: str

    def describe_lies(self) -> list[str]:
        """Return a line for each bound that lies below a plan of another engine.

        Correct engines give no such line.
        """
        rows = self.rows.sort_index()
        found = rows.loc[rows.groupby(PROBLEM, observed=True)["value"].idxmax()]
        both = rows.merge(found[[*PROBLEM, "engine", "value"]], on=PROBLEM, suffixes=("", "_found"))
        return [
            f"WRONG: {a.engine} proved {a.bound:.9g} for {a.instance} {a.rules} seed {a.seed},"
            f" {a.engine_found} found {a.value_found:.9g}"
            for a in both.itertuples()
            if a.bound < a.value_found * (1 - math.copysign(TOLERANCE, a.value_found))
        ]


def read_results(folder: Path | str) -> Results:
    """Return the results in a folder; raise UsageError if it has none."""
    folder = Path(folder)
    about = f'"{folder}" holds no results of the solver benchmarks'
    try:
        rows, trace = (_read(folder / name) for name in ("runs.csv", "trace.csv"))
        for name, known in (("engine", TITLES), ("instance", SIZES)):
            others = sorted({*rows[name]} - {*known})
            rows[name] = rows[name].astype("category").cat.set_categories([*known, *others], True)
        best = rows.groupby(PROBLEM, observed=True)["bound"].transform("min")
        below = (best - rows["value"]) / rows["value"].abs().clip(lower=1e-9)
        rows = rows.assign(below=below, jobs=rows["jobs"].astype(int))
        rows = rows.sort_values(["engine", "instance"], kind="stable")
        machine = folder / "machine.txt"
        words = machine.read_text(encoding="utf-8").strip() if machine.exists() else ""
        return Results(rows, trace, words)
    except FileNotFoundError as error:
        raise UsageError(f"{about}: {Path(error.filename).name} is missing") from error
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"{about}: {error}") from error


def _read(path: Path) -> Frame:
    import pandas as pd

    kinds: Any = dict.fromkeys(TEXT, "str")
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""]).fillna(UNKNOWN)


def list_tables(results: Results) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield instance, words and rows of a table per rule set and size.

    The words are about size, rules, seeds and limits. Cells are `median / worst` over the seeds.
    """
    groups = results.rows.groupby(
        ["rules", "instance", "round", "gap_asked", "limit_s"], observed=True
    )
    for group, rows in sorted(groups, key=lambda item: [*RULES, item[0][0]].index(item[0][0])):
        rules, instance, turn, asked, limit = group
        seeds = rows["seed"].nunique()
        warm = WARM * (turn == "warm")
        about = (
            f"{rows['jobs'].max():,} jobs,{warm} {RULES.get(rules, rules)}, "
            f"{seeds} seed{'s' * (seeds > 1)}, asked for {percent(asked)}, limit {limit:g} s"
        )
        engines = rows.groupby("engine", observed=True)
        yield instance, about, [list(_list_cells(engine, here)) for engine, here in engines]


def _list_cells(engine: str, rows: Frame) -> Iterator[str]:
    yield TITLES.get(engine, engine)
    strange = Counter(e for e in rows["ended"] if e in ("killed", "failed", "infeasible"))
    yield ", ".join([str(len(rows)), *(f"{n} {what}" for what, n in strange.items())])
    shown = dict.fromkeys(SECONDS, seconds) | {"gap": percent, "below": percent}
    for name, show in {**shown, "peak_mb": "{:.0f}".format}.items():
        yield _pair(rows[name], show)


def _pair(numbers: Frame, show: Callable[[float], str]) -> str:
    """Return `median / worst` as text.

    If some runs have no number, it is the median of the others and how many have one; "–" if none
    has.
    """
    good = numbers[numbers.abs() < math.inf]
    if not len(good):
        return "–"
    middle = show(good.median())
    if len(good) < len(numbers):
        return f"{middle} ({len(good)} of {len(numbers)})"
    return middle if len(good) == 1 else f"{middle} / {show(good.max())}"


def markdown(results: Results) -> str:
    """Return all tables, and the lies, as Markdown."""
    parts = [f"Machine: {results.machine}."] if results.machine else []
    for instance, about, lines in list_tables(results):
        head, *rows = (f"| {' | '.join(line)} |" for line in (HEAD, *lines))
        parts += [f"**{instance}**, {about}", "\n".join([head, "|---" * len(HEAD) + "|", *rows])]
    parts.append("\n".join(f"- {lie}" for lie in results.describe_lies()) or NO_LIES)
    return "\n\n".join(parts) + "\n"


def seconds(x: float) -> str:
    """Return two significant digits, at least to the thousandth."""
    return f"{x:.3f}" if x < 1 else f"{x:.2f}" if x < 10 else f"{x:.0f}"


def percent(x: float) -> str:
    """Return a relative gap in percent; a gap within rounding of 0 is 0."""
    return "0" if abs(x) < 5e-8 else f"{100 * x:.2g} %" if abs(x) < 0.1 else f"{100 * x:.0f} %"
