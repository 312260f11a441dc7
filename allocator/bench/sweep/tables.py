"""The tables of a sweep: results.csv, comparison.csv and comparison.md.

results.csv has a row per finished task. The other two compare every policy with a baseline.
docs/policies.md explains the columns.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields

from allocator.bench.paired import (
    CONFIDENCE,
    FEWEST_SEEDS,
    LEVEL,
    PairedComparison,
    compare,
)
from allocator.bench.sweep.store import SweepStore
from allocator.bench.sweep.tasks import ASSUMED, LEAST, SweepTask
from allocator.io.plans import write_files

METRICS = (
    "jobs",
    "finished",
    "queue_s_mean",
    "queue_s_median",
    "queue_s_p99",
    "jct_s_mean",
    "jct_s_median",
    "jct_s_p99",
    "makespan_s",
    "efficiency_mean",
    "gpu_hours",
    "dollars",
    "restarts",
    "utilisation",
    "decision_s_mean",
    "decision_s_p99",
    "decision_s_max",
    "gap_mean",
    "gap_max",
    "ftf_mean",
    "ftf_max",
    "rounds",
    "bill_dollars",
    "revocations",
    "deadlines_met",
)
MEAN = "jct_s_mean"
COMPARED = {
    "queue_s_mean": "queueing",
    MEAN: "completion",
    "jct_s_p99": "completion p99",
    "efficiency_mean": "efficiency",
    "makespan_s": "makespan",
    "dollars": "dollars",
    "ftf_max": "unfairness",
    "restarts": "restarts",
    "bill_dollars": "bill",
    "revocations": "GPUs revoked",
}
"""Metrics that are compared with the baseline -> their names in the table.

