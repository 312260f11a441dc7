"""Measure the CPU milliseconds that each rule-based policy needs for one decision.

    # print a table for docs/policies.md
    python scripts/studies/policies/measure_policies.py

Compiling the round and auditing the plan are not included. Rounds have 1,000 GPUs, few jobs or
many, one pool or three, and elastic jobs (1 to 4 times the request, at most 32) or rigid ones.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import NO_LIMITS, run_policy
from allocator.options.instance_building import compile_round
from allocator.policies.registry import POLICIES
from scripts.cases.folders import Folder

NAMES = ("static", "equal", "srtf", "las", "greedy-naive", "greedy", "afs", "ffdl")
CASES = (
    ("300 jobs, elastic, one pool", 300, 1, True),
    ("1,000 jobs, elastic, one pool", 1000, 1, True),
    ("1,000 jobs, elastic, three pools", 1000, 3, True),
    ("2,000 jobs, rigid, one pool", 2000, 1, False),
)
REPEATS = 7


def main() -> None:
    """Print one row per case: the best of REPEATS."""
    print("| round | options | compile |", " | ".join(f"`{name}`" for name in NAMES), "|")
    print("|---" * (len(NAMES) + 3) + "|")
    for label, jobs, pools, elastic in CASES:
        problem = busy(jobs, pools, elastic)
        round_ = compile_round(problem, prunes=False)
        cells = [
            f"{len(round_.option):,}",
            milliseconds(lambda problem=problem: compile_round(problem, prunes=False)),
        ]
        cells += [
            milliseconds(
                lambda name=name, round_=round_: run_policy(
                    round_, POLICIES[name].decide, None, NO_LIMITS, math.inf
                )
            )
            for name in NAMES
        ]
        print(f"| {label} |", " | ".join(cells), "|")


def milliseconds(run: Any) -> str:
    """Return the least CPU time of several runs."""
    spent = []
    for _ in range(REPEATS):
        begin = time.process_time()
        run()
        spent.append(time.process_time() - begin)
    return f"{1e3 * min(spent):.1f}"


def busy(count: int, pools: int, elastic: bool, gpus: int = 1000) -> Problem:
    """Return a round of a busy cluster, in which most GPUs are held.

    Requests are 1 to 16, work is log-normal, and there are six speed-up curves.
    """
    rng = np.random.default_rng([count, pools])
    free = [gpus // pools] * pools
    rates = [
        {
            "model": f"m{m}",
            "gpu_type": f"t{p}",
            "gpus": k,
            "work_per_s": (1 + p) * k / (1 + 0.02 * m * (k - 1)),
        }
        for p in range(pools)
        for m in range(6)
        for k in (1, 2, 4, 8, 16, 32)
    ]
    jobs = []
    for j in range(count):
        k, p = int(rng.choice([1, 1, 1, 1, 2, 4, 8, 8, 16])), int(rng.integers(pools))
        row: dict[str, Any] = {
            "job_id": f"j{j}",
            "model": f"m{rng.integers(6)}",
            "submitted_s": 60 * j,
            "requested_gpus": k,
            "remaining_work": float(np.exp(rng.normal(8, 2))),
            "min_gpus": 1 if elastic else k,
            "max_gpus": min(32, 4 * k) if elastic else k,
            "attained_gpu_s": float(rng.choice([0, 1e3, 1e4])),
        }
        if free[p] >= k and rng.random() < 0.9:
            free[p] -= k
            row |= {"state": "running", "pool": f"p{p}", "gpus": k}
        jobs.append(row)
    rows = [{"pool": f"p{p}", "gpu_type": f"t{p}", "gpus": gpus // pools} for p in range(pools)]
    return validate(
        Folder("busy", {}, {"jobs.csv": jobs, "pools.csv": rows, "rates.csv": rates}).snapshot()
    )


if __name__ == "__main__":
    main()
