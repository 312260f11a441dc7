"""A gang that needs a large part of the pool comes among small jobs.

    # 3 seeds, loads .8, .9, .95; ten minutes
    python scripts/reproductions/reproduce_large_gang.py

A pool of 32 GPUs; jobs of one GPU and 30 minutes arrive at random (Poisson) over `--hours`; a gang
of `--gangs` GPUs and one hour comes after one hour (0: no gang). Sizes are known, rounds of 300 s.
`mip` is run with reservations (the default) and without them on the same jobs, which may all be
stopped, or none of them. The last row is the least mean of all plans that stop none and let the
gang wait at most 1.1 times the rest of what runs, and a round.
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
NEVER_S, ROUND_S = 1e9, 300.0
ROUNDS, GANG_ROUNDS = int(JOB_S / ROUND_S), int(GANG_S / ROUND_S)


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
    """Return the least mean completion of the others in seconds, over all plans in rounds.

    None may be stopped, and what starts before the gang comes is what starts without it. The gang
    waits at most 1.1 times the longest rest of what runs when it comes, and a round.
    """
    round_s = np.arange(at_s[0], at_s[-1] + len(at_s) / GPUS * JOB_S + GANG_S, ROUND_S)
    came = np.searchsorted(at_s, round_s, side="right").tolist()
    comes = int(np.searchsorted(round_s, COMES_S))
    before = np.array(count_starts(came, comes, comes, 0)[:comes])
    rest_s = round_s[before.searchsorted(before[-1])] + JOB_S - COMES_S
    begins = range(comes, int(np.searchsorted(round_s, COMES_S + 1.1 * rest_s + ROUND_S)))
    plans = (np.diff(count_starts(came, comes, begin, gang), prepend=0) for begin in begins)
    starts_s = (np.repeat(round_s, plan) for plan in plans if (plan >= 0).all())
    return JOB_S + min(float((start_s - at_s).mean()) for start_s in starts_s)


def count_starts(came: list[int], comes: int, begin: int, gang: int) -> list[int]:
    """Return how many of the others start by each round, the most, if a gang begins in one.

    They are alike and need N rounds. S_t start by round t, and C_t GPUs are left to them, so

        S_t <= min(came_t, S_{u-N} + C_u for u = t .. t+N-1).

    The right side grows with earlier S, so no plan has more than equality. It falls where the gang
    begins too early. Before it comes nobody knows of it.
    """
    started = [0] * ROUNDS
    for t, count in enumerate(came):
        lasts = 0 if t < comes else GANG_ROUNDS
        free = [GPUS - gang * (begin <= u < begin + lasts) for u in range(t, t + ROUNDS)]
        started.append(min(count, *map(sum, zip(started[t:], free))))
    return started[ROUNDS:]


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
                at_s = np.sort(work.problem.jobs.submitted_s)[: len(others)]
                least = math.nan, math.nan, least_mean(at_s, gang), math.nan
                found.setdefault("least", []).append(least)
        for name, rows in found.items():
            waits, completes, mean, tail = np.mean(rows, axis=0) / 60
            print(
                f"| {load:g}, {gang} | {name} | {waits:.0f}, {completes:.0f}"
                f" | {mean:.1f}, {tail:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