Less is better, except for those in MORE_IS_BETTER.
"""
WHERE_ANY = ("bill_dollars", "revocations")
"""Metrics that are compared only for workloads in which some value is not 0."""
MORE_IS_BETTER = ("efficiency_mean",)
RESULTS = "results.csv"
COMPARISON = "comparison.csv"
COMPARISON_TEXT = "comparison.md"
POOLED = "all"
"""The load of rows that pool all loads of a workload."""
FIELDS = (
    "workload",
    "load",
    "policy",
    "baseline",
    "metric",
    *(field.name for field in fields(PairedComparison)),
    "verdict",
)

Row = Mapping[str, object]
Metrics = Mapping[SweepTask, Mapping[str, object]]


def write_tables(store: SweepStore, tasks: Sequence[SweepTask], baseline: str) -> str:
    """Write the three files from the finished tasks; return the Markdown."""
    metrics = {task: store.metrics(task) for task in tasks if store.is_done(task)}
    rows = comparisons(metrics, baseline)
    text = markdown(rows, metrics, len(tasks), baseline)
    names = ("workload", "load", "seed", "policy")
    results = [
        {
            **{name: getattr(task, name) for name in names},
            "load": load_text(task.load),
            **{name: found.get(name) for name in METRICS},
            "task": task.key,
        }
        for task, found in metrics.items()
    ]
    tables = {RESULTS: _csv((*names, *METRICS, "task"), results), COMPARISON: _csv(FIELDS, rows)}
    write_files(store.folder, {**tables, COMPARISON_TEXT: text})
    return text


def comparisons(metrics: Metrics, baseline: str) -> list[Row]:
    """Return a row per workload, load, policy and metric.

    If a workload has several loads, further rows pool all of them.
    """
    cells = {(t.workload, t.load, t.policy, t.seed): found for t, found in metrics.items()}
    seeds = sorted({t.seed for t in metrics})
    rows: list[Row] = []
    for workload in dict.fromkeys(t.workload for t in metrics):
        mine = [t for t in metrics if t.workload == workload]
        loads = list(dict.fromkeys(t.load for t in mine))
        compared = [
            name
            for name in COMPARED
            if name not in WHERE_ANY or any(_number(metrics[t].get(name)) > 0 for t in mine)
        ]
        for policy in dict.fromkeys(t.policy for t in mine if t.policy != baseline):
            for metric in compared:
                x, b = (
                    [
                        [
                            _number(cells.get((workload, load, name, s), {}).get(metric))
                            for s in seeds
                        ]
                        for load in loads
                    ]
                    for name in (policy, baseline)
                )
                found = [(load_text(loads[i]), compare(x[i], b[i])) for i in range(len(loads))]
                if len(loads) > 1:
                    found.append((POOLED, compare(x, b)))
                rows += [_row(workload, load, policy, baseline, metric, c) for load, c in found]
    return rows


def markdown(rows: Sequence[Row], metrics: Metrics, tasks: int, baseline: str) -> str:
    """Return the comparison as one table per workload, with what is needed to judge it."""
    n = max((int(str(row["n"])) for row in rows), default=0)
    short = sum(_number(m.get("finished")) < _number(m.get("jobs")) for m in metrics.values())
    lines = [
        f"# Policies against {baseline}",
        "",
        (
            f"Change in percent, mean over {n} seeds, and its {CONFIDENCE:.0%} bootstrap interval."
            " More is better for efficiency, less for everything else. **Bold**: better,"
            " _slanted_: worse (the interval excludes 0 and Wilcoxon's paired test gives p <"
            f" {LEVEL:g}); plain: open."
        ),
        "",
    ]
    if 0 < n < FEWEST_SEEDS:
        lines += [
            (
                f"With {n} seeds that test cannot give less than p = {2 / 2**n:.2g}: everything"
                f" stays open. Ask for {FEWEST_SEEDS} seeds or more."
            ),
            "",
        ]
    if len(metrics) < tasks:
        lines += [f"Incomplete: {tasks - len(metrics)} of {tasks} tasks have no result.", ""]
    if short:
        lines += [
            (
                f"In {short} of {len(metrics)} simulations not every job finished; completion times"
                " leave those jobs out."
            ),
            "",
        ]
    for said in dict.fromkeys(
        f"{t.workload}: assumed: {m[ASSUMED]}" for t, m in metrics.items() if ASSUMED in m
    ):
        lines += [said, ""]
    for workload in dict.fromkeys(row["workload"] for row in rows):
        lines += [
            f"## {workload}",
            "",
            *table([row for row in rows if row["workload"] == workload]),
            "",
            *_reached({t: m for t, m in metrics.items() if t.workload == workload}),
        ]
    return "\n".join(lines)


def _reached(metrics: Metrics) -> Iterator[str]:
    """Yield a paragraph per load: the bound, and how close to it each policy comes."""
    mean_s = {(t.load, t.policy, t.seed): _number(m.get(MEAN)) for t, m in metrics.items()}
    for load in dict.fromkeys(t.load for t in metrics if t.policy == LEAST):
        least = {seed: s for (at, name, seed), s in mean_s.items() if (at, name) == (load, LEAST)}
        shares = []
        for policy in dict.fromkeys(t.policy for t in metrics if t.policy != LEAST):
            found = [s / mean_s.get((load, policy, seed), math.nan) for seed, s in least.items()]
            known = [share for share in found if math.isfinite(share)]
            shares += [f"{policy} {sum(known) / len(known):.0%}"] if known else []
        at = "No" if load is None else f"At load {load_text(load)} no"
        yield (
            f"{at} policy, even one that knows everything, can have a mean completion below"
            f" {sum(least.values()) / len(least):,.0f} s (`{LEAST}`). This bound divided by the"
            f" mean completion of each policy: {', '.join(shares)}."
        )
        yield ""


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the Markdown lines of one workload: one line per load and policy."""
    by = {(row["load"], row["policy"], row["metric"]): row for row in rows}
    there = {row["metric"] for row in rows}
    compared = {metric: name for metric, name in COMPARED.items() if metric in there}
    yield "| load | policy | " + " | ".join(compared.values()) + " |"
    yield "|---|---|" + "---:|" * len(compared)
    for load in dict.fromkeys(row["load"] for row in rows):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            cells = [_cell(by[load, policy, metric]) for metric in compared]
            yield f"| {load} | {policy} | " + " | ".join(cells) + " |"


def _cell(row: Row) -> str:
    change, low, high = (_number(row[k]) for k in ("change_percent", "low_percent", "high_percent"))
    if math.isnan(change):
        return "–"
    mark: Callable[[str], str] = {"better": "**{}**".format, "worse": "_{}_".format}.get(
        str(row["verdict"]), str
    )
    return mark(f"{change:+.1f}") + ("" if math.isnan(low) else f" [{low:+.1f}, {high:+.1f}]")


def _row(
    workload: str, load: str, policy: str, baseline: str, metric: str, c: PairedComparison
) -> Row:
    cells = (workload, load, policy, baseline, metric, *astuple(c))
    return dict(zip(FIELDS, (*cells, c.verdict(metric in MORE_IS_BETTER)), strict=True))


def load_text(load: float | None) -> str:
    """Return a load as text of the tables; empty for a folder."""
    return "" if load is None else f"{load:g}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _csv(fields: Sequence[str], rows: Sequence[Row]) -> str:
    """Return rows as CSV; None and nan are empty cells."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(fields), dtype=object)
    return str(frame.to_csv(index=False, lineterminator="\n"))
