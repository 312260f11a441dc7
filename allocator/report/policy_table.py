"""The table of a policy report: means over the seeds, change against the baseline with its
interval below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from allocator.report.charts.style import colour
from allocator.report.measures import MEASURES, NOTES, Measure, interval, number, percent, unit_of
from allocator.report.runs import POOLED, Study
from allocator.report.words import best, complete, mean


def table(study: Study, workload: str) -> str:
    """HTML. The full number of every mean is the cell's title; `*` marks the best of a load."""
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
                mean(study, workload, load, p, m.key)
                for load in loads
                for p in study.policies(workload)
            ],
        )
        for m in shown
    }
    head = "".join(
        f'<th title="{escape(NOTES.get(m.key, ""))}">{escape(m.title)}'
        f"<small>{_axis(m, units[m.key][0])}</small></th>"
        for m in shown
    )
    named = loads != [""]
    lines = [
        "<div class=wide><table class=results><thead><tr>"
        + ("<th>load</th>" if named else "")
        + f"<th>policy</th>{head}</tr></thead><tbody>"
    ]
    for load in loads:
        for i, policy in enumerate(
            p for p in study.policies(workload) if study.of(workload, load, p)
        ):
            first = f"<th>{escape(load) if not i else ''}</th>" if named else ""
            cells = "".join(_cell(study, workload, load, policy, m, units[m.key][1]) for m in shown)
            lines.append(
                f"<tr{' class=first' if not i else ''}>{first}{_name(study, policy)}{cells}</tr>"
            )
    lines += _pooled_lines(study, workload, shown)
    return "\n".join([*lines, "</tbody></table></div>"])


def _name(study: Study, policy: str) -> str:
    ground = (
        " <small>baseline</small>" if policy == study.baseline and len(study.policies()) > 1 else ""
    )
    return (
        f'<th class=policy><i style="background:{colour(policy)}"></i>{escape(policy)}{ground}</th>'
    )


def _axis(measure: Measure, unit: str) -> str:
    way = {-1: "↓", 1: "↑"}.get(measure.better, "")
    return " ".join(filter(None, (unit, way))) or "&nbsp;"


def _cell(
    study: Study, workload: str, load: str, policy: str, measure: Measure, size: float
) -> str:
    value = mean(study, workload, load, policy, measure.key)
    if measure.key == "finished":
        return _finished(study, workload, load, policy)
    change = study.change(workload, load, policy, measure.key) if measure.better else None
    below, kind = "", ""
    if change is not None and math.isfinite(change.percent):
        kind = "" if study.single else change.verdict
        below = _describe_change(change.percent, change.low, change.high)
    star = "*" if best(study, workload, load, measure.key) == policy else ""
    text = number(value / size) if math.isfinite(value) else "–"
    full = f' data-metric={measure.key} title="{value!r}"' if math.isfinite(value) else ""
    classes = " ".join(filter(None, (kind, "best" if star else "")))
    return f'<td class="{classes}"{full}>{text}{star}{below}</td>'


def _finished(study: Study, workload: str, load: str, policy: str) -> str:
    done, jobs = (
        sum(r.metrics.get(k, 0.0) for r in study.of(workload, load, policy))
        for k in ("finished", "jobs")
    )
    short = done < jobs or not complete(study, workload, load, policy)
    text = f"{done:,.0f}" + (f" of {jobs:,.0f}" if short else "")
    return (
        f'<td class="{"worse" if short else ""}" data-metric=finished title="{done!r}">{text}</td>'
    )


def _describe_change(change: float, low: float, high: float) -> str:
    span = interval(low, high)
    return f"<small>{percent(change)} %{'<br>' if span else ''}{span}</small>"


def _pooled_lines(study: Study, workload: str, shown: list[Measure]) -> Iterator[str]:
    """Lines of the changes over all loads together."""
    rows = [c for c in study.changes if c.workload == workload and c.load == POOLED]
    for i, policy in enumerate(
        p for p in study.policies(workload) if any(c.policy == p for c in rows)
    ):
        cells = ""
        for m in shown:
            c = study.change(workload, POOLED, policy, m.key)
            known = c is not None and math.isfinite(c.percent)
            cells += (
                f'<td class="{c.verdict}">{_describe_change(c.percent, c.low, c.high)}</td>'
                if c and known
                else "<td></td>"
            )
        first = f"<th>{'all' if not i else ''}</th>"
        yield f"<tr{' class=first' if not i else ''}>{first}{_name(study, policy)}{cells}</tr>"


def key_of(study: Study) -> str:
    """How to read the table."""
    seeds = len({r.seed for r in study.runs})
    if study.single:
        return (
            "↓ less is better, ↑ more is better, * best. Small: change against the baseline. One"
            " simulation gives no interval: whether it would come out so again, <code>allocator"
            " bench policies</code> says."
        )
    few = ""
    if seeds < 6:
        few = (
            f" With {seeds} seed{'s' * (seeds > 1)} the paired test cannot give less than p ="
            f" {2 / 2**seeds:.2g}, so everything stays undecided: ask for 6 seeds or more,"
            " better 10."
        )
    return (
        f"Means over {seeds} seed{'s' * (seeds > 1)}; ↓ less is better, ↑ more is better, * best"
        f" mean of the load. Small: mean change against {escape(study.baseline)} in pairs of the"
        ' same jobs, with its 95 % bootstrap interval; <span class="better">blue</span>: better,'
        ' <span class="worse">orange</span>: worse (interval excludes 0 and Wilcoxon\'s paired'
        f" test gives p &lt; 0.05), neither: undecided.{few}"
    )
