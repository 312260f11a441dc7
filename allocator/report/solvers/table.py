"""The Markdown tables of the solver benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from allocator.report.solvers.results import (
    RULES,
    TITLES,
    Results,
    SolverRun,
    engine_order,
    size_order,
)

HEAD = (
    "engine",
    "runs",
    "first plan",
    "1 %",
    "0.1 %",
    "0.01 %",
    "asked gap",
    "whole run",
    "gap proven",
    "below best bound",
    "peak MB",
)


def markdown(results: Results) -> str:
    """A table per rule set and size; cells are `median / worst` over the seeds."""
    parts = [f"Machine: {results.machine}."] if results.machine else []
    best = results.best_bound()
    groups: dict[tuple[str, str, str, float, float], list[SolverRun]] = {}
    for row in results.rows:
        groups.setdefault((row.rules, row.instance, row.round, row.asked, row.limit_s), []).append(
            row
        )
    for group in sorted(
        groups, key=lambda g: ([*RULES, g[0]].index(g[0]), size_order(g[1]), g[2:])
    ):
        (rules, instance, turn, asked, limit), rows = group, groups[group]
        jobs = max(r.jobs for r in rows)
        seeds = len({r.seed for r in rows})
        warm = (
            " warm rounds (2 % of the jobs replaced, 5 % of the values moved),"
            if turn == "warm"
            else ""
        )
        parts.append(
            f"**{instance}**, {jobs:,} jobs,{warm} {RULES.get(rules, rules)}, "
            f"{seeds} seed{'s' * (seeds > 1)}, asked for {percent(asked)}, limit {limit:g} s"
        )
        lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
        for engine in sorted({r.engine for r in rows}, key=engine_order):
            mine = [r for r in rows if r.engine == engine]
            lines.append(f"| {' | '.join(_cells(mine, best))} |")
        parts.append("\n".join(lines))
    lies = results.lies()
    parts.append(
        "No bound lies below a plan that any engine found."
        if not lies
        else "\n".join(
            f"- WRONG: {a.engine} proved {a.bound:.9g} for {a.instance} {a.rules} seed {a.seed},"
            f" {b.engine} found {b.value:.9g}"
            for a, b in lies
        )
    )
    return "\n\n".join(parts) + "\n"


def _cells(
    rows: Sequence[SolverRun], best: dict[tuple[str, str, int, str], float]
) -> Iterable[str]:
    yield TITLES.get(rows[0].engine, rows[0].engine)
    strange: dict[str, int] = {}
    for r in rows:
        if r.ended in ("killed", "failed", "infeasible"):
            strange[r.ended] = strange.get(r.ended, 0) + 1
    yield ", ".join([str(len(rows)), *(f"{n} {what}" for what, n in strange.items())])
    for name in ("first_plan", "to_1", "to_01", "to_001", "to_asked", "cpu_s"):
        yield _pair([getattr(r, name) for r in rows], seconds)
    yield _pair([r.gap for r in rows], percent)
    yield _pair([(best[r.problem] - r.value) / max(abs(r.value), 1e-9) for r in rows], percent)
    yield _pair([r.peak_mb for r in rows], lambda x: f"{x:.0f}")


def _pair(numbers: Sequence[float], show: object) -> str:
    """`median / worst`; where some runs have none: their median and how many have one; "–" where
    none has.
    """
    assert callable(show)
    good = [x for x in numbers if math.isfinite(x)]
    if not good:
        return "–"
    if len(good) < len(numbers):
        return f"{show(statistics.median(good))} ({len(good)} of {len(numbers)})"
    return (
        str(show(good[0]))
        if len(good) == 1
        else f"{show(statistics.median(good))} / {show(max(good))}"
    )


def seconds(x: float) -> str:
    """Two digits that matter, at least to the thousandth."""
    return f"{x:.3f}" if x < 1 else f"{x:.2f}" if x < 10 else f"{x:.0f}"


def percent(x: float) -> str:
    """A relative gap in percent; what is proven to rounding is 0."""
    return "0" if abs(x) < 5e-8 else f"{100 * x:.2g} %" if abs(x) < 0.1 else f"{100 * x:.0f} %"
