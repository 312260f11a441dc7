"""The table of a policy report: means over the seeds, and changes against the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allocator.report.measures import MEASURES, Measure, interval, number, percent, unit_of
from allocator.report.runs import POOLED, MetricChange, Study
from allocator.report.words import best, complete


@dataclass(frozen=True)
class Column:
    """A metric. axis: its unit, and an arrow to its better side."""

    title: str
    note: str
    axis: str


@dataclass(frozen=True)
class Cell:
    """A mean, and in small print its change against the baseline.

    value: the full number, None where there is none. small: lines of small print. classes: of HTML.
    """

    metric: str
    text: str = ""
    value: float | None = None
    small: Sequence[str] = ()
    classes: str = ""


@dataclass(frozen=True)
class Row:
    """A policy at a load. is_first: whether it is the first of its load."""

    load: str
    policy: str
    is_first: bool
    cells: Sequence[Cell]


@dataclass(frozen=True)
class PolicyTable:
    """All metrics of all policies on a workload. has_loads: whether loads have names."""

    has_loads: bool
    columns: Sequence[Column]
    rows: Sequence[Row]


def policy_table(study: Study, workload: str) -> PolicyTable:
    """Return the table of a workload; `*` marks the best of a load."""
    loads = study.loads(workload)
    shown = [
        m
        for m in MEASURES
        if any(
            math.isfinite(v) and (v or m.kind != "money")
            for r in study.runs
            for v in (r.metrics.get(m.key, math.nan),)
        )
    ]
    units = {
        m.key: unit_of(
            m,
            [
                study.mean(workload, load, p, m.key)
                for load in loads
                for p in study.policies(workload)
            ],
        )
        for m in shown
    }
    rows = [
        Row(
            load,
            policy,
            i == 0,
            [_cell(study, workload, load, policy, m, units[m.key][1]) for m in shown],
        )
        for load in loads
        for i, policy in enumerate(
            p for p in study.policies(workload) if study.of(workload, load, p)
        )
    ]
    return PolicyTable(
        loads != [""],
        [Column(m.title, m.note, _axis(m, units[m.key][0])) for m in shown],
        [*rows, *_pooled_lines(study, workload, shown)],
    )


def _axis(measure: Measure, unit: str) -> str:
    way = {-1: "↓", 1: "↑"}.get(measure.better, "")
    return " ".join(filter(None, (unit, way))) or "\N{NO-BREAK SPACE}"


def _cell(
    study: Study, workload: str, load: str, policy: str, measure: Measure, size: float
) -> Cell:
    if measure.key == "finished":
        return _finished(study, workload, load, policy)
    value = study.mean(workload, load, policy, measure.key)
    star = "*" if best(study, workload, load, measure.key) == policy else ""
    change = study.change(workload, load, policy, measure.key) if measure.better else None
    small = _small_print(change)
    verdict = change.verdict if change and small and not study.single else ""
    return Cell(
        measure.key,
        number(value / size) + star,
        value if math.isfinite(value) else None,
        small,
        " ".join(filter(None, (verdict, "best" if star else ""))),
    )


def _finished(study: Study, workload: str, load: str, policy: str) -> Cell:
    done, jobs = (
        sum(r.metrics.get(k, 0.0) for r in study.of(workload, load, policy))
        for k in ("finished", "jobs")
    )
    short = done < jobs or not complete(study, workload, load, policy)
    text = f"{done:,.0f}" + (f" of {jobs:,.0f}" if short else "")
    return Cell("finished", text, done, classes="worse" if short else "")


def _small_print(change: MetricChange | None) -> Sequence[str]:
    if change is None or not math.isfinite(change.percent):
        return ()
    span = interval(change.low, change.high)
    return [f"{percent(change.percent)} %", *([span] if span else [])]


def _pooled_lines(study: Study, workload: str, shown: Sequence[Measure]) -> Iterator[Row]:
    """Yield rows of the changes over all loads together."""
    changed = {c.policy for c in study.changes if (c.workload, c.load) == (workload, POOLED)}
    for i, policy in enumerate(p for p in study.policies(workload) if p in changed):
        changes = [study.change(workload, POOLED, policy, m.key) for m in shown]
        yield Row(
            "all",
            policy,
            i == 0,
            [
                Cell(m.key, small=small, classes=change.verdict if change and small else "")
                for m, change in zip(shown, changes, strict=True)
                for small in (_small_print(change),)
            ],
        )
