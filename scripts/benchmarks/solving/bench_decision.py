"""Measure the time of one decision: validate, build, solve, audit.

    python scripts/benchmarks/solving/bench_decision.py [--seeds N]
        [--only published|medium] > table.md

The start of processes is excluded: workers are warm. Everything uses one thread.

- published: 100 jobs x 6 sizes x 512 GPUs at gap 1e-4 (the published figure for this job is 0.4 s)
- medium: 500 jobs, 512 GPUs of 4 types, 8 tenants, every kind of rule, at gap 1e-3

Standard output is a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import allocator
from allocator.bench.machine import machine
from allocator.solvers.registry import available
from scripts.cases.clusters import ClusterSpec, generate
from scripts.cases.shipped import MEDIUM, MEDIUM_SEED, PUBLISHED

CASES: dict[str, tuple[ClusterSpec, float, int]] = {
    # spec, gap, first seed
    "published": (PUBLISHED, 1e-4, 1),
    "medium": (MEDIUM, 1e-3, MEDIUM_SEED),
}
RUNS = (
    ("mip", "auto"),
    ("mip", "highs"),
    ("mip", "cpsat"),
    ("mip", "pulp"),
    ("greedy", "auto"),
    ("marginal", "auto"),
)


def measure(spec: ClusterSpec, gap: float, seeds: range, policy: str, solver: str) -> str:
    """Return a row of the table: seconds over the seeds, largest gap, value over the bound."""
    snapshots = [generate(spec, seed).snapshot() for seed in seeds]
    allocator.solve(snapshots[0], policy=policy, solver=solver, gap=gap)  # starts the worker
    seconds, parts, gaps, used = [], [], [], set()
    for snapshot in snapshots:
        begin = time.perf_counter()
        result = allocator.solve(snapshot, policy=policy, solver=solver, gap=gap)
        seconds.append(time.perf_counter() - begin)
        parts.append([result.seconds[p] for p in ("validate", "build", "solve")])
        gaps.append(result.gap)
        used.add(result.solver or "-")
    mean_parts = " / ".join(f"{statistics.mean(p):.3f}" for p in zip(*parts, strict=True))
    name = policy if policy != "mip" else f"mip, {solver}"
    if name == "mip, auto":
        name += f" ({', '.join(sorted(used))})"
    return (
        f"| {spec.name} | {name} | {statistics.mean(seconds):.3f} |"
        f" {statistics.median(seconds):.3f} | {max(seconds):.3f} | {mean_parts} | {max(gaps):.1e} |"
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="snapshots per case (default 5)")
    parser.add_argument("--only", choices=tuple(CASES), help="one case alone")
    args = parser.parse_args()
    print(f"{machine()}; {args.seeds} seeds per row; seconds.\n")
    print(
        "| snapshot | policy | mean | median | max | validate / build / solve (mean) | largest"
        " gap |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (spec, gap, first) in CASES.items():
        if args.only in (None, name):
            for policy, solver in RUNS:
                if solver != "auto" and available(solver) is None:
                    continue
                print(f"{name}: {policy} {solver} ...", file=sys.stderr)
                print(
                    measure(spec, gap, range(first, first + args.seeds), policy, solver), flush=True
                )


if __name__ == "__main__":
    main()
