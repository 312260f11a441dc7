"""What looking ahead buys: the policy `horizon` beside `mip` and rules, on workloads of several kinds.

    python scripts/measure_horizon.py run FILE --families reproduction,bursty --seeds 5    # a JSON line per simulation
    python scripts/measure_horizon.py table FILE...                            # Markdown for docs/horizon.md
    python scripts/measure_horizon.py times                                    # CPU seconds of a decision by size

A simulation that has its line in FILE already is not run again. Every policy gets the same jobs and the same world, in
which all is as believed. Changes are means of pairs of one seed with bootstrap intervals (allocator/bench/paired.py).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.clusters import generate as generate_cluster
from allocator.bench.paired import compare
from allocator.bench.shipped import MEDIUM
from allocator.bench.workloads import generate
from allocator.decision import decide_round, overridden
from allocator.domain.validate import validate
from allocator.domain.workload import Workload
from allocator.simulator import Options, simulate
from allocator.solvers.base import Limits

FAMILIES = {"reproduction": ((0.24, 0.30, 0.36), 250), "bursty": ((0.7, 1.4), 200), "mixed": ((0.7, 1.3), 150)}
LOOKS = (3, 6, 12)
CASES: dict[str, tuple[str, str, int | None]] = {     # policy, objective, intervals
    "mip, progress": ("mip", "progress", None), "greedy": ("greedy", "progress", None),
    "srtf": ("srtf", "progress", None), "sia": ("sia", "progress", None),
    "mip, completion": ("mip", "completion", None), "horizon 6, progress": ("horizon", "progress", 6),
    **{f"horizon {h}, completion": ("horizon", "completion", h) for h in LOOKS}}
SHOWN = {"jct_s_mean": "mean", "jct_s_median": "median", "jct_s_p99": "p99", "restarts": "restarts"}
FEWEST = 3               # seeds of a line of the table
BASELINES = ("sia", "mip, progress")


def main() -> None:
    """Run, or print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table", "times"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--cases", help="numbers of cases from 0, with commas (default: all)")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    done = [json.loads(line) for file in args.files if file.exists() for line in file.read_text().splitlines()]
    if args.what == "times":
        times()
        return
    if args.what == "table":
        tables(done)
        return
    if not args.files:
        parser.error("run needs a file")
    known = {(r["family"], r["load"], r["seed"], r["case"]) for r in done}
    names = list(CASES)
    chosen = names if args.cases is None else [names[int(i)] for i in args.cases.split(",")]
    with args.files[0].open("a") as out:
        for seed in range(args.seeds):
            for family in args.families.split(","):
                loads, jobs = FAMILIES[family]
                for load in loads:
                    workload = generate(family, seed=seed, load=load, jobs=jobs).workload()
                    for case in chosen:
                        if (family, load, seed, case) not in known:
                            row = {"family": family, "load": load, "seed": seed, "case": case, **one(workload, case)}
                            print(json.dumps(row), file=out, flush=True)


def one(workload: Workload, case: str) -> dict[str, Any]:
    """The metrics of a simulation, and CPU seconds of one decision with its round."""
    policy, objective, horizon = CASES[case]
    begin = time.process_time()
    found = simulate(workload, policy=policy, options=Options(objective=objective, horizon=horizon, prove_every=0))
    spent = time.process_time() - begin
    m = {**found.metrics, "jct_s_median": float(found.jobs["jct_s"].median())}
    return {**{k: m[k] for k in SHOWN}, "finished": m["finished"], "cpu_s": spent / max(1, m["rounds"])}


def tables(rows: list[dict[str, Any]]) -> None:
    """Means by case, and changes against the baselines."""
    print(f"Machine: {platform.machine()}, Python {platform.python_version()}.\n")
    print("| workload, load | policy, objective | seeds | mean | median | p99 | restarts | CPU ms | mean against sia % "
          "| mean against mip % |\n" + "|---" * 10 + "|")
    for family, (loads, jobs) in FAMILIES.items():
        mine = {(r["load"], r["seed"], r["case"]): r for r in rows if r["family"] == family}
        for load in loads:
            for case in CASES:
                seeds = sorted(s for at, s, c in mine if (at, c) == (load, case) and all(
                    (load, s, b) in mine for b in BASELINES))
                if len(seeds) >= FEWEST:
                    base = [[mine[load, s, b]["jct_s_mean"] for s in seeds] for b in BASELINES]
                    cells = _cells([mine[load, s, case] for s in seeds], jobs, case, base)
                    print(f"| {family}, {load:g} | {case} |", " | ".join(cells), "|")


def _cells(rows: list[dict[str, Any]], jobs: int, case: str, baselines: list[list[float]]) -> list[str]:
    """Of one line of a table: means in minutes, restarts per job, changes with their intervals."""
    mean = {k: float(np.mean([r[k] for r in rows])) for k in (*SHOWN, "cpu_s")}
    cells = [str(len(rows)), *(f"{mean[k] / 60:.1f}" for k in ("jct_s_mean", "jct_s_median", "jct_s_p99")),
             f"{mean['restarts'] / jobs:.2f}", f"{1e3 * mean['cpu_s']:.0f}"]
    for name, base in zip(BASELINES, baselines, strict=True):
        x = compare([r["jct_s_mean"] for r in rows], base)
        spread = f" ({x.low:+.1f} to {x.high:+.1f})" if len(rows) > 1 else ""
        cells.append("" if name == case else f"{x.change_percent:+.1f}{spread}")
    return cells


def times() -> None:
    """CPU seconds of one decision by size and intervals, objective completion; the second of two in a process."""
    print("| active jobs | options | single round | " + " | ".join(f"{h} intervals" for h in LOOKS) + " |")
    print("|---" * (3 + len(LOOKS)) + "|")
    for jobs in (250, 500, 1000):
        pools = tuple(replace(pool, gpus=pool.gpus * jobs // MEDIUM.jobs) for pool in MEDIUM.pools)
        problem = overridden(validate(generate_cluster(replace(MEDIUM, jobs=jobs, pools=pools), 1).snapshot()),
                             "completion", None)
        cells = []
        for h in (1, *LOOKS):
            for _ in range(2):
                begin = time.process_time()
                found = decide_round(overridden(problem, None, None, h), policy="horizon", limits=Limits(gap=1e-3))
                spent = time.process_time() - begin
            gap = "" if h == 1 else f" ({found.decision.solver_choice.split(', ')[-1]})"
            cells.append(f"{spent:.2f}{gap}")
        print(f"| {jobs} | {len(found.round.option)} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
