"""Measure rounds that follow each other: the first one cold, the others warm, the same ones cold.

    python scripts/benchmarks/bench_rounds.py [--jobs 100,500,2000,10000] [--families one,20]
        [--seeds 5] [--rounds 4] [--base FOLDER] > table.md

The families are those of bench_tail.py. Between two rounds the plan is carried out, jobs do at most
2 % of the work that is left, one job in a hundred ends and one like it arrives, one rate in a
hundred is corrected by up to 5 %, and so is the price of one pool. Every warm round is decided by
`allocator.Rounds`. The same round is decided cold by `allocator.solve`. The value of neither plan
may exceed the bound of the other. The CPU seconds of a decision are those of the process and its
solver processes on one thread, from a snapshot in memory to the audited plan and its columns.

With `--base FOLDER`, a checkout of another commit, the code of FOLDER decides rounds of the same
seeds, in turn with this code, seed by seed. Each seed has a process of its own, which has decided
other rounds and loaded scipy before: a process loads scipy once, in whichever round its products
have become many.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import allocator
from allocator.domain.plan import Plan
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import Infeasible
from scripts.benchmarks import bench_tail

ROOT = Path(__file__).resolve().parents[2]
GAPS = {**bench_tail.GAPS, 50_000: 1e-4, 500_000: 1e-3}
CHANGED = 0.01  # share of the jobs that end, and of the rates that are corrected
DONE = 0.02  # largest share of the remaining work of a job that an interval does
CORRECTION = 0.05  # largest correction of a rate or a price, relative


def next_snapshot(snapshot: Snapshot, plan: Plan, rng: np.random.Generator) -> Snapshot:
    """Return the round after the plan has been carried out, with a few changes."""
    table, interval_s = snapshot.tables["jobs.csv"], float(snapshot.config["interval_s"])
    jobs = {name: np.array(table.texts(name), dtype=object) for name in table.columns}
    pool, gpus = plan.jobs["pool"], plan.jobs["gpus"]
    work = jobs["remaining_work"].astype(float)
    left = work - np.minimum(DONE * work, interval_s * np.array(plan.jobs["work_per_s"]))
    holds = np.array([name is not None for name in pool])
    waits = jobs["state"] != "running"
    jobs["remaining_work"] = np.array([f"{x:.6g}" for x in left], dtype=object)
    jobs["state"] = np.where(holds, "running", np.where(waits, jobs["state"], "queued"))
    jobs["pool"] = np.where(holds, np.array(pool, dtype=object), "")
    jobs["gpus"] = np.where(holds, np.array([str(k) for k in gpus], dtype=object), "")
    ends = rng.random(len(left)) < CHANGED
    now_s = float(snapshot.config["now_s"]) + interval_s
    new = {name: cells[ends] for name, cells in jobs.items()}
    count = len(new["job_id"])
    new["job_id"] = np.array([f"at{now_s:.0f}-{i}" for i in range(count)], dtype=object)
    new["state"] = np.full(count, "queued", dtype=object)
    new["pool"] = new["gpus"] = np.full(count, "", dtype=object)
    columns = {name: np.append(jobs[name][~ends], new[name]).tolist() for name in jobs}
    rates, pools = snapshot.tables["rates.csv"], snapshot.tables["pools.csv"]
    tables = {
        **snapshot.tables,
        "jobs.csv": Table("jobs.csv", columns, range(2, len(columns["job_id"]) + 2)),
        "rates.csv": _with_corrections(rates, "work_per_s", max(1, len(rates) // 100), rng),
        "pools.csv": _with_corrections(pools, "price_per_gpu_hour", 1, rng),
    }
    config = {**snapshot.config, "now_s": now_s}
    return Snapshot(snapshot.name, config, tables)


def _with_corrections(table: Table, column: str, count: int, rng: np.random.Generator) -> Table:
    """Return the table with corrections of `count` numbers of a column."""
    cells = list(table.texts(column))
    for i in rng.choice(len(cells), count, replace=False).tolist():
        cells[i] = f"{float(cells[i]) * rng.uniform(1 - CORRECTION, 1 + CORRECTION):.6g}"
    return Table(table.file, {**table.columns, column: cells}, table.lines)


def _without_cache(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the texts and the digest that were computed for it before."""
    tables = {file: replace(table) for file, table in snapshot.tables.items()}
    return replace(snapshot, tables=tables)


