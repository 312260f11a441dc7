"""A gang that needs a large part of the pool comes among small jobs.

    # 3 seeds; six minutes
    python scripts/reproductions/reproduce_large_gang.py

A pool of 32 GPUs; jobs of one GPU and 30 minutes arrive at random (Poisson) over a day; a gang
of 16, 24, 32 GPUs and one hour comes after one hour. Sizes are known, rounds of 300 s. `mip` is run
on the same jobs, none of which may be stopped, or all of them. The mean completion of the others is
compared with that without the gang, and the least that is possible if none is stopped and the gang
is in time: it waits at most 1.1 times the longest rest of what runs, and a round.
"""

import argparse
import itertools

import numpy as np

from allocator.bench.machine import machine
from allocator.domain.workload import Workload
from allocator.io.workloads import parse_workload
from allocator.simulator.run import simulate

GPUS, JOB_S, GANG_S, COMES_S, DAY_S = 32, 1800.0, 3600.0, 3600.0, 86400.0
LOADS = (0.8, 0.9, 0.95, 0.98)  # share of all GPUs that the small jobs need
GANGS, ROUND_S = (16, 24, 32), 300.0
ROUNDS, GANG_ROUNDS = 6, 12  # of a job, and of the gang


def workload(load: float, gang: int, seed: int, stops: bool) -> Workload:
    """Return the jobs; the gang is job "gang"."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(load * GPUS * DAY_S / JOB_S)
    rows = [
        f"job{n},{at:.1f},m,{JOB_S},1,1,1,{stops}"
        for n, at in enumerate(np.sort(rng.uniform(0, DAY_S, count)))
    ]
    if gang:
        rows.append(f"gang,{COMES_S},m,{GANG_S * gang},{gang},{gang},{gang},{stops}")
    header = "job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,preemptible"
    files = {
        "workload.csv": "\n".join([header, *rows]),
        "pools.csv": f"pool,gpu_type,gpus\np,A,{GPUS}",
        "rates.csv": f"model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,A,{GPUS},{GPUS}",
    }
    return parse_workload("gang", {name: text.encode() for name, text in files.items()})


def find_least(at_s: np.ndarray, gang: int) -> tuple[float, float]:
    """Return the least mean completion of the others in seconds, and how long the gang may wait.

    It is that of all plans in rounds. None may be stopped, and what starts before the gang comes is
    what starts without it. The gang waits at most 1.1 times the longest rest of what runs when it
    comes, and a round.
    """
    round_s = np.arange(at_s[0], at_s[-1] + len(at_s) / GPUS * JOB_S + GANG_S, ROUND_S)
    came = np.searchsorted(at_s, round_s, side="right").tolist()
    comes = int(np.searchsorted(round_s, COMES_S))
    before = np.array(count_starts(came, comes, comes, 0)[:comes])
    rest_s = round_s[before.searchsorted(before[-1])] + JOB_S - COMES_S
    most_s = 1.1 * rest_s + ROUND_S
    begins = range(comes, int(np.searchsorted(round_s, COMES_S + most_s, side="right")))
    plans = (np.diff(count_starts(came, comes, begin, gang), prepend=0) for begin in begins)
    waits = (np.repeat(round_s, plan) - at_s for plan in plans if (plan >= 0).all())
    return JOB_S + min(wait_s.mean() for wait_s in waits), most_s


def count_starts(came: list[int], comes: int, begin: int, gang: int) -> list[int]:
    """Return how many of the others start by each round, the most, if a gang begins in one.

    They are alike and need N rounds. S_t start by round t, and C_t GPUs are left to them, so

        S_t <= min(came_t, S_{u-N} + C_u for u = t .. t+N-1).

    The right side grows with earlier S, so no plan has more than equality. It falls where the gang
    begins too early. Before it comes nobody knows of it.
    """
    started = [0] * ROUNDS
    for t, count in enumerate(came):
        lasts = GANG_ROUNDS * (t >= comes)
        rounds = range(t, t + ROUNDS)
        most = (started[u] + GPUS - gang * (begin <= u < begin + lasts) for u in rounds)
        started.append(min(count, *most))
    return started[ROUNDS:]


def mean_s(work: Workload) -> tuple[float, float, np.ndarray]:
    """Return the mean completion of the others, the wait of the gang, and when the others came."""
    jobs = simulate(work, policy="mip").jobs
    is_gang = jobs["job_id"] == "gang"
    others = jobs[~is_gang]
    wait_s = jobs["started_s"][is_gang].sum() - COMES_S
    return others["jct_s"].mean(), wait_s, np.sort(others["submitted_s"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    print(f"Machine: {machine()}. {seeds}\n")
    print("| load, may others be stopped, gang | in time | waits, min | others; least |")
    print("|---|---:|---:|---:|")
    for load, stops, gang in itertools.product(LOADS, (False, True), GANGS):
        rows = []
        for seed in seeds:
            base_s, _, _ = mean_s(workload(load, 0, seed, stops))
            other_s, wait_s, at_s = mean_s(workload(load, gang, seed, stops))
            least_s, most_s = find_least(at_s, gang)
            rows.append((wait_s <= most_s, wait_s / 60, other_s / base_s, least_s / base_s))
        in_time, wait, more, least = np.mean(rows, axis=0)
        print(
            f"| {load:g}, {stops}, {gang} | {in_time:.0%} | {wait:.0f}"
            f" | {more - 1:+.1%}; {least - 1:+.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
