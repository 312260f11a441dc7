"""Measure the distribution of the time of one decision over many seeds, old and new code in turn.

    python scripts/benchmarks/bench_tail.py [--jobs 100,500,2000,10000] [--families one,tight]
        [--seeds 20] [--first 0] [--base FOLDER] [--results FILE] > table.md

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

Without `--seeds` there are 200 rounds of each family of 20, 100 and 500 jobs, 50 of 2,000 and 20 of
10,000. With `--results FILE` every decision is written to FILE at once, and those in FILE are not
made again, so that a run that was stopped goes on where it ended. FILE must be of one commit. Its
table has all rounds that are there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GAPS = {20: 1e-3, 100: 1e-4, 500: 5e-4, 2_000: 2e-4, 10_000: 5e-4}
ASKED_S = {100: 0.05, 500: 0.10, 2_000: 0.12, 10_000: 0.25}  # worst CPU seconds, the aim
SEEDS = {20: 200, 100: 200, 500: 200, 2_000: 50, 10_000: 20}
CHUNK = 10  # rounds of one family that a process decides
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


def decide_rounds(family: str, jobs: int, seeds: range) -> Iterator[dict[str, Any]]:
    """Decide the rounds with the code on the path, and describe each decision."""
    import allocator
    from allocator.errors import Infeasible

    allocator.solve(make_snapshot("one", 100, 999), gap=GAPS[jobs])
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
            "jobs": jobs,
            "seed": seed,
            "cpu_s": cpu_seconds() - begin,
            "solver": plan.solver,
            "gap": plan.gap,
            "value": plan.objective_value,
            "bound": plan.bound,
            "load": os.getloadavg()[0],
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


@dataclass(frozen=True)
class Results:
    """The decisions made so far, by code and round. With a file, each of them is written to it."""

    file: Path | None
    runs: dict[tuple[str, str, int, int], dict[str, Any]]

    @staticmethod
    def of(file: Path | None) -> Results:
        """Return those of a file, which need not exist."""
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        results = Results(None, {})
        for run in map(json.loads, lines):
            results.add(run)
        return Results(file, results.runs)

    def add(self, run: dict[str, Any]) -> None:
        """Keep a decision."""
        self.runs[run["code"], run["family"], run["jobs"], run["seed"]] = run
        if self.file is not None:
            with self.file.open("a") as file:
                print(json.dumps(run), file=file)

    def select(self, code: str, family: str, jobs: int, seeds: range) -> list[dict[str, Any]]:
        """Return the decisions of these rounds, by seed."""
        keys = ((code, family, jobs, seed) for seed in seeds)
        return [self.runs[key] for key in keys if key in self.runs]

    def measure(self, code: str, folder: Path, family: str, jobs: int, seeds: range) -> None:
        """Decide the rounds that are missing with the code of a folder, in a process of its own."""
        known = {run["seed"] for run in self.select(code, family, jobs, seeds)}
        first = next((seed for seed in seeds if seed not in known), None)
        if first is None:
            return
        words = [__file__, "--child", "--families", family, "--jobs", str(jobs)]
        words += ["--first", str(first), "--seeds", str(seeds.stop - first)]
        paths = {"PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        child = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **paths},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for line in child.stdout:
            self.add({"code": code, **json.loads(line)})
        if child.wait():
            raise SystemExit(f"the process that decides ended with code {child.returncode}")


def describe(code: str, family: str, jobs: int, runs: list[dict[str, Any]]) -> str:
    """Return a row of the table."""
    if not runs:
        return f"| {jobs:,} | {family} | {code} | 0 |" + " - |" * 8
    cpu = np.array([run["cpu_s"] for run in runs])
    above = sum(cpu > ASKED_S.get(jobs, math.inf))
    solvers = sum(run["solver"] is not None for run in runs)
    exact = sum(run["gap"] == 0 for run in runs)
    gap = max(run["gap"] for run in runs)
    return (
        f"| {jobs:,} | {family} | {code} | {len(runs)} | {np.median(cpu):.3f} |"
        f" {np.quantile(cpu, 0.9):.3f} | {np.quantile(cpu, 0.99):.3f} | {cpu.max():.3f}"
        f" | {above} | {solvers} | {exact} | {gap:.1e} |"
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
    parser.add_argument("--seeds", type=int, help="rounds of each (default: by size)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--base", type=Path, help="folder of a checkout of another commit")
    parser.add_argument("--results", type=Path, help="file of the decisions that were made")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    families = args.families.split(",")
    sizes = {
        jobs: range(args.first, args.first + (args.seeds or SEEDS[jobs]))
        for jobs in map(int, args.jobs.split(","))
    }
    if args.child:
        for jobs, seeds in sizes.items():
            for run in decide_rounds(families[0], jobs, seeds):
                print(json.dumps(run), flush=True)
        return
    folders = {"this": ROOT} | ({} if args.base is None else {"base": args.base.resolve()})
    results = Results.of(args.results)
    # a run that is stopped has as many rounds of every size and family as its time allowed
    for part in range(max(math.ceil(len(seeds) / CHUNK) for seeds in sizes.values())):
        for jobs, seeds in sizes.items():
            some = seeds[part * CHUNK : (part + 1) * CHUNK]
            for family in families if some else ():
                for code, folder in folders.items():
                    results.measure(code, folder, family, jobs, some)
    print("| jobs | family | code | rounds | median | p90 | p99 | worst | above the aim", end="")
    print(" | solver asked | gap 0 | largest gap |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for jobs, seeds in sizes.items():
        for family in families:
            rows = {code: results.select(code, family, jobs, seeds) for code in folders}
            if args.base is not None:
                check_bounds(rows["base"], rows["this"])
            for code, runs in rows.items():
                print(describe(code, family, jobs, runs))
    loads = [run["load"] for run in results.runs.values()]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"\n{machine}; load of the machine {min(loads):.0f} to {max(loads):.0f}")


if __name__ == "__main__":
    main()
