"""The report of the solver benchmarks: proven gaps over time and size, and tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from allocator.io.plans import write_files
from allocator.report.chart import COLOURS, INK, Axis, Chart, Mark, Panel, hold, to_svg
from allocator.report.page import HEADING, NOTE, QUIET, TEXT, Picture, Table, write_page
from allocator.report.solvers.results import (
    ENGINES,
    RULES,
    TITLES,
    Results,
    SolverRun,
    engine_order,
    read_results,
    size_order,
)
from allocator.report.solvers.table import HEAD, NO_LIES, describe_lies, tables

FLOOR = 1e-4  # percent: smaller gaps are drawn here
CPU = Axis("processor time, CPU seconds", "log")
GAP = Axis("", "log", FLOOR, 100.0, label=lambda at: f"{at:g} %" if at > FLOOR else f"≤ {FLOOR:g}")
CURVES = (
    "Gap proven over processor time: how far the plan may be from the best possible. One line per"
    " seed; lower and further left is better; a line ends with its run, and a lone point is of an"
    " engine that proves nothing, by the bounds of others."
)
SIZES = "Median of the seeds, and lines from the best to the worst; no mark: not reached by all."


def write_solver_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a folder of `allocator bench solvers --out`; return its path.

    The parameters are those of policies.write_policy_report.
    """
    results = read_results(folder)
    parts: list[Picture | Table | Markup] = [*draw(results), HEADING.format("Tables")]
    if results.machine:
        parts.append(TEXT.format(f"Machine: {results.machine}."))
    parts += [Table(f"{one.instance}, {one.about}", HEAD, one.rows) for one in tables(results)]
    lies = describe_lies(results)
    parts += [NOTE.format(lie) for lie in lies] or [TEXT.format(NO_LIES)]
    words = "Median / worst over the seeds; CPU seconds until the gap in the head was proven."
    parts.append(QUIET.format(words))
    return write_page(Path(out) if out else Path(folder) / "report.html", "Solver benchmark", parts)


def write_pictures(results: Results, folder: Path | str) -> list[Path]:
    """Write curves-RULES.svg and sizes-RULES.svg for every rule set; return the files."""
    files = {f"{picture.name}.svg": to_svg(picture.chart) for picture in draw(results)}
    return list(write_files(Path(folder), files).values())


def draw(results: Results) -> Iterator[Picture]:
    """Yield every picture."""
    for rules, turn in sorted({(r.rules, r.round) for r in results.rows}):
        rows = [r for r in results.rows if (r.rules, r.round) == (rules, turn)]
        title, tail = RULES.get(rules, rules), rules
        if turn == "warm":
            title, tail = f"{title}, warm rounds", f"{tail}-warm"
        yield Picture(f"curves-{tail}", title, CURVES, _draw_curves(results, rows))
        if len({r.instance for r in rows}) > 1 and rules != "file":
            yield Picture(f"sizes-{tail}", title, SIZES, _draw_sizes(rows))


def _colour(engine: str) -> str:
    return COLOURS[ENGINES.index(engine)] if engine in ENGINES else INK


def _draw_curves(results: Results, rows: Sequence[SolverRun]) -> Chart:
    """Draw proven gap against CPU seconds, a panel for each size."""
    best = results.best_bound()
    panels = []
    for size in sorted({r.instance for r in rows}, key=size_order):
        here = [r for r in rows if r.instance == size]
        marks = []
        for r in sorted(here, key=lambda r: engine_order(r.engine)):
            name = TITLES.get(r.engine, r.engine)
            found = _steps(results, r)
            if found:
                at, gap = zip(*found, strict=True)
                marks.append(Mark("line", *hold(at, gap), name, _colour(r.engine)))
            elif r.value > -math.inf and best[r.problem] < math.inf:
                far = _percent((best[r.problem] - r.value) / max(abs(r.value), 1e-9))
                marks.append(Mark("dots", [max(r.cpu_s, 1e-3)], [far], name, _colour(r.engine)))
        title = f"{size}: {max(r.jobs for r in here):,} jobs"
        panels.append(Panel(title, marks, CPU, GAP, height=300))
    return Chart("proven gap over processor time", panels, min(3, len(panels)))


def _steps(results: Results, row: SolverRun) -> list[tuple[float, float]]:
    """Return (CPU seconds, gap in percent) at every change of the gap."""
    steps: list[tuple[float, float]] = []
    for cpu, value, bound in results.trace.get(row.run, ()):
        if not (math.isfinite(value) and math.isfinite(bound)):
            continue
        gap = _percent((bound - value) / max(abs(value), 1e-9))
        if gap < 1e3 and (not steps or gap < steps[-1][1] or cpu == row.cpu_s):
            steps.append((max(cpu, 1e-3), gap))
    if steps and steps[-1][0] < row.cpu_s:
        steps.append((row.cpu_s, steps[-1][1]))
    return steps


def _percent(gap: float) -> float:
    return max(FLOOR, 100 * gap)


def _draw_sizes(rows: Sequence[SolverRun]) -> Chart:
    """Draw the final gap, and seconds until the requested gap, over the number of jobs."""
    counts = sorted({r.jobs for r in rows if r.jobs})
    jobs = Axis("jobs", "log", ticks={float(n): f"{n:,}" for n in counts})
    gaps = _over_jobs(rows, lambda r: _percent(r.gap) if r.gap < math.inf else math.nan)
    took = _over_jobs(rows, lambda r: max(r.to_asked, 1e-3))
    asked = " or ".join(f"{100 * a:g} %" for a in sorted({r.asked for r in rows}))
    seconds = Panel(f"CPU seconds until {asked} was proven", took, jobs, Axis(kind="log"))
    panels = [Panel("Gap proven when the run ended", gaps, jobs, GAP), seconds]
    return Chart("solvers over the size of the cluster", panels, 2)


def _over_jobs(rows: Sequence[SolverRun], number: Callable[[SolverRun], float]) -> list[Mark]:
    marks = []
    for engine in sorted({r.engine for r in rows}, key=engine_order):
        points = []
        for size in sorted({r.instance for r in rows}, key=size_order):
            here = [r for r in rows if (r.engine, r.instance) == (engine, size)]
            y = [number(r) for r in here]
            if y and all(map(math.isfinite, y)):
                points.append((here[0].jobs, statistics.median(y)))
                ends = [here[0].jobs] * 2, [min(y), max(y)]
                marks.append(Mark("line", *ends, colour=_colour(engine)))
        if points:
            x, middle = zip(*points, strict=True)
            name = TITLES.get(engine, engine)
            marks.append(Mark("line", x, middle, name, _colour(engine)))
            marks.append(Mark("dots", x, middle, colour=_colour(engine)))
    return marks
