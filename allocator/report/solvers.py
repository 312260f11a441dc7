"""The report of the solver benchmarks, from runs.csv and trace.csv: tables, and proven gaps over
processor time and size.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from allocator.errors import UsageError
from allocator.io.plans import write_files
from allocator.report.chart import COLOURS, INK, Axis, Chart, Mark, Panel, hold, to_svg
from allocator.report.page import HEADING, NOTE, QUIET, TEXT, Picture, Table, write_page
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
TEXTS = ("instance", "rules", "engine", "round", "run", "ended")
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
FLOOR = 1e-4  # percent: smaller gaps are drawn here
LEAST_S = 1e-3  # CPU seconds: shorter ones are drawn here
CPU = Axis("processor time, CPU seconds", "log")
GAP = Axis("", "log", FLOOR, 100.0, label=lambda at: f"{at:g} %" if at > FLOOR else f"≤ {FLOOR:g}")
CURVES = (
    "Gap proven over processor time: how far the plan may be from the best possible. One line per"
    " seed; lower and further left is better; a line ends with its run, and a lone point is of an"
    " engine that proves nothing, by the bounds of others."
)
OVER_SIZES = (
    "Median of the seeds, and lines from the best to the worst; no mark: not reached by all."
)


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
        best = rows.loc[rows.groupby(PROBLEM, observed=True)["value"].idxmax()]
        both = rows.merge(best[[*PROBLEM, "engine", "value"]], on=PROBLEM, suffixes=("", "_found"))
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

    kinds: Any = dict.fromkeys(TEXTS, "str")
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""]).fillna(UNKNOWN)


def list_tables(results: Results) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield instance, words and rows of a table per rule set and size.

    The words are about size, rules, seeds and limits. Cells are `median / worst` over the seeds.
    """
    groups = results.rows.groupby(
        ["rules", "instance", "round", "gap_asked", "limit_s"], observed=True
    )
    for group, rows in sorted(groups, key=lambda item: [*RULES, item[0][0]].index(item[0][0])):
        rules, instance, turn, gap, limit = group
        seeds = rows["seed"].nunique()
        warm = WARM * (turn == "warm")
        about = (
            f"{rows['jobs'].max():,} jobs,{warm} {RULES.get(rules, rules)}, "
            f"{seeds} seed{'s' * (seeds > 1)}, asked for {percent(gap)}, limit {limit:g} s"
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


def write_solver_report(folder: Path, out: Path) -> Path:
    """Write the report of a folder of `allocator bench solvers --out` as a file; return it."""
    results = read_results(folder)
    parts: list[Picture | Table | Markup] = [*draw(results), HEADING.format("Tables")]
    if results.machine:
        parts.append(TEXT.format(f"Machine: {results.machine}."))
    parts += [Table(f"{name}, {about}", HEAD, rows) for name, about, rows in list_tables(results)]
    parts += [NOTE.format(lie) for lie in results.describe_lies()] or [TEXT.format(NO_LIES)]
    words = "Median / worst over the seeds; CPU seconds until the gap in the head was proven."
    parts.append(QUIET.format(words))
    return write_page(out, "Solver benchmark", parts)


def write_pictures(results: Results, folder: Path | str) -> list[Path]:
    """Write curves-RULES.svg and sizes-RULES.svg for every rule set; return the files."""
    files = {f"{picture.name}.svg": to_svg(picture.chart) for picture in draw(results)}
    return list(write_files(Path(folder), files).values())


def draw(results: Results) -> Iterator[Picture]:
    """Yield every picture."""
    for (rules, turn), rows in results.rows.groupby(["rules", "round"]):
        title, tail = RULES.get(rules, rules), rules
        if turn == "warm":
            title, tail = f"{title}, warm rounds", f"{tail}-warm"
        yield Picture(f"curves-{tail}", title, CURVES, _draw_curves(results, rows))
        if rows["instance"].nunique() > 1 and rules != "file":
            yield Picture(f"sizes-{tail}", title, OVER_SIZES, _draw_sizes(rows))


def _describe(engine: str) -> dict[str, Any]:
    """Return the name and the colour of an engine in pictures."""
    known = list(TITLES)
    colour = COLOURS[known.index(engine)] if engine in TITLES else INK
    return {"name": TITLES.get(engine, engine), "colour": colour}


def _draw_curves(results: Results, rows: Frame) -> Chart:
    """Draw proven gap against CPU seconds, a panel for each size."""
    panels = []
    for size, here in rows.groupby("instance", observed=True):
        marks = []
        for r in here.itertuples():
            trace = results.trace[results.trace["run"] == r.run]
            at, gaps = _list_steps(trace, r.cpu_s)
            if gaps:
                marks.append(Mark("line", *hold(at, gaps), **_describe(r.engine)))
            elif math.isfinite(r.below):
                at, gaps = [max(r.cpu_s, LEAST_S)], [max(FLOOR, 100 * r.below)]
                marks.append(Mark("dots", at, gaps, **_describe(r.engine)))
        title = f"{size}: {here['jobs'].max():,} jobs"
        panels.append(Panel(title, marks, CPU, GAP, height=300))
    return Chart("proven gap over processor time", panels, min(3, len(panels)))


def _list_steps(trace: Frame, end_s: float) -> tuple[list[float], list[float]]:
    """Return CPU seconds and the least gap in percent until then, up to the end of the run."""
    gap = 100 * (trace["bound"] - trace["value"]) / trace["value"].abs().clip(lower=1e-9)
    known = gap < 1e3
    least = gap[known].clip(lower=FLOOR).cummin().tolist()
    return [*trace["cpu_s"][known].clip(lower=LEAST_S), end_s], [*least, *least[-1:]]


def _draw_sizes(rows: Frame) -> Chart:
    """Draw the final gap, and seconds until the requested gap, over the number of jobs."""
    counts = sorted({n for n in rows["jobs"] if n})
    jobs = Axis("jobs", "log", ticks={float(n): f"{n:,}" for n in counts})
    gaps = _draw_over_jobs(rows.assign(y=np.maximum(FLOOR, 100 * rows["gap"])))
    took = _draw_over_jobs(rows.assign(y=np.maximum(LEAST_S, rows["cpu_asked_gap"])))
    targets = " or ".join(f"{100 * a:g} %" for a in sorted({*rows["gap_asked"]}))
    seconds = Panel(f"CPU seconds until {targets} was proven", took, jobs, Axis(kind="log"))
    panels = [Panel("Gap proven when the run ended", gaps, jobs, GAP), seconds]
    return Chart("solvers over the size of the cluster", panels, 2)


def _draw_over_jobs(rows: Frame) -> list[Mark]:
    """Return the column y: medians of the seeds, and their ends where all have a number."""
    marks = []
    for engine, of_engine in rows.groupby("engine", observed=True):
        looks, points = _describe(engine), []
        for _, here in of_engine.groupby("instance", observed=True):
            if np.isfinite(here["y"]).all():
                jobs = here["jobs"].iloc[0]
                points.append((jobs, here["y"].median()))
                ends = [here["y"].min(), here["y"].max()]
                marks.append(Mark("line", [jobs] * 2, ends, colour=looks["colour"]))
        if points:
            x, middle = zip(*points, strict=True)
            marks.append(Mark("line", x, middle, **looks))
            marks.append(Mark("dots", x, middle, colour=looks["colour"]))
    return marks
