"""Measure variants of the published experiment: `mip` against `greedy`.

    # write the tables between the marks of the page
    python scripts/reproductions/measure_variants.py [--seeds 10] [--page docs/reproduction.md]

The variants have ageing, exact rounds or early rounds.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from page import put

from allocator.bench.machine import machine
from allocator.bench.workloads import generate
from allocator.simulator import SimulationOptions, simulate

LOADS = (0.24, 0.30, 0.36)
VARIANTS: dict[str, dict[str, float]] = {  # name -> options of both policies
    "as above": {},
    "gap 1e-6": {"gap": 1e-6},
    "ageing 8 h": {"ageing_s": 28_800.0},
    "ageing 2 h": {"ageing_s": 7_200.0},
    "ageing 30 min": {"ageing_s": 1_800.0},
    "ageing 5 min": {"ageing_s": 300.0},
    # after arrivals and completions, at least a minute apart
    "early rounds": {"react_s": 60.0},
}
COLUMNS = {
    "queueing": "queue_s_mean",
    "queueing p99": "queue_s_p99",
    "completion": "jct_s_mean",
    "completion p99": "jct_s_p99",
    "efficiency": "efficiency_mean",
    "makespan": "makespan_s",
    "worst unfairness": "ftf_max",
}
BEGIN, END = "<!-- table: scripts/reproductions/measure_variants.py -->", "<!-- end of table -->"
Case = tuple[float, int, str, str]


def measure(case: Case) -> list[float]:
    """Return the metrics of COLUMNS of one simulation."""
    load, seed, policy, variant = case
    workload = generate("reproduction", seed=seed, load=load).workload()
    options = SimulationOptions(objective="progress", prove_every=0, **VARIANTS[variant])
    found: dict[str, Any] = simulate(workload, policy=policy, options=options).metrics
    return [found[key] for key in COLUMNS.values()]


def main() -> None:
    """Simulate and print or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 .. N-1 (default: 10)")
    parser.add_argument("--workers", type=int, default=2, help="simulations at a time (default: 2)")
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    args = parser.parse_args()
    cases: list[Case] = [
        (load, seed, policy, variant)
        for load in LOADS
        for variant in VARIANTS
        for policy in ("greedy", "mip")
        for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.workers) as pool:
        found = np.array(list(pool.map(measure, cases)))
    mean = found.reshape(len(LOADS), len(VARIANTS), 2, args.seeds, len(COLUMNS)).mean(axis=3)
    lines = [
        (
            f"Machine: {machine()}. Seeds 0 to {args.seeds - 1}; change of the means against"
            " `greedy` under the same options, in percent."
        ),
        "",
        "| jobs/min | variant | " + " | ".join(COLUMNS) + " |",
        "|---|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for i, load in enumerate(LOADS):
        for k, variant in enumerate(VARIANTS):
            change = 100 * (mean[i, k, 1] / mean[i, k, 0] - 1)
            lines.append(
                f"| {load} | {variant} | " + " | ".join(f"{c:+.1f}" for c in change) + " |"
            )
    text = "\n".join(lines)
    put(text, args.page, BEGIN, END)


if __name__ == "__main__":
    main()
