"""Measure the figures of docs/sharing.md: the time to price all pairs, and the fit of slowdowns.

# a minute; CPU times, best of five
python scripts/studies/sharing/measure_sharing.py
"""

from __future__ import annotations

import dataclasses
import itertools
import platform
import time

import numpy as np

from allocator.bench.workloads.sharing import GPU_GB, sharing
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot, Table
from allocator.options.colocation.pairs import find_colocations
from allocator.options.option_table import option_table
from allocator.performance.interference import fit
from allocator.performance.table import RateTable

SEEDS = range(5)


def waiting(jobs: int, seed: int, memory_gb: float = GPU_GB) -> Problem:
    """Return a problem in which all jobs of a workload wait."""
    return sharing(seed=seed, load=1.0, jobs=jobs, gpus=64, memory_gb=memory_gb).workload().problem


def elastic(jobs: int, seed: int) -> Problem:
    """Return jobs of 20 models with sizes 1, 2, 4 and 8 in one or two passes.

    There are three pools of different GPUs.
    """
    rng = np.random.default_rng(seed)
    models, types, sizes = [f"m{i}" for i in range(20)], ["A", "B", "C"], (1, 2, 4, 8)
    between = [
        (a, b, t) for a, b in itertools.combinations_with_replacement(models, 2) for t in types
    ]
    rows = {
        "jobs.csv": [
            {
                "job_id": i,
                "model": rng.choice(models),
                "submitted_s": 0,
                "max_gpus": 8,
                "remaining_work": float(10 ** rng.uniform(2, 6)),
            }
            for i in range(jobs)
        ],
        "pools.csv": [
            {"pool": t, "gpu_type": t, "gpus": 256, "memory_gb": 48, "sharing": "any"}
            for t in types
        ],
        "rates.csv": [
            {
                "model": m,
                "gpu_type": t,
                "gpus": k,
                "work_per_s": k**0.8 / (1 + 0.1 * p),
                "accumulation": 1 + p,
                "memory_gb": 2 + i / (1 + p),
            }
            for i, m in enumerate(models)
            for t in types
            for k in sizes
            for p in (0, 1)
        ],
        "sharing.csv": [
            {
                "model_a": a,
                "model_b": b,
                "gpu_type": t,
                "gpus": 1,
                "slowdown_a": rng.uniform(1.1, 2.5),
                "slowdown_b": rng.uniform(1.1, 2.5),
            }
            for a, b, t in between
        ],
    }
    return validate(
        Snapshot(
            "elastic",
            {},
            {
                file: Table(
                    file, {c: [str(r[c]) for r in many] for c in many[0]}, range(2, len(many) + 2)
                )
                for file, many in rows.items()
            },
        )
    )


def line(problems: list[Problem]) -> str:
    """Return means over the problems.

    They are: pairs of options that the rules allow; kinds of jobs at one pool and size; CPU ms to
    value all pairs; and CPU ms to price them once. The option table, which every round has, is not
    counted.
    """
    rows = []
    for p in problems:
        table = RateTable.of(p)
        options, seconds = option_table(p, table), []
        for _ in range(5):
            begin = time.process_time()
            whole = find_colocations(p, options, table)
            between = time.process_time()
            u = np.zeros(len(p.jobs))
            np.maximum.at(u, options.job, options.value)
            whole.price(options.value, u)
            seconds.append((between - begin, time.process_time() - between))
        rows.append((whole.count, len(whole.alike), *(1e3 * np.min(seconds, axis=0))))
    count, kinds, value, price = np.mean(rows, axis=0)
    return f"| {count:,.0f} | {kinds:,.0f} | {value:.1f} | {price:.1f} |"


def main() -> None:
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy"
        f" {np.__version__}, seeds {SEEDS.start} to {SEEDS.stop - 1}\n"
    )
    print(
        "| jobs that wait | GPU memory | pairs of options | pairs of kinds | CPU ms to value | to"
        " price |\n|---|---|---|---|---|---|"
    )
    for jobs, memory in (
        (240, GPU_GB),
        (1_000, GPU_GB),
        (1_000, 16.0),
        (1_000, 12.0),
        (4_000, GPU_GB),
    ):
        print(
            f"| {jobs:,} | {memory:.0f} GB {line([waiting(jobs, seed, memory) for seed in SEEDS])}"
        )
    print(f"| elastic: 1,000 | 48 GB {line([elastic(1_000, seed) for seed in SEEDS])}")
    print("\n| slowdowns | error of the fit, each row left out |\n|---|---|")
    for words, noise in (("1 + alpha beta", 0.0), ("the same, 5 % noise", 0.05)):
        print(f"| {words} | {np.mean([fitted(s, noise) for s in SEEDS]):.1%} |")
    print(
        "| the workload's, without any structure |"
        f" {np.mean([fit(waiting(240, s)).error[0] for s in SEEDS]):.0%} |"
    )


def fitted(seed: int, noise: float) -> float:
    """Return the error on a table of the workload's size that has the fitted form and noise."""
    rng, p = np.random.default_rng(seed), waiting(240, seed)
    s, M = p.sharing, len(p.models)
    alpha, beta = rng.uniform(0.3, 1.2, (2, M))
    slow = [
        np.maximum((1 + alpha[x] * beta[y]) * np.exp(noise * rng.normal(size=len(x))), 1.0)
        for x, y in ((s.model_a, s.model_b), (s.model_b, s.model_a))
    ]
    return float(
        fit(
            dataclasses.replace(
                p, sharing=dataclasses.replace(s, slowdown_a=slow[0], slowdown_b=slow[1])
            )
        ).error[0]
    )


if __name__ == "__main__":
    main()
