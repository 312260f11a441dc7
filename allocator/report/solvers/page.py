"""The report of the solver benchmarks: proven gaps over time and size, and tables."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from allocator.io.plans import write_files
from allocator.report.chart import COLOURS, INK, Axis, Chart, Mark, Panel, hold, to_svg
from allocator.report.page import HEADING, NOTE, QUIET, TEXT, Picture, Table, write_page
from allocator.report.runs import Frame
from allocator.report.solvers.results import (
    HEAD,
    NO_LIES,
    RULES,
    TITLES,
    Results,
    list_tables,
    read_results,
)

FLOOR = 1e-4  # percent: smaller gaps are drawn here
LEAST_S = 1e-3  # CPU seconds: shorter ones are drawn here
CPU = Axis("processor time, CPU seconds", "log")
GAP = Axis("", "log", FLOOR, 100.0, label=lambda at: f"{at:g} %" if at > FLOOR else f"≤ {FLOOR:g}")
CURVES = (
    "Gap proven over processor time: how far the plan may be from the best possible. One line per"
    " seed; lower and further left is better; a line ends with its run, and a lone point is of an"
    " engine that proves nothing, by the bounds of others."
)
SIZES = "Median of the seeds, and lines from the best to the worst; no mark: not reached by all."


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
            yield Picture(f"sizes-{tail}", title, SIZES, _draw_sizes(rows))


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
    asked = " or ".join(f"{100 * a:g} %" for a in sorted({*rows["gap_asked"]}))
    seconds = Panel(f"CPU seconds until {asked} was proven", took, jobs, Axis(kind="log"))
    panels = [Panel("Gap proven when the run ended", gaps, jobs, GAP), seconds]
    return Chart("solvers over the size of the cluster", panels, 2)


def _draw_over_jobs(rows: Frame) -> list[Mark]:
    """Return the column y: medians of the seeds, and their ends where all have a number."""
    marks = []
    for engine, mine in rows.groupby("engine", observed=True):
        looks, points = _describe(engine), []
        for _, here in mine.groupby("instance", observed=True):
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
