"""Measure the distribution of the time of one decision over many seeds, old and new code in turn.

    python scripts/benchmarks/bench_tail.py [--jobs 100,500,2000,10000] [--families one,tight]
        [--seeds 20] [--first 0] [--base FOLDER] > table.md

Every family has as many GPUs as jobs, in four pools:

- one: one tenant, a budget of 80 % of the price of all GPUs
- 20, 100: so many tenants; every second has a quota, every third a guarantee, every fourth a budget
- lumpy: one tenant, jobs of 1 or 8 to 64 GPUs, no budget
- tight: 8 tenants, a budget of 25 %
- guarantees: one tenant for every 25 jobs; each has a guarantee of the GPUs that its jobs hold
- changes: 8 tenants, at most a tenth of the jobs may change
- rules: 100 tenants, at most a tenth of the jobs may change; the asked gap is 0.1 %

In every family a guarantee is at most what the jobs of the tenant hold, so every round has a plan.
With `--base FOLDER`, a checkout of another commit, the code of FOLDER decides the same rounds too.
The CPU seconds of a decision are those of the process and its solver processes on one thread, from
a snapshot in memory to the plan. The first decision of each process is not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GAPS = {100: 1e-4, 500: 5e-4, 2_000: 2e-4, 10_000: 5e-4}
WIDE_GAPS = {"rules": 1e-3}  # gaps of families that do not ask for that of their size
FAMILIES: dict[str, dict[str, Any]] = {
    "one": {"tenants": 0},
    "20": {"tenants": 20},
    "100": {"tenants": 100},
    "lumpy": {"tenants": 0, "budget": None, "sizes": (1, 8, 16, 32, 64)},
    "tight": {"tenants": 8, "budget": 0.25},
    "guarantees": {},  # the number of tenants depends on that of the jobs
    "changes": {"tenants": 8, "budget": 0.7},
    "rules": {"tenants": 100},
}


def decide_rounds(families: list[str], jobs: int, seeds: range) -> Iterator[dict[str, Any]]:
    """Decide the rounds with the code on the path, and describe each decision."""
    import allocator
    from allocator.errors import Infeasible

    allocator.solve(make_snapshot("one", 100, 999), gap=GAPS[jobs])
    for family in families:
        gap = WIDE_GAPS.get(family, GAPS[jobs])
        for seed in seeds:
            snapshot = make_snapshot(family, jobs, seed)
            begin = cpu_seconds()
            try:
                plan = allocator.solve(snapshot, gap=gap)
            except Infeasible:
                continue
            yield {
                "family": family,
                "seed": seed,
                "cpu_s": cpu_seconds() - begin,
                "solver": plan.solver,
                "gap": plan.gap,
                "value": plan.objective_value,
                "bound": plan.bound,
            }


def make_snapshot(family: str, jobs: int, seed: int) -> Any:
    """Return the snapshot of a round of this family."""
    from scripts.cases.clusters import ClusterSpec, PoolSpec, generate

    pools = (
        PoolSpec("H100", max(8, jobs // 8)),
        PoolSpec("A100", max(8, jobs // 4), "on_demand"),
        PoolSpec("V100", max(16, 3 * jobs // 8)),
        PoolSpec("T4", max(8, jobs // 4), "spot"),
    )
    changes = jobs // 10 if family in ("changes", "rules") else None
    options = FAMILIES[family] or {"tenants": jobs // 25}
    spec = ClusterSpec(family, jobs, pools, max_changes=changes, **options)
    folder = generate(spec, seed)
    held: Counter[str] = Counter()
    for job in folder.tables["jobs.csv"]:
        held[job.get("tenant", "")] += job.get("gpus", 0)
    for tenant in folder.tables.get("tenants.csv", []):
        most = math.inf if family == "guarantees" else tenant.get("guaranteed_gpus", 0)
        tenant["guaranteed_gpus"] = min(most, held[tenant["tenant"]])
    return folder.snapshot()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that still run."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = file.read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has ended
            continue
        if int(words[1]) == os.getpid():
            total += (int(words[11]) + int(words[12])) / tick
    return total


def measure(folder: Path, family: str, jobs: int, seeds: range) -> list[dict[str, Any]]:
    """Decide the rounds with the code of a folder, in a process of its own."""
    words = [__file__, "--child", "--families", family, "--jobs", str(jobs)]
    words += ["--first", str(seeds.start), "--seeds", str(len(seeds))]
    paths = {"PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **paths},
        cwd=folder,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def describe(code: str, family: str, jobs: int, runs: list[dict[str, Any]]) -> str:
    """Return a row of the table."""
    if not runs:
        return f"| {jobs:,} | {family} | {code} | 0 | – | – | – | – | – | – |"
    cpu = np.array([run["cpu_s"] for run in runs])
    asked = sum(run["solver"] is not None for run in runs)
    gap = max(run["gap"] for run in runs)
    return (
        f"| {jobs:,} | {family} | {code} | {len(runs)} | {np.median(cpu):.3f} |"
        f" {np.quantile(cpu, 0.9):.3f} | {np.quantile(cpu, 0.99):.3f} | {cpu.max():.3f}"
        f" | {asked} | {gap:.1e} |"
    )


def check_bounds(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Stop if the bound of one code lies below the plan of the other."""
    for a, b in zip(old, new, strict=True):
        for bound, value in ((a["bound"], b["value"]), (b["bound"], a["value"])):
            if bound < value - 1e-9 * abs(value):
                raise SystemExit(f"a bound lies below a plan: {a} {b}")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100,500,2000,10000", help="numbers of jobs")
    parser.add_argument("--families", default=",".join(FAMILIES), help="families of rounds")
    parser.add_argument("--seeds", type=int, default=20, help="rounds of each (default 20)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--base", type=Path, help="folder of a checkout of another commit")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    seeds, families = range(args.first, args.first + args.seeds), args.families.split(",")
    if args.child:
        for run in decide_rounds(families, int(args.jobs), seeds):
            print(json.dumps(run), flush=True)
        return
    print("| jobs | family | code | rounds | median | p90 | p99 | worst | solver asked | gap |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for jobs in map(int, args.jobs.split(",")):
        for family in families:
            new = measure(ROOT, family, jobs, seeds)
            if args.base is not None:
                old = measure(args.base.resolve(), family, jobs, seeds)
                check_bounds(old, new)
                print(describe("base", family, jobs, old))
            print(describe("this", family, jobs, new), flush=True)


if __name__ == "__main__":
    main()
