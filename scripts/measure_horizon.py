"""What looking ahead buys: the policy `horizon` beside `mip` and rules, on workloads of several kinds.

    python scripts/measure_horizon.py run FILE --families reproduction,bursty --seeds 5    # a JSON line per simulation
    python scripts/measure_horizon.py table FILE...                            # Markdown for docs/horizon.md

A simulation that has its line in FILE already is not run again. Every policy gets the same jobs and the same world, in
which all is as believed. Changes are paired by seed and pooled over loads (allocator/bench/paired.py).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.paired import pooled
from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.simulator import Options, simulate

FAMILIES = {"reproduction": ((0.24, 0.30, 0.36), 250), "bursty": ((0.7, 1.4), 200), "mixed": ((0.7, 1.3), 150)}
LOOKS = (3, 6, 12)
CASES: dict[str, tuple[str, str, int | None]] = {     # policy, objective, intervals
    "mip, progress": ("mip", "progress", None), "greedy": ("greedy", "progress", None),
    "srtf": ("srtf", "progress", None), "sia": ("sia", "progress", None),
    "mip, completion": ("mip", "completion", None), "horizon 6, progress": ("horizon", "progress", 6),
    **{f"horizon {h}, completion": ("horizon", "completion", h) for h in LOOKS}}
SHOWN = {"jct_s_mean": "mean", "jct_s_median": "median", "jct_s_p99": "p99", "restarts": "restarts"}
BASELINES = ("sia", "mip, progress")


def main() -> None:
    """Run, or print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--cases", help="numbers of cases from 0, with commas (default: all)")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    done = [json.loads(line) for file in args.files if file.exists() for line in file.read_text().splitlines()]
    if args.what == "table":
        tables(done)
        return
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
    for family, (loads, jobs) in FAMILIES.items():
        mine = {(r["load"], r["seed"], r["case"]): r for r in rows if r["family"] == family}
        cases = [c for c in CASES if any(key[2] == c for key in mine)]
        for load in loads:
            whole = [s for s in range(100) if all((load, s, c) in mine for c in cases)]
            if not whole:
                continue
            print(f"**{family}, load {load:g}**, {jobs} jobs, {len(whole)} seeds (minutes; restarts per job; CPU ms)\n")
            print("| policy, objective | mean | median | p99 | restarts | CPU | mean against sia % | against mip % |")
            print("|---" * 8 + "|")
            for c in cases:
                got = {k: np.array([[mine[load, s, c][k] for s in whole]]) for k in (*SHOWN, "cpu_s")}
                cells = [f"{got[k].mean() / 60:.1f}" for k in ("jct_s_mean", "jct_s_median", "jct_s_p99")]
                cells += [f"{got['restarts'].mean() / jobs:.2f}", f"{1e3 * got['cpu_s'].mean():.0f}"]
                for b in BASELINES:
                    base = np.array([[mine[load, s, b]["jct_s_mean"] for s in whole]])
                    x = pooled(got["jct_s_mean"], base)
                    cells.append("" if b == c else f"{x.change_percent:+.1f} ({x.low:+.1f} to {x.high:+.1f})")
                print(f"| {c} |", " | ".join(cells), "|")
            print()


if __name__ == "__main__":
    main()
