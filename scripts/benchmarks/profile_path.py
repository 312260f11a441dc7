"""Measure the time from a CSV folder to a written plan, with 10,000 and 50,000 jobs.

    python scripts/benchmarks/profile_path.py [--jobs 10000,50000] [--seed 1]

Standard output is a Markdown table. It has processor and wall seconds and the peak memory of the
whole command with its children, and the parts as plan.json states them. Making the snapshots takes
about a minute and is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.cases.clusters import ClusterSpec, PoolSpec, generate

SHARE = {"H100": 1, "A100": 5, "V100": 6, "T4": 4}  # of the GPUs, sixteenths
MARKET = {"A100": "on_demand", "T4": "spot"}


def spec(jobs: int) -> ClusterSpec:
    """Return a cluster with 1.3 GPUs per job, 20 tenants and a budget.

    It has 1,120 measured rates per 1,000 jobs, 56,000 at most.
    """
    nodes = jobs * 13 // 1280
    pools = tuple(PoolSpec(t, nodes * s * 8, MARKET.get(t, "reserved")) for t, s in SHARE.items())
    return ClusterSpec(f"jobs{jobs}", jobs, pools, tenants=20, models=min(jobs // 25, 2000))


def main() -> None:
    """Generate, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="10000,50000", help="sizes, comma separated")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; seed"
        f" {a.seed}; seconds\n"
    )
    print(
        "| jobs | options | CPU | wall | peak GB | read | validate | build | solve | audit, reasons"
        " | gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for jobs in (int(n) for n in a.jobs.split(",")):
            folder = generate(spec(jobs), a.seed).write(Path(scratch))
            print(measured(jobs, folder, Path(scratch) / "out"), flush=True)


def measured(jobs: int, folder: Path, out: Path) -> str:
    """Return a line of the table, measured on the command `solve FOLDER --out OUT`."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "allocator", "solve", str(folder), "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    plan = json.loads(next(out.rglob("plan.json")).read_text())
    s = plan["seconds"]
    rest = s["total"] - s["read"] - s["validate"] - s["build"] - s["solve"]
    parts = " | ".join(f"{x:.2f}" for x in (s["read"], s["validate"], s["build"], s["solve"], rest))
    return (
        f"| {jobs:,} | {options(folder):,} | {cpu:.2f} | {wall:.2f} | {after.ru_maxrss / 1e6:.2f} |"
        f" {parts} | {plan['gap']:.1e} |"
    )


def options(folder: Path) -> int:
    """Return the number of options of all jobs before pruning."""
    from allocator import read_snapshot, validate
    from allocator.options.option_table import option_table
    from allocator.performance.table import RateTable

    problem = validate(read_snapshot(folder))
    return len(option_table(problem, RateTable.of(problem)))


if __name__ == "__main__":
    main()
