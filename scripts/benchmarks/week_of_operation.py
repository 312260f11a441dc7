"""Run the real controller and its queue for a week, on a simulated clock and cluster.

    python scripts/benchmarks/week_of_operation.py --jobs 10000 --days 7

It prints Markdown: whether every round decided what the simulator alone decides, and the size of
the database and the memory of the process over the week. It takes some minutes. With --react both
runs have early rounds. Policies that search need more time, so a smaller week is enough for them
(--jobs 400 --days 1 --gpus 32 --policy mip).
"""

from __future__ import annotations

import argparse
import math
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from allocator.domain.workload import Workload
from allocator.loop.rounds import RoundOutcome
from scripts.cases.twin import Twin, same_plans, simulated

HEADS = {
    "workload.csv": "job_id,model,submitted_s,total_work,max_gpus,requested_gpus,checkpoint_every_s"
}
# speed, overhead of each further GPU
MODELS = {"small": (1.0, 0.02), "middle": (0.6, 0.05), "large": (0.3, 0.1)}
POOLS = (("a", "A", 1.0), ("b", "B", 0.5))


def week(jobs: int, days: float, gpus: int, load: float, seed: int) -> Workload:
    """Return Poisson arrivals, with Gamma-distributed work, that ask for `load` of the GPUs."""
    from allocator.io.workloads import parse_workload

    draw = np.random.default_rng(seed)
    at = np.sort(draw.uniform(0.0, days * 86_400, jobs)).round(1)
    at[0] = 0.0
    model = draw.choice(list(MODELS), jobs)
    mean = load * 2 * gpus * days * 86_400 / jobs  # GPU-seconds of a job
    work = np.maximum(60.0, draw.gamma(0.7, mean / 0.7, jobs)).round(1)
    size = draw.choice([1, 2, 4, 8], jobs, p=[0.4, 0.3, 0.2, 0.1])
    rows = "".join(
        f"j{i},{m},{t},{w * MODELS[m][0]:.3f},{2 * k},{k},600\n"
        for i, (m, t, w, k) in enumerate(zip(model, at, work, size, strict=True))
    )
    rates = "".join(
        f"{m},{kind},{k},{speed * r * k / (1 + c * (k - 1)):.6g}\n"
        for m, (speed, c) in MODELS.items()
        for _, kind, r in POOLS
        for k in (1, 2, 4, 8, 16)
    )
    files = {
        "workload.csv": f"{HEADS['workload.csv']}\n{rows}",
        "pools.csv": (
            "pool,gpu_type,gpus,price_per_gpu_hour\n"
            + "".join(f"{p},{kind},{gpus},{2 * r}\n" for p, kind, r in POOLS)
        ),
        "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}",
        "config.toml": "interval_s = 300\nrestart_s = 60\n",
    }
    return parse_workload("week", {name: text.encode() for name, text in files.items()})


def main() -> int:
    """Run both and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--gpus", type=int, default=256, help="of each of two pools")
    parser.add_argument(
        "--load", type=float, default=0.6, help="GPU-seconds asked for / those of the machines"
    )
    parser.add_argument("--policy", default="greedy")
    parser.add_argument(
        "--react",
        type=float,
        default=math.inf,
        metavar="S",
        help="early rounds, as of allocator run",
    )
    parser.add_argument("--gap", type=float, default=1e-3, help="of policies that search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=int, default=200, help="rounds whose snapshots are kept")
    given = parser.parse_args()
    workload = week(given.jobs, given.days, given.gpus, given.load, given.seed)
    begin = time.process_time()
    effort = {"react_s": given.react, "gap": given.gap}
    expected = simulated(workload, given.policy, prove_every=0, **effort)
    print(
        f"simulator: {len(expected)} rounds in {time.process_time() - begin:.0f} s of CPU",
        file=sys.stderr,
    )
    folder = Path(tempfile.mkdtemp(prefix="week-"))
    # day, active jobs, MB of memory, MB of the database
    seen: list[tuple[float, int, float, float]] = []

    def note(turn: RoundOutcome, _seconds: float) -> None:
        seen.append((turn.problem.now_s / 86_400, len(turn.problem.jobs), _memory(), _size(folder)))
        if len(seen) % 200 == 0:
            print(
                "round {}: day {:.2f}, {} jobs, {:.0f} MB, {:.1f} MB".format(len(seen), *seen[-1]),
                file=sys.stderr,
            )

    try:
        twin = Twin.of(workload, folder, given.policy, keep_rounds=given.keep, **effort)
        start = _memory()
        plans = twin.run(len(expected), on_step=note)
        same = sum(map(same_plans, plans, expected))
        counts = twin.queue.counts()
        twin.queue.close()
        print(
            f"{given.jobs} jobs in {given.days:g} days on {2 * given.gpus} GPUs, policy"
            f" {given.policy}, react {given.react:g} s, seed {given.seed}: {len(plans)} rounds,"
            f" {same} of {len(expected)} as the simulator decides; {counts['done']} jobs done,"
            f" breaches: {len(twin.machines.breaches)}; database {_size(folder):.1f} MB with"
            f" {given.keep} snapshots kept; memory {start:.0f} MB before the first round, at most"
            f" {_memory():.0f} MB\n"
        )
        _table(seen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if same == len(plans) == len(expected) else 1


def _table(seen: list[tuple[float, int, float, float]]) -> None:
    """Print the state after every seventh of the rounds."""
    print(
        "| day | rounds so far | active jobs | memory, most so far, MB | database, MB"
        " |\n|---:|---:|---:|---:|---:|"
    )
    for number in np.linspace(0, len(seen), 8).round().astype(int).tolist()[1:]:
        day, active, memory, size = seen[number - 1]
        print(f"| {day:.1f} | {number} | {active} | {memory:.0f} | {size:.1f} |")


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _size(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.iterdir()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
