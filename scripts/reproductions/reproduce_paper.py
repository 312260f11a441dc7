"""Reproduce the published result: MIP against greedy on the workload `reproduction`.

    python scripts/reproductions/reproduce_paper.py --out results > tables.md

The published system is the elastic MIP allocator (Hu et al. 2021). The script can be stopped and
continued like every sweep of `allocator bench policies`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.paired import PairedComparison, compare
from allocator.bench.sweep.executors import on_processes
from allocator.bench.sweep.store import SweepStore
from allocator.bench.sweep.tables import (
    COMPARED,
    POOLED,
    comparisons,
    list_results,
    table,
    write_tables,
)
from allocator.bench.sweep.tasks import SweepTask, grid
from allocator.cli.measure.bench import run
from allocator.simulator import SimulationOptions

LOADS = (0.24, 0.30, 0.36)
POLICIES = ("greedy", "static", "greedy-naive", "mip")
JOBS = 250
COLUMNS = (  # heading, metric, unit, digits
    ("queueing, min", "queue_s_mean", 60, 1),
    ("completion, min", "jct_s_mean", 60, 1),
    ("completion p99, min", "jct_s_p99", 60, 0),
    ("efficiency", "efficiency_mean", 1, 2),
    ("makespan, h", "makespan_s", 3600, 1),
    ("GPU-hours", "gpu_hours", 1, 0),
    ("restarts", "restarts", 1, 0),
    ("worst unfairness", "ftf_max", 1, 1),
    ("decision, s", "decision_s_mean", 1, 3),
    ("longest, s", "decision_s_max", 1, 2),
)
TARGETS = (  # load, metric, least change asked for in percent, whether more is better
    (0.30, "queue_s_mean", -32.0, False),
    (0.36, "queue_s_mean", -32.0, False),
    (0.30, "efficiency_mean", 24.0, True),
    (0.36, "efficiency_mean", 24.0, True),
    (0.24, "jct_s_mean", 3.0, False),
)
NAMES = {
    "queue_s_mean": "mean queueing",
    "efficiency_mean": "training efficiency",
    "jct_s_mean": "mean completion time",
}
Metrics = Mapping[SweepTask, Mapping[str, object]]


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", default="reproduction", help="folder of the results (default: reproduction)"
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 .. N-1 (default: 10)")
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help=f"jobs per simulation (default: {JOBS})"
    )
    parser.add_argument("--workers", type=int, help="simulations at a time (default: the cores)")
    args = parser.parse_args()
    tasks = grid(
        [SweepTask("reproduction", load, jobs=args.jobs) for load in LOADS],
        POLICIES,
        args.seeds,
        SimulationOptions(objective="progress"),
    )
    with SweepStore(args.out) as store:
        store.save_request(tasks, POLICIES[0])
        if run(tasks, store, on_processes(args.workers)):
            sys.exit(1)
        write_tables(store, tasks, POLICIES[0])
        text = tables({task: store.metrics(task) for task in tasks}, args.seeds, args.jobs)
    print(text)


def tables(metrics: Metrics, seeds: int, jobs: int) -> str:
    """Return the tables."""
    compared = comparisons(list_results(metrics), "greedy")
    return "\n".join(
        (
            (
                f"Machine: {machine()}. Seeds 0 to {seeds - 1}, {jobs} jobs each; one simulation"
                " per core at a time, so that decision times hold whatever else the machine did."
            ),
            "",
            "Targets, `mip` against `greedy`:",
            "",
            *targets(metrics),
            "",
            f"Means over {seeds} seeds:",
            "",
            *means(metrics),
            "",
            (
                "Change against `greedy` in percent, mean over seeds and its 95 % bootstrap"
                " interval. **Bold**: better, _slanted_: worse (interval without 0, Wilcoxon's"
                " paired p below 5 %); plain: open."
            ),
            "",
            *table(compared),
            "",
            "Where `mip` is worse than `greedy`, by that rule:",
            "",
            *losses(compared),
        )
    )


def losses(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return one line per metric in which mip loses at some load."""
    lost: dict[str, list[str]] = {}
    for row in rows:
        if (row["policy"], row["verdict"]) == ("mip", "worse") and row["load"] != POOLED:
            lost.setdefault(str(row["metric"]), []).append(
                f"{row['change_percent']:+.0f} % at {row['load']}"
            )
    return [f"- {COMPARED[metric]}: {', '.join(where)}" for metric, where in lost.items()] or [
        "- nowhere"
    ]


def targets(metrics: Metrics) -> list[str]:
    """Return one line per target: asked for, found, kept or missed and by how much."""
    lines = [
        "| load | | asked for | change of the means | | mean of the changes (interval) | |",
        "|---|---|---|---:|---|---:|---|",
    ]
    for load, metric, asked, more in TARGETS:
        c = against_greedy(metrics, load, metric)
        lines.append(
            f"| {load:g} | {NAMES[metric]} | {'at least' if more else 'at most'} {asked:+g} % "
            f"| {c.of_means_percent:+.1f} % | {kept(c.of_means_percent, asked, more)} "
            f"| {c.change_percent:+.1f} % [{c.low_percent:+.1f}, {c.high_percent:+.1f}] "
            f"| {kept(c.change_percent, asked, more)} |"
        )
    return lines


def kept(found: float, asked: float, more: bool) -> str:
    """Return whether a target is kept, and by how many percentage points it is missed."""
    short = asked - found if more else found - asked
    return "kept" if short <= 0 else f"**missed** by {short:.1f}"


def against_greedy(metrics: Metrics, load: float, metric: str) -> PairedComparison:
    """Compare `mip` with `greedy` at one load."""
    x, b = (
        [
            float(str(found[metric]))
            for task, found in metrics.items()
            if (task.load, task.policy) == (load, name)
        ]
        for name in ("mip", "greedy")
    )
    return compare(x, b)


def means(metrics: Metrics) -> list[str]:
    """Return a row per load and policy."""
    lines = [
        "| load | policy | " + " | ".join(c[0] for c in COLUMNS) + " |",
        "|---|---|" + "---:|" * len(COLUMNS),
    ]
    for load in LOADS:
        for policy in ("static", "greedy-naive", "greedy", "mip"):
            rows = [
                found
                for task, found in metrics.items()
                if (task.load, task.policy) == (load, policy)
            ]
            cells = [
                f"{np.mean([float(str(row[metric])) for row in rows]) / unit:.{digits}f}"
                for _, metric, unit, digits in COLUMNS
            ]
            lines.append(f"| {load:g} | {policy} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
