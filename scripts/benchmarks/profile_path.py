"""Measure the time from a CSV folder to a written plan: the demo, 10,000 and 50,000 jobs.

    python scripts/benchmarks/profile_path.py [--jobs 10000,50000] [--seed 1] [--runs 5]
        [--base FOLDER]

Standard output is a Markdown table. It has processor and wall seconds of the whole command with its
children, as medians of the runs, and the parts as plan.json of the last one states them. With
`--base FOLDER`, a checkout of another commit, the code of FOLDER is measured in turn, and the last
column says whether the files and the standard output of both are equal to the byte, times apart.
Making the snapshots takes about a minute and is not measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scripts.cases.clusters import ClusterSpec, PoolSpec, generate

ROOT = Path(__file__).parents[2]
TIMES = re.compile(rb"decided in [0-9.]+ s|\"seconds\": \{[^}]*\}")
SHARE = {"H100": 1, "A100": 5, "V100": 6, "T4": 4}  # of the GPUs, sixteenths
MARKET = {"A100": "on_demand", "T4": "spot"}


def spec(jobs: int) -> ClusterSpec:
    """Return a cluster with 1.3 GPUs per job, 20 tenants and a budget.

    It has 1,120 measured rates per 1,000 jobs, 56,000 at most.
    """
    nodes = jobs * 13 // 1280
    pools = tuple(PoolSpec(t, nodes * s * 8, MARKET.get(t, "reserved")) for t, s in SHARE.items())
    return ClusterSpec(f"jobs{jobs}", jobs, pools, tenants=20, models=min(jobs // 25, 2000))


@dataclass(frozen=True)
class Run:
    """One run of the command: its seconds, and the digest of what it wrote."""

    cpu: float
    wall: float
    parts: dict[str, float]
    gap: float
    written: str


def main() -> None:
    """Generate, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="10000,50000", help="sizes, comma separated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--base", type=Path, help="folder of a checkout of another commit")
    a = parser.parse_args()
    codes = {"this": ROOT} | ({} if a.base is None else {"base": a.base.resolve()})
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; seed"
        f" {a.seed}; seconds, medians of {a.runs} runs\n"
    )
    print(
        "| snapshot | options | code | CPU | wall | read | validate | build | solve | gap"
        " | load | equal |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folders = {"demo": ROOT / "data" / "snapshots" / "demo"}
        for jobs in (int(n) for n in a.jobs.split(",")):
            folders[f"{jobs:,} jobs"] = generate(spec(jobs), a.seed).write(Path(scratch))
        for name, folder in folders.items():
            runs: dict[str, list[Run]] = {code: [] for code in codes}
            for _ in range(a.runs):
                for code, place in codes.items():
                    runs[code].append(run_command(place, folder, Path(scratch) / "out"))
            is_equal = len({found[-1].written for found in runs.values()}) == 1
            for code, found in runs.items():
                head = f"| {name} | {options(folder):,} | {code} |"
                tail = f"{os.getloadavg()[0]:.0f} | {'yes' if is_equal else 'no'} |"
                print(head, describe(found), tail, flush=True)


def describe(runs: list[Run]) -> str:
    """Return the cells of the medians of some runs, and of the parts of the last one."""
    cpu, wall = (median(column) for column in zip(*((r.cpu, r.wall) for r in runs), strict=True))
    parts = " | ".join(f"{runs[-1].parts[p]:.2f}" for p in ("read", "validate", "build", "solve"))
    return f"{cpu:.2f} | {wall:.2f} | {parts} | {runs[-1].gap:.1e} |"


def run_command(code: Path, folder: Path, out: Path) -> Run:
    """Run the command `solve FOLDER --out OUT` of the code in a folder."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-m", "allocator", "solve", str(folder), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=code,
        check=True,
    ).stdout
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    document = (out / "plan.json").read_bytes()
    plan = json.loads(document)
    digest = hashlib.sha256()
    for written in (shown, document, (out / "plan.csv").read_bytes()):
        digest.update(TIMES.sub(b"", written))
    return Run(cpu, wall, plan["seconds"], plan["gap"], digest.hexdigest())


def options(folder: Path) -> int:
    """Return the number of options of all jobs before pruning."""
    from allocator import read_snapshot, validate
    from allocator.options.option_table import option_table
    from allocator.performance.table import RateTable

    problem = validate(read_snapshot(folder))
    return len(option_table(problem, RateTable.of(problem)))


if __name__ == "__main__":
    main()
