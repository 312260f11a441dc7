"""The tables of the solver benchmarks, also as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


NO_LIES = "No bound lies below a plan that any engine found."


@dataclass(frozen=True)
class SolverTable:
    """The measurements of engines on instances of one size under one set of rules.

    Attributes
    ----------
    about : size, rules, seeds and limits.
    rows : texts below HEAD, one row per engine.
    """

    instance: str
    about: str
    rows: Sequence[Sequence[str]]


def tables(results: Results) -> Iterator[SolverTable]:
    """Yield a table per rule set and size; cells are `median / worst` over the seeds."""
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
        yield SolverTable(
            instance,
            f"{jobs:,} jobs,{warm} {RULES.get(rules, rules)}, "
            f"{seeds} seed{'s' * (seeds > 1)}, asked for {percent(asked)}, limit {limit:g} s",
            [
                list(_cells([r for r in rows if r.engine == engine], best))
                for engine in sorted({r.engine for r in rows}, key=engine_order)
            ],
        )


def describe_lies(results: Results) -> list[str]:
    """Return a line for each bound that lies below a plan of another engine."""
    return [
        f"WRONG: {a.engine} proved {a.bound:.9g} for {a.instance} {a.rules} seed {a.seed},"
        f" {b.engine} found {b.value:.9g}"
        for a, b in results.lies()
    ]


def markdown(results: Results) -> str:
    """Return all tables, and the lies, as Markdown."""
    parts = [f"Machine: {results.machine}."] if results.machine else []
    for table in tables(results):
        head, *rows = (f"| {' | '.join(line)} |" for line in (HEAD, *table.rows))
        parts += [
            f"**{table.instance}**, {table.about}",
            "\n".join([head, "|---" * len(HEAD) + "|", *rows]),
        ]
    parts.append("\n".join(f"- {lie}" for lie in describe_lies(results)) or NO_LIES)
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
    """Return `median / worst` as text.

    If some runs have no number, it is the median of the others and how many have one; "–" if none
    has.
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
    """Return two significant digits, at least to the thousandth."""
    return f"{x:.3f}" if x < 1 else f"{x:.2f}" if x < 10 else f"{x:.0f}"


def percent(x: float) -> str:
    """Return a relative gap in percent; a gap within rounding of 0 is 0."""
    return "0" if abs(x) < 5e-8 else f"{100 * x:.2g} %" if abs(x) < 0.1 else f"{100 * x:.0f} %"
