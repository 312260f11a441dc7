"""A gang that needs a large part of the pool comes among small jobs.

    # 3 seeds, loads .8, .9, .95; ten minutes
    python scripts/reproductions/reproduce_large_gang.py

A pool of 32 GPUs; jobs of one GPU and 30 minutes arrive at random (Poisson) over `--hours`; a gang
of `--gangs` GPUs and one hour comes after one hour (0: no gang). Sizes are known, rounds of 300 s.
`mip` is run with reservations (the default) and without them on the same jobs, which may all be
stopped, or none of them. The last row is a bound: others that could be stopped and resumed for
nothing, with a gang that starts 30 minutes after it comes.
"""

import argparse
import dataclasses
import itertools
import math
import tempfile
from pathlib import Path

import numpy as np

from allocator.bench.machine import machine
from allocator.domain.workload import Workload
from allocator.io.workloads import read_workload
from allocator.simulator.run import simulate

GPUS, JOB_S, GANG_S, COMES_S = 32, 1800.0, 3600.0, 3600.0
NEVER_S, STEP_S = 1e9, 5.0


def workload(load: float, hours: float, gang: int, seed: int, stops: bool) -> Workload:
    """Return the jobs; the gang is job "gang"."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(load * GPUS * hours * 3600 / JOB_S)
    rows = [
        f"job{n},{at:.1f},m,{JOB_S},1,1,1,{stops}"
        for n, at in enumerate(np.sort(rng.uniform(0, hours * 3600, count)))
    ]
    if gang:
        rows.append(f"gang,{COMES_S},m,{GANG_S * gang},{gang},{gang},{gang},{stops}")
    header = "job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,preemptible"
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (
            ("workload.csv", [header, *rows]),
            ("pools.csv", ["pool,gpu_type,gpus", f"p,A,{GPUS}"]),
            ("rates.csv", ["model,gpu_type,gpus,work_per_s", "m,A,1,1", f"m,A,{GPUS},{GPUS}"]),
        ):
            (Path(folder) / name).write_text("\n".join(lines) + "\n")
        return read_workload(folder)


def least_mean(at_s: np.ndarray, gang: int) -> float:
    """Return the least mean completion of the others in seconds, if nothing kept them running.

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
    return float((done - at_s).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=float, nargs="+", default=[0.8, 0.9, 0.95])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gangs", type=int, nargs="+", default=[GPUS, GPUS * 3 // 4, GPUS // 2, 0])
    args = parser.parse_args()
    print(f"Machine: {machine()}. Seeds 0 to {args.seeds - 1}, {args.hours:g} h.\n")
    print("| load, gang | run | gang waits, completes, min | others complete, p99, min |")
    print("|---|---|---:|---:|")
    for load, gang in itertools.product(args.loads, args.gangs):
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed, stops, never in itertools.product(
            range(args.seeds), (True, False), (False, True)
        ):
            work = workload(load, args.hours, gang, seed, stops)
            problem = dataclasses.replace(work.problem, reserve_after_s=NEVER_S * never)
            work = dataclasses.replace(work, problem=problem)
            done = simulate(work, policy="mip").jobs.set_index("job_id")
            others = done.drop("gang", errors="ignore")["jct_s"]
            waits, completes = math.nan, math.nan
            if gang:
                waits = float(done.loc["gang", "started_s"]) - COMES_S
                completes = float(done.loc["gang", "jct_s"])
            name = f"{'stopped' if stops else 'not stopped'}{', without reservations' * never}"
            figures = waits, completes, float(others.mean()), float(others.quantile(0.99))
            found.setdefault(name, []).append(figures)
            if stops and not never:
                at_s = work.problem.jobs.submitted_s[: len(others)]  # the gang is the last
                least = math.nan, math.nan, least_mean(at_s, gang), math.nan
                found.setdefault("bound", []).append(least)
        for name, rows in found.items():
            waits, completes, mean, tail = np.mean(rows, axis=0) / 60
            print(
                f"| {load:g}, {gang} | {name} | {waits:.0f}, {completes:.0f}"
                f" | {mean:.1f}, {tail:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
