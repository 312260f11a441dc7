"""Measure what spread pauses change, for every objective: no job may starve.

    # table for docs/objectives.md, about two CPU minutes
    python scripts/studies/policies/measure_pauses.py --seeds 1

Jobs of the family `heterogeneous` (three GPU types, five applications) in rounds of 60 s, and every
change of a running job takes 250 s. Each objective is simulated with `spread_pauses` and without
it, with the same jobs, known sizes and true speeds. The first column is the largest completion time
of a job over that alone on an equal share (`ftf_max`). `flow` spreads pauses in any case.
"""

from __future__ import annotations

import argparse
import platform
from dataclasses import replace
from typing import Any

import numpy as np

from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate
from formulations.objectives import BUILT_IN

RESTART_S = 250.0
COLUMNS = {
    "ftf_max": ("largest, of an equal share", 1.0, ".1f"),
    "jct_s_mean": ("mean, h", 3_600.0, ".2f"),
    "jct_s_p99": ("p99, h", 3_600.0, ".1f"),
    "restarts": ("restarts a job", 1.0, ".2f"),
}


def main() -> None:
    """Simulate every objective and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--load", type=float, default=40.0, help="jobs per hour")
    parser.add_argument("--jobs", type=int, default=100)
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    print(
        f"Generator `heterogeneous`, {args.load:g} jobs per hour, {args.jobs} jobs, seeds"
        f" {', '.join(map(str, seeds))}. Machine: {platform.machine()}, Python"
        f" {platform.python_version()}, numpy {np.__version__}.\n"
    )
    print("| | " + " | ".join(name for name, _, _ in COLUMNS.values()) + " |")
    print("|---" * (1 + len(COLUMNS)) + "|")
    for objective in BUILT_IN:
        found = {
            spread: [
                measure(slow_world(seed, args.load, args.jobs, spread), objective) for seed in seeds
            ]
            for spread in (True, False)
        }
        cells = [
            " / ".join(f"{combine(name, rows) / unit:{digits}}" for rows in found.values())
            for name, (_, unit, digits) in COLUMNS.items()
        ]
        print(f"| `{objective}` | " + " | ".join(cells) + " |", flush=True)


def slow_world(seed: int, load: float, jobs: int, spread: bool) -> Workload:
    """Return a workload in which every change of a running job takes RESTART_S."""
    made = generate("heterogeneous", seed=seed, load=load, jobs=jobs).workload()
    slow = replace(made.problem.jobs, restart_s=np.full(jobs, RESTART_S))
    return replace(made, problem=replace(made.problem, jobs=slow, spread_pauses=spread))


def measure(workload: Workload, objective: str) -> dict[str, Any]:
    """Return the metrics of a simulation of the policy `mip`."""
    options = SimulationOptions(objective=objective, prove_every=0)
    metrics = simulate(workload, policy="mip", options=options).metrics
    return {**metrics, "restarts": metrics["restarts"] / metrics["jobs"]}


def combine(name: str, rows: list[dict[str, Any]]) -> float:
    """Return the largest of the seeds for the largest, and their mean for everything else."""
    values = [float(row[name]) for row in rows]
    return max(values) if name.endswith("_max") else float(np.mean(values))


if __name__ == "__main__":
    main()
