"""Count the deadlines that `mip` with the objective `tardiness` and other policies meet.

    # print the tables of docs/deadlines.md
    python scripts/studies/policies/measure_deadlines.py --seeds 6 --out due
    # one world and one policy only
    python scripts/studies/policies/measure_deadlines.py --out due --worlds "1.0 tight" --cases edf

The other policies include earliest deadline first and ElasticFlow. A world is the generator `due`
at a load. Its deadlines are unchanged (usual), or the time from submission is multiplied by 0.7
(tight) or 2 (loose). Every simulation runs until all jobs are done. Results are kept in the folder,
and existing ones are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from allocator.bench import paired
from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate

HOUR, JOBS = 3600.0, 300
OURS = "mip tardiness"
CASES: Mapping[str, tuple[str, str]] = {  # policy, objective
    "edf": ("edf", "tardiness"),
    "elasticflow": ("elasticflow", "tardiness"),
    "greedy": ("greedy", "tardiness"),
    "sia": ("sia", "tardiness"),
    "mip progress": ("mip", "progress"),
    "mip completion": ("mip", "completion"),
    OURS: ("mip", "tardiness"),
}
TIME = {"tight": 0.7, "usual": 1.0, "loose": 2.0}
WORLDS = ("1.0 tight", "1.6 usual", "2.2 usual", "2.2 tight", "2.2 loose")
SHOWN = {"met": "deadlines met", "weighted": "by weight"}


def workload(world: str, seed: int) -> Workload:
    """Return the workload of a world and seed."""
    load, times = world.split(" ")
    w = generate("due", seed=seed, load=float(load), jobs=JOBS).workload()
    jobs = w.problem.jobs
    due = jobs.submitted_s + TIME[times] * (jobs.deadline_s - jobs.submitted_s)
    jobs = dataclasses.replace(jobs, deadline_s=due)
    return dataclasses.replace(w, problem=dataclasses.replace(w.problem, jobs=jobs))


def measure(world: str, seed: int, case: str) -> dict[str, Any]:
    """Return the results of one simulation."""
    policy, objective = CASES[case]
    w, begin = workload(world, seed), time.process_time()
    s = simulate(w, policy=policy, options=SimulationOptions(objective=objective, prove_every=0))
    assert not s.unfinished
    jobs, ended = w.problem.jobs, s.jobs["finished_s"].to_numpy()
    dated = ~np.isnan(jobs.deadline_s)
    late = np.maximum(0.0, ended - jobs.deadline_s)[dated] / HOUR
    flow, weight = (ended - jobs.submitted_s) / HOUR, jobs.weight[dated]
    return {
        "world": world,
        "seed": seed,
        "case": case,
        "met": float((late <= 0).mean()),
        "weighted": float(np.average(late <= 0, weights=weight)),
        "late_h": float(np.average(late, weights=weight)),
        "free_h": float(flow[~dated].mean()),
        "free_worst_h": float(flow[~dated].max()),
        "jct_h": float(flow.mean()),
        "restarts": s.metrics["restarts"],
        "decision_ms": 1e3 * s.metrics["decision_s_mean"],
        "cpu_s": time.process_time() - begin,
    }


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield every requested simulation, from the folder if it is stored there."""
    args.out.mkdir(parents=True, exist_ok=True)
    for world in args.worlds:
        for seed in range(args.seeds):
            for case in args.cases:
                path = args.out / f"{world}-{seed}-{case}.json".replace(" ", "_")
                if not path.exists():
                    path.write_text(json.dumps(measure(world, seed, case)))
                row = json.loads(path.read_text())
                print(
                    f"# {world} {seed} {case}: met {row['met']:.3f}, {row['cpu_s']:.0f} s CPU",
                    flush=True,
                )
                yield row


def table(rows: list[dict[str, Any]], world: str) -> str:
    """Return one line per policy, and the difference of `mip` from it.

    Differences are percentage points of deadlines met, as the mean with its interval.
    """
    lines = [
        (
            "| policy | deadlines met | by weight | mean hours late, by weight | completion without"
            " deadline, h (worst) | mean completion, h | restarts | ours: points more met | by"
            " weight |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    some = {(r["seed"], r["case"]): r for r in rows if r["world"] == world}
    seeds = sorted({s for s, _ in some})
    for case in dict.fromkeys(c for _, c in some):
        mine = [some[s, case] for s in seeds if (s, case) in some]

        def mean(name: str, mine: list[dict[str, Any]] = mine) -> float:
            return float(np.mean([r[name] for r in mine]))

        more = ["", ""]
        if case != OURS and all((s, OURS) in some for s in seeds):
            more = [
                points(np.array([some[s, OURS][name] - some[s, case][name] for s in seeds]))
                for name in SHOWN
            ]
        lines.append(
            f"| {case} | {mean('met'):.2%} | {mean('weighted'):.2%} | {mean('late_h'):.2f} |"
            f" {mean('free_h'):.1f} ({max(r['free_worst_h'] for r in mine):.0f}) |"
            f" {mean('jct_h'):.2f} | {mean('restarts'):.0f} | {more[0]} | {more[1]} |"
        )
    return "\n".join(lines)


def points(more: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Return percentage points: mean, interval, and the numbers of pairs above, at and below 0."""
    low, high = paired.interval(100.0 * more)
    return (
        f"{100.0 * more.mean():+.1f} [{low:+.1f}, {high:+.1f}], "
        f"{int((more > 0).sum())}/{int((more == 0).sum())}/{int((more < 0).sum())}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--worlds", type=lambda text: text.split(","), default=list(WORLDS))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(
        f"# {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy"
        f" {np.__version__}; {JOBS} jobs, seeds 0..{args.seeds - 1}",
        flush=True,
    )
    rows = list(results(args))
    for world in dict.fromkeys(r["world"] for r in rows):
        print(f"\n{world}\n\n{table(rows, world)}")


if __name__ == "__main__":
    main()
