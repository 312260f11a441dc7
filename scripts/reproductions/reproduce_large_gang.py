"""A gang that needs the whole pool comes among small jobs that may not be stopped.

    # 3 seeds, loads .8, .9, .95; a few minutes
    python scripts/reproductions/reproduce_large_gang.py

A pool of 32 GPUs; jobs of one GPU and 30 minutes arrive at random (Poisson) over `--hours`; a gang
of `--gang` GPUs and one hour comes after one hour. No job may be stopped, sizes are known, rounds
of 300 s. `mip` is run with reservations (the default) and without them, on the same jobs.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from allocator.bench.machine import machine
from allocator.domain.workload import Workload
from allocator.io.workloads import read_workload
from allocator.simulator.run import simulate

GPUS, JOB_S, GANG_S, COMES_S = 32, 1800.0, 3600.0, 3600.0
NEVER_S = 1e9


def workload(load: float, hours: float, gang: int, seed: int) -> Workload:
    """Return the jobs; the gang is job "gang"."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(load * GPUS * hours * 3600 / JOB_S)
    rows = [
        f"job{n},{at:.1f},m,{JOB_S},1,1,1,false"
        for n, at in enumerate(np.sort(rng.uniform(0, hours * 3600, count)))
    ]
    rows.append(f"gang,{COMES_S},m,{GANG_S * gang},{gang},{gang},{gang},false")
    header = "job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,preemptible"
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (
            ("workload.csv", [header, *rows]),
            ("pools.csv", ["pool,gpu_type,gpus", f"p,A,{GPUS}"]),
            ("rates.csv", ["model,gpu_type,gpus,work_per_s", "m,A,1,1", f"m,A,{gang},{gang}"]),
        ):
            (Path(folder) / name).write_text("\n".join(lines) + "\n")
        return read_workload(folder)


def runs(work: Workload) -> Iterator[tuple[str, Workload]]:
    """Yield name and workload of each run."""
    never = dataclasses.replace(work.problem, reserve_after_s=NEVER_S)
    yield "mip", work
    yield "mip without reservations", dataclasses.replace(work, problem=never)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=float, nargs="+", default=[0.8, 0.9, 0.95])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gang", type=int, default=GPUS)
    args = parser.parse_args()
    print(f"Machine: {machine()}. Seeds 0 to {args.seeds - 1}, {args.hours:g} h.\n")
    print("| load | policy | gang waits, min | others complete, min | p99, min |")
    print("|---|---|---:|---:|---:|")
    for load in args.loads:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(args.seeds):
            work = workload(load, args.hours, args.gang, seed)
            for name, case in runs(work):
                done = simulate(case, policy="mip").jobs.set_index("job_id")
                others = done.drop("gang")["jct_s"] / 60
                wait = (float(done.loc["gang", "started_s"]) - COMES_S) / 60
                found.setdefault(name, []).append(
                    (wait, float(others.mean()), float(others.quantile(0.99)))
                )
        for name, rows in found.items():
            wait, mean, tail = np.mean(rows, axis=0)
            print(f"| {load:g} | {name} | {wait:.0f} | {mean:.1f} | {tail:.0f} |", flush=True)


if __name__ == "__main__":
    main()
