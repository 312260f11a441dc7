"""Measure CPU seconds and memory of decisions on large snapshots, and of the whole command.

    OPENBLAS_NUM_THREADS=1 python scripts/benchmarks/measure_size.py [--jobs 100000,500000]
        [--seed 1] [--gap 1e-3] [--scratch FOLDER]

The snapshots are those of profile_path.py, with 1.3 GPUs per job. A process of its own reads the
CSV files, decides cold by `allocator.Rounds`, and then decides the round after, in which a
hundredth of the jobs ends and as many arrive (bench_rounds.py). Each line has its CPU seconds of
reading, of the cold decision after reading (checks of the input included) and of the warm decision,
and its peak memory after the cold one. The last two columns are of the command `allocator solve`,
from CSV to plan.json, plan.csv and the printed tables.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scripts.benchmarks.bench_rounds import next_snapshot
from scripts.benchmarks.profile_path import spec
from scripts.cases.clusters import generate


def main() -> None:
    """Parse, generate, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100000,500000", help="sizes, comma separated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--scratch", type=Path, help="keep the snapshots in this folder")
    parser.add_argument("--decide", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.decide:
        print(decide(args.decide, args.gap, args.seed))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| jobs | GPUs | read | cold | warm | gap | peak kB a job | command | peak kB a job |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as own:
        for jobs in map(int, args.jobs.split(",")):
            scratch = args.scratch or Path(own)
            folder = scratch / spec(jobs).name
            if not folder.exists():
                generate(spec(jobs), args.seed).write(scratch)
            again = [sys.executable, "-m", "scripts.benchmarks.measure_size"]
            again += ["--decide", str(folder), "--gap", str(args.gap), "--seed", str(args.seed)]
            told = subprocess.run(again, check=True, stdout=subprocess.PIPE, text=True).stdout
            cpu, peak = run_command(folder, args.gap, Path(own) / "out")
            print(f"| {jobs:,} | {told.strip()} | {cpu:.2f} | {peak / jobs:.1f} |", flush=True)


def decide(folder: Path, gap: float, seed: int) -> str:
    """Decide a snapshot cold and the round after it warm; return cells of the table."""
    import allocator

    begin = time.process_time()
    snapshot = allocator.read_snapshot(folder)
    read = time.process_time()
    rounds = allocator.Rounds(gap=gap, time_limit_s=float("inf"))
    plan = rounds.solve(snapshot)
    cold = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jobs = len(snapshot.tables["jobs.csv"])
    later = next_snapshot(snapshot, plan, np.random.default_rng(seed))
    before = time.process_time()
    plan = rounds.solve(later)
    warm = time.process_time() - before
    gpus = sum(pool.gpus for pool in plan.pools)
    return (
        f"{gpus:,} | {read - begin:.2f} | {cold - read:.2f} | {warm:.2f} | {plan.gap:.1e} |"
        f" {peak / jobs:.1f}"
    )


def run_command(folder: Path, gap: float, out: Path) -> tuple[float, int]:
    """Run `allocator solve`; return its CPU seconds and its peak memory in kB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["solve", str(folder), "--gap", str(gap), "--time-limit", "inf", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "allocator", *words], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"allocator solve ended with status {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, used.ru_maxrss


if __name__ == "__main__":
    main()
