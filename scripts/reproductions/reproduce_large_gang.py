"""A gang that needs the whole pool comes among small jobs that may not be stopped.

    # 3 seeds, loads .8, .9, .95; a few minutes
    python scripts/reproductions/reproduce_large_gang.py

A pool of 32 GPUs; jobs of one GPU and 30 minutes arrive at random (Poisson) over `--hours`; a gang
of `--gang` GPUs and one hour comes after one hour. No job may be stopped, sizes are known, rounds
of 300 s. `mip` is run with reservations (the default) and without them, on the same jobs. The last
two rows are bounds: others that could be stopped and resumed for nothing, without the gang and
with one that starts 30 minutes after it comes.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from allocator.bench.machine import machine
from allocator.domain.workload import Workload
from allocator.io.workloads import read_workload
from allocator.simulator.run import simulate

GPUS, JOB_S, GANG_S, COMES_S = 32, 1800.0, 3600.0, 3600.0
NEVER_S, STEP_S = 1e9, 5.0


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


def least_mean(at_s: np.ndarray, gang: int) -> float:
    """Return the least mean completion of the others in minutes, if nothing kept them running.

    They are alike, so those that come first are served first.
    """
    left, done, t = np.full(len(at_s), JOB_S), np.zeros(len(at_s)), 0.0
    while (left > 0).any():
        since_s = t - COMES_S - JOB_S
        free = GPUS - gang * (0 <= since_s < GANG_S)
        run = np.flatnonzero((left > 0) & (at_s <= t))[:free]
        left[run] -= STEP_S
        t += STEP_S
        done[run] = t
    return float((done - at_s).mean()) / 60


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
            at_s = work.problem.jobs.submitted_s[:-1]  # the gang is the last
            for name, gpus in (("bound without gang", 0), ("bound", args.gang)):
                found.setdefault(name, []).append((math.nan, least_mean(at_s, gpus), math.nan))
        for name, rows in found.items():
            wait, mean, tail = np.mean(rows, axis=0)
            print(f"| {load:g} | {name} | {wait:.0f} | {mean:.1f} | {tail:.0f} |", flush=True)


if __name__ == "__main__":
    main()
