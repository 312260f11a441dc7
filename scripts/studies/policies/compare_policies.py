"""Compare every policy on the shipped snapshots and on generated ones.

    # print Markdown, with machine and seeds
    python scripts/studies/policies/compare_policies.py
    # more generated clusters
    python scripts/studies/policies/compare_policies.py --seeds 5

The tables show by how much the greedy loop is below the best plan.

- progress: the sum over jobs of the share of the remaining work that the job completes this round
- throughput: the sum over jobs of the work done this round, in units of what the job would do as
  requested
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np

import allocator
from allocator.domain.snapshot import Snapshot
from scripts.cases.clusters import generate
from scripts.cases.shipped import MEDIUM

POLICIES = ("greedy-naive", "greedy", "marginal", "mip")
SHIPPED = Path(__file__).resolve().parents[3] / "data" / "snapshots"


def main() -> None:
    """Print one table per kind of snapshot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="generated clusters like `medium` (default 3)"
    )
    seeds = range(1, 1 + parser.parse_args().seeds)
    print(
        f"Machine: {platform.machine()}, Python {platform.python_version()}; generated: seeds"
        f" {list(seeds)}\n"
    )
    print(
        "| objective | snapshot | policy | value | of the best possible at least | jobs | GPUs |"
        " $/h |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for objective in ("progress", "throughput"):
        for name in ("demo", "medium"):
            rows([allocator.read_snapshot(SHIPPED / name)], name, objective)
        rows(
            [generate(MEDIUM, seed).snapshot() for seed in seeds],
            f"{len(seeds)} like medium, mean",
            objective,
        )


def rows(snapshots: list[Snapshot], name: str, objective: str) -> None:
    """Print one line per policy: means over the snapshots, shares of the bound of `mip`."""
    bounds = [
        allocator.solve(s, gap=1e-3, objective=objective, time_limit_s=10).bound for s in snapshots
    ]
    for policy in POLICIES:
        results = [
            allocator.solve(s, policy=policy, gap=1e-3, objective=objective, time_limit_s=10)
            for s in snapshots
        ]
        value = np.mean([r.objective_value for r in results])
        share = np.mean([r.objective_value / b for r, b in zip(results, bounds, strict=True)])
        served = np.mean([sum(g > 0 for g in r.jobs["gpus"]) for r in results])
        used = np.mean([sum(r.jobs["gpus"]) for r in results])
        cost = np.mean([r.budget.spent_per_hour for r in results])
        print(
            f"| {objective} | {name} | {policy} | {value:.2f} | {share:.2%} "
            f"| {served:.0f} | {used:.0f} | {cost:.0f} |"
        )


if __name__ == "__main__":
    main()
