"""The pictures of the solver benchmarks: proven gap against time, and gap and time against size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from allocator.io.plans import write_files
from allocator.report.charts.style import (
    Look,
    bytes_of,
    figure,
    legend,
    plain_ticks,
    report_style,
)
from allocator.report.solvers.results import (
    RULES,
    TITLES,
    Results,
    SolverRun,
    engine_order,
    size_order,
)

FLOOR = 1e-4  # percent: smaller gaps are drawn here
CEILING = 100.0
LOOKS = {
    "auto": Look("#000000", "P"),
    "highs": Look("#0072b2", "s"),
    "cpsat": Look("#e69f00", "^"),
    "pulp": Look("#009e73", "D"),
    "marginal": Look("#7a3b9a", "v"),
    "greedy": Look("#555555", "X"),
}
OTHER = Look("#888888", "*")


def draw(results: Results, folder: Path | str) -> list[Path]:
    """Write curves-RULES.png and sizes-RULES.png for every rule set; return the files.

    Raises UsageError without matplotlib.
    """
    with report_style():
        files = {f"{name}.png": bytes_of(drawn, "png") for name, _, drawn in figures(results)}
    return list(write_files(Path(folder), files).values())


def figures(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, title, figure) of every picture."""
    for rules, turn in sorted({(r.rules, r.round) for r in results.rows}):
        rows = [r for r in results.rows if (r.rules, r.round) == (rules, turn)]
        title, tail = RULES.get(rules, rules), rules
        if turn == "warm":
            title, tail = f"{title}, warm rounds", f"{tail}-warm"
        yield f"curves-{tail}", title, _curves(results, rows, title)
        if len({r.instance for r in rows}) > 1 and rules != "file":
            yield f"sizes-{tail}", title, _sizes(rows, title)


def _curves(results: Results, rows: Sequence[SolverRun], title: str) -> Any:
    """Draw proven gap against CPU seconds for each size: a line per engine and seed.

    An engine that proves nothing has a point.
    """
    sizes = sorted({r.instance for r in rows}, key=size_order)
    width = min(3, len(sizes))
    height = math.ceil(len(sizes) / width)
    drawn = figure(5.2 * width, 3.9 * height + 0.9)
    grid = drawn.subplots(height, width, squeeze=False, sharey=True)
    best = results.best_bound()
    for axes, size in zip(grid.flat, sizes, strict=False):
        here = [r for r in rows if r.instance == size]
        for r in sorted(here, key=lambda r: engine_order(r.engine)):
            steps = _steps(results, r)
            look = LOOKS.get(r.engine, OTHER)
            name = TITLES.get(r.engine, r.engine)
            if steps:
                axes.step(
                    *zip(*steps, strict=True),
                    where="post",
                    color=look.colour,
                    alpha=0.75,
                    linewidth=1.4,
                    marker=look.mark,
                    markersize=6,
                    markevery=[len(steps) - 1],
                    label=name,
                )
            elif r.value > -math.inf and best[r.problem] < math.inf:
                axes.plot(
                    max(r.cpu_s, 1e-3),
                    _percent((best[r.problem] - r.value) / max(abs(r.value), 1e-9)),
                    look.mark,
                    color=look.colour,
                    markersize=7,
                    label=f"{name}: proves nothing,\ngap to others' bound",
                )
        _scales(axes, f"{size}: {max(r.jobs for r in here):,} jobs")
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.set_xlabel("processor time (CPU seconds, log)")
    for axes in list(grid.flat)[len(sizes) :]:
        axes.set_visible(False)
    for line in grid:
        line[0].set_ylabel("proven gap: how far the plan may be\nfrom the best possible (%, log)")
    drawn.suptitle(
        f"How fast each solver proves its plan good: {title}\n"
        "one line per seed, lower and further left is better; the mark is where the run ended",
        fontsize=11,
    )
    legend(drawn, list(grid.flat))
    return drawn


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


def _sizes(rows: Sequence[SolverRun], title: str) -> Any:
    """Draw the final gap, and seconds until the requested gap, over the number of jobs."""
    drawn = figure(11.5, 4.9)
    left, right = drawn.subplots(1, 2)
    _over_jobs(left, rows, lambda r: _percent(r.gap) if r.gap < math.inf else math.nan)
    _over_jobs(right, rows, lambda r: max(r.to_asked, 1e-3))
    _scales(left, "Gap proven when the run ended")
    left.set_ylabel("proven gap (%, log)")
    right.set_title("Time to prove the gap asked for", fontsize=10)
    right.set_yscale("log")
    low, high = right.get_ylim()
    right.set_ylim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high)))
    right.yaxis.set_major_formatter("{x:g}")
    right.grid(True, which="major", alpha=0.3)
    right.set_ylabel("processor time (CPU seconds, log)")
    asked = sorted({r.asked for r in rows})
    limits = sorted({r.limit_s for r in rows})
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("jobs (log)")
        jobs = sorted({r.jobs for r in rows if r.jobs})
        axes.set_xticks(jobs, [f"{j:,}" for j in jobs])
        axes.minorticks_off()
    drawn.suptitle(
        f"Solvers over the size of the cluster: {title}\n"
        "median of the seeds, bars to best and worst; asked for "
        f"{' or '.join(f'{100 * a:g} %' for a in asked)}, limit "
        f"{' or '.join(f'{s:g} s' for s in limits)}; no mark: not reached by every seed",
        fontsize=11,
    )
    legend(drawn, [left, right])
    return drawn


def _over_jobs(axes: Any, rows: Sequence[SolverRun], number: Callable[[SolverRun], float]) -> None:
    engines = sorted({r.engine for r in rows}, key=engine_order)
    for k, engine in enumerate(engines):
        # so that equal values do not cover each other
        aside = 1.03 ** (k - (len(engines) - 1) / 2)
        points = []
        for size in sorted({r.instance for r in rows}, key=size_order):
            found = [(r.jobs, number(r)) for r in rows if r.engine == engine and r.instance == size]
            if found and all(math.isfinite(y) for _, y in found):
                y = [y for _, y in found]
                points.append((aside * found[0][0], statistics.median(y), min(y), max(y)))
        if points:
            x, middle, low, high = zip(*points, strict=True)
            down = [m - lo for m, lo in zip(middle, low, strict=True)]
            up = [hi - m for m, hi in zip(middle, high, strict=True)]
            axes.errorbar(
                x,
                middle,
                yerr=[down, up],
                marker=LOOKS.get(engine, OTHER).mark,
                capsize=3,
                linewidth=1.4,
                color=LOOKS.get(engine, OTHER).colour,
                label=TITLES.get(engine, engine),
            )


def _scales(axes: Any, title: str) -> None:
    """Set a logarithmic axis of gaps in percent, with three usual levels."""
    axes.set_title(title, fontsize=10)
    axes.set_yscale("log")
    axes.set_ylim(FLOOR * 0.7, CEILING)
    ticks = [100, 10, 1, 0.1, 0.01, 0.001, FLOOR]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks[:-1]] + [f"≤ {FLOOR:g}"])
    axes.grid(True, which="major", alpha=0.3)
