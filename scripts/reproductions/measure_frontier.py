"""What queueing and efficiency can be had together in the published experiment, by objective.

    # a JSON line per simulation; those that FILE has are not run again
    python scripts/reproductions/measure_frontier.py run FILE --first 200 --seeds 20
    # Markdown for docs/reproduction.md
    python scripts/reproductions/measure_frontier.py table FILE

The publication reports 32 % less queueing and 24 % more efficiency than a greedy allocator. The
load is the middle one, 0.30 jobs a minute.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.paired import compare
from allocator.bench.workloads import generate
from allocator.simulator import SimulationOptions, simulate
from scripts.studies.results import read_results

LOAD = 0.30
BASELINE = "greedy"
OBJECTIVES = (
    "flow",
    "completion",
    "progress",
    "response",
    "utility",
    "fairness",
    "completion > utility",
    "completion, progress=0.1",
)

METRICS = ("queue_s_mean", "efficiency_mean", "jct_s_mean", "jct_s_p99")


def main() -> None:
    """Run simulations or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--first", type=int, default=200, help="first seed (default: 200)")
    parser.add_argument("--seeds", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--workers", type=int, default=2, help="simulations at a time (default: 2)")
    args = parser.parse_args()
    rows = read_results(args.file)
    if args.what == "table":
        table(rows)
        return
    known = {(r["case"], r["seed"]) for r in rows}
    seeds = range(args.first, args.first + args.seeds)
    tasks = [(case, s) for s in seeds for case in (BASELINE, *OBJECTIVES) if (case, s) not in known]
    with ProcessPoolExecutor(args.workers) as pool, args.file.open("a") as out:
        for row in pool.map(measure, *zip(*tasks, strict=True)):
            print(json.dumps(row), file=out, flush=True)


def measure(case: str, seed: int) -> dict[str, Any]:
    """Return the metrics of one simulation."""
    workload = generate("reproduction", seed=seed, load=LOAD).workload()
    policy, objective = ("greedy", None) if case == BASELINE else ("mip", case)
    options = SimulationOptions(objective=objective, prove_every=0)
    found = simulate(workload, policy=policy, options=options).metrics
    return {"case": case, "seed": seed} | {name: found[name] for name in METRICS}


def table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the change of each objective against the baseline on the same seeds."""
    by = {(r["case"], r["seed"]): r for r in rows}
    seeds = sorted({r["seed"] for r in rows})
    print(f"Machine: {machine()}; seeds {seeds[0]} to {seeds[-1]}.\n")
    print(
        "| objective | seeds | queueing, % (asked: -32) | efficiency, % (asked: +24)"
        " | mean completion, % | p99, % |\n" + "|---" * 6 + "|"
    )
    for case in OBJECTIVES:
        common = [s for s in seeds if (case, s) in by and (BASELINE, s) in by]
        if not common:
            continue
        cells = []
        for name in METRICS:
            ours = np.array([by[case, s][name] for s in common])
            theirs = np.array([by[BASELINE, s][name] for s in common])
            text = f"{100.0 * (ours.mean() / theirs.mean() - 1.0):+.1f}"
            if len(common) > 1:
                x = compare(ours.tolist(), theirs.tolist())
                text += f" ({x.change_percent:+.1f}: {x.low:+.1f} to {x.high:+.1f})"
            cells.append(text)
        print(f"| `{case}` | {len(common)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