def decide_rounds(
    family: str, jobs: int, seed: int, count: int
) -> Iterator[tuple[float, float, Plan]]:
    """Yield the CPU seconds of each round, cold and warm, and the warm plan."""
    snapshot, gap = bench_tail.make_snapshot(family, jobs, seed), GAPS[jobs]
    rng = np.random.default_rng(seed)
    rounds = allocator.Rounds(gap=gap)
    with contextlib.suppress(Infeasible):  # guarantees of a tenant may come to exceed its quota
        plan = rounds.solve(snapshot)
        for _ in range(count):
            snapshot = next_snapshot(snapshot, plan, rng)
            begin = bench_tail.cpu_seconds()
            plan = rounds.solve(snapshot)
            plan.jobs["pool"]
            middle = bench_tail.cpu_seconds()
            cold = allocator.solve(_without_cache(snapshot), gap=gap)
            cold.jobs["pool"]
            yield bench_tail.cpu_seconds() - middle, middle - begin, plan
            for a, b in ((plan, cold), (cold, plan)):
                if a.bound < b.objective_value * (1 - 1e-9):
                    raise SystemExit(f"a bound lies below a plan: {a.bound} {b.objective_value}")


def measure_seed(folder: Path, family: str, jobs: int, seed: int, count: int) -> list[list[float]]:
    """Return the CPU seconds, cold and warm, of each round with the code of a folder."""
    words = [__file__, "--child", "--families", family, "--jobs", str(jobs)]
    words += ["--first", str(seed), "--rounds", str(count)]
    paths = {"PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **paths},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [json.loads(line) for line in told.splitlines()]


def describe(family: str, jobs: int, name: str, seconds: Sequence[float]) -> str:
    """Return a row of the table."""
    cpu = np.array(seconds)
    return (
        f"| {jobs:,} | {family} | {name} | {len(cpu)} | {np.median(cpu):.3f} |"
        f" {np.quantile(cpu, 0.9):.3f} | {cpu.max():.3f} |"
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100,500,2000,10000", help="numbers of jobs")
    parser.add_argument("--families", default="one,20,100,tight", help="families of rounds")
    parser.add_argument("--seeds", type=int, default=5, help="rounds of each (default 5)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--rounds", type=int, default=4, help="warm rounds of each (default 4)")
    parser.add_argument("--base", type=Path, help="folder of a checkout of another commit")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    families = args.families.split(",")
    if args.child:
        import scipy.sparse  # noqa: F401

        for _ in decide_rounds("one", 100, 999, 1):
            pass
        for cold, warm, _ in decide_rounds(families[0], int(args.jobs), args.first, args.rounds):
            print(json.dumps([cold, warm]), flush=True)
        return
    folders = {"this": ROOT} | ({} if args.base is None else {"base": args.base.resolve()})
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| jobs | family | code, round | rounds | median | p90 | worst |")
    print("|---|---|---|---|---|---|---|")
    for jobs in map(int, args.jobs.split(",")):
        for family in families:
            found: dict[str, list[list[float]]] = {code: [] for code in folders}
            for seed in range(args.first, args.first + args.seeds):
                for code, folder in folders.items():
                    found[code] += measure_seed(folder, family, jobs, seed, args.rounds)
            for i, name in enumerate(("cold", "warm")):
                for code, pairs in found.items():
                    if pairs:
                        seconds = [pair[i] for pair in pairs]
                        print(describe(family, jobs, f"{code}, {name}", seconds), flush=True)
    print(f"\nload of the machine at the end {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
