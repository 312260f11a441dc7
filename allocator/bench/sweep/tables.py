"""The tables of a sweep: results.csv, comparison.csv and comparison.md.

results.csv has a row per finished task. The other two compare every policy with a baseline.
docs/policies.md explains the columns.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

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
NAMED = ("workload", "load", "policy", "baseline", "metric")
FIELDS = (*NAMED, *(field.name for field in fields(PairedComparison)), "verdict")

NAMES = ("workload", "load", "seed", "policy")
Row = Mapping[str, Any]
Frame = Any
"""A pandas.DataFrame, which is loaded where one is made."""


def write_tables(store: SweepStore, tasks: Sequence[SweepTask], baseline: str) -> str:
    """Write the three files from the finished tasks; return the Markdown."""
    import pandas as pd

    results = list_results({task: store.metrics(task) for task in tasks if store.is_done(task)})
    rows = comparisons(results, baseline)
    text = markdown(rows, results, len(tasks), baseline)
    compared = pd.DataFrame(rows, columns=[*FIELDS], dtype=object)
    tables = {RESULTS: results.drop(columns=ASSUMED), COMPARISON: compared}
    files = {name: table.to_csv(index=False) for name, table in tables.items()}
    write_files(store.folder, {**files, COMPARISON_TEXT: text})
    return text


def list_results(metrics: Mapping[SweepTask, Row]) -> Frame:
    """Return a row per task, with its metrics; a load is text, empty for a folder."""
    import pandas as pd

    rows = [
        {
            **{name: getattr(task, name) for name in NAMES},
            "load": "" if task.load is None else f"{task.load:g}",
            **figures,
            "task": task.key,
        }
        for task, figures in metrics.items()
    ]
    return pd.DataFrame(rows, columns=[*NAMES, *METRICS, "task", ASSUMED], dtype=object)


def comparisons(results: Frame, baseline: str) -> list[Row]:
    """Return a row per workload, load, policy and metric.

    If a workload has several loads, further rows pool all of them.
    """
    rows: list[Row] = []
    for workload, of_workload in results.astype(dict.fromkeys(METRICS, float)).groupby(
        "workload", sort=False
    ):
        loads, policies = of_workload["load"].unique(), of_workload["policy"].unique()
        by_seed = of_workload.pivot(index=["policy", "load"], columns="seed", values=[*COMPARED])
        for policy, metric in itertools.product(policies, COMPARED):
            if policy == baseline or (metric in WHERE_ANY and not (of_workload[metric] > 0).any()):
                continue
            x, b = (
                by_seed[metric].reindex([(name, load) for load in loads]).to_numpy()
                for name in (policy, baseline)
            )
            changes = dict(zip(loads, map(compare, x, b), strict=True))
            if len(loads) > 1:
                changes[POOLED] = compare(x, b)
            rows += (
                {
                    **dict(zip(NAMED, (workload, load, policy, baseline, metric), strict=True)),
                    **asdict(c),
                    "verdict": c.verdict(metric in MORE_IS_BETTER),
                }
                for load, c in changes.items()
            )
    return rows


def markdown(rows: Sequence[Row], results: Frame, tasks: int, baseline: str) -> str:
    """Return the comparison as one table per workload, with what is needed to judge it."""
    n = max((row["n"] for row in rows), default=0)
    short = int((results["finished"] < results["jobs"]).sum())
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
    if len(results) < tasks:
        lines += [f"Incomplete: {tasks - len(results)} of {tasks} tasks have no result.", ""]
    if short:
        lines += [
            (
                f"In {short} of {len(results)} simulations not every job finished; completion times"
                " leave those jobs out."
            ),
            "",
        ]
    for workload, assumed in results.groupby("workload", sort=False)[ASSUMED]:
        lines += [
            line
            for words in assumed.dropna().unique()
            for line in (f"{workload}: assumed: {words}", "")
        ]
    for workload, of_workload in results.groupby("workload", sort=False):
        here = [row for row in rows if row["workload"] == workload]
        if here:
            lines += [f"## {workload}", "", *table(here), "", *_reached(of_workload)]
    return "\n".join(lines)


def _reached(results: Frame) -> Iterator[str]:
    """Yield a paragraph per load: the bound, and how close to it each policy comes."""
    policies = [policy for policy in results["policy"].unique() if policy != LEAST]
    for load, of_load in results.astype({MEAN: float}).groupby("load", sort=False):
        mean_s = of_load.pivot(index="policy", columns="seed", values=MEAN)
        if LEAST not in mean_s.index:
            continue
        least = mean_s.loc[LEAST].dropna()
        share = (least / mean_s.reindex(policies)).mean(axis=1).dropna()
        at = f"At load {load} no" if load else "No"
        yield (
            f"{at} policy, even one that knows everything, can have a mean completion below"
            f" {least.mean():,.0f} s (`{LEAST}`). This bound divided by the"
            f" mean completion of each policy:"
            f" {', '.join(f'{policy} {part:.0%}' for policy, part in share.items())}."
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
    change, low, high = (row[name] for name in ("change_percent", "low_percent", "high_percent"))
    if math.isnan(change):
        return "–"
    mark = {"better": "**{}**", "worse": "_{}_"}.get(row["verdict"], "{}")
    interval = "" if math.isnan(low) else f" [{low:+.1f}, {high:+.1f}]"
    return mark.format(f"{change:+.1f}") + interval
