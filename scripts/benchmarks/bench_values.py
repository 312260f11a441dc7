"""Measure the CPU time to value all options of a round under every objective.

    # print the machine, the seeds and a table
    python scripts/benchmarks/bench_values.py [--jobs N] [--seeds N]

The table is in the last section of docs/spot-results.md. In the round, all jobs of the generator
`deadlines` wait at once. The time is the best of REPEATS, and the mean over the seeds.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from allocator.bench.workloads import generate
from allocator.domain.problem import Problem
from allocator.options.option_table import option_table
from allocator.performance.table import RateTable
from allocator.valuation import build_context, option_values
from formulations.objectives import BUILT_IN
from formulations.objectives.context import Offer

REPEATS = 5


def measure(problem: Problem, objective: str) -> tuple[int, float]:
    """Return the number of options of the round, and the CPU seconds to value them."""
    asked, table = replace(problem, objective=objective), RateTable.of(problem)
    m = option_table(asked, table)
    offer = Offer(m.start, m.job, m.pool, m.gpus, m.rate, m.pause_s, m.keep)
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        option_values(asked, build_context(asked, table, offer))
        seconds.append(time.process_time() - begin)
    return len(m), min(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy"
        f" {np.__version__}; {args.jobs} jobs, seeds 0..{args.seeds - 1}\n"
    )
    problems = [
        generate("deadlines", seed=s, jobs=args.jobs).workload().problem for s in range(args.seeds)
    ]
    print("| objective | options a job | CPU ms |\n|---|---|---|")
    for objective in BUILT_IN:
        found = [measure(p, objective) for p in problems]
        options, seconds = (float(np.mean(v)) for v in zip(*found, strict=True))
        print(f"| {objective} | {options / args.jobs:.1f} | {1e3 * seconds:.1f} |")


if __name__ == "__main__":
    main()
