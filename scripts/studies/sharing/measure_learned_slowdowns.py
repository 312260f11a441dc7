"""Measure what wrong slowdowns of colocated jobs cost, and what learning them wins back.

    # set OMP_NUM_THREADS=1; three minutes of CPU
    python scripts/studies/sharing/measure_learned_slowdowns.py

The workload is that of the generator `sharing` on 32 GPUs at load 1.5, rounds of 150 s, policy
`mip`. Policies believe slowdowns that are wrong by a log-normal factor, which are corrected while
jobs run (`learned`) or never (`wrong`). Mean completion in minutes over seeds; changes are paired
with the run in which slowdowns are known.
"""

from __future__ import annotations

import argparse
from unittest import mock

import numpy as np

from allocator.bench.paired import compare
from allocator.bench.workloads.sharing import sharing
from allocator.performance.fit.learned_slowdowns import LearnedSlowdowns
from allocator.simulator import SimulationOptions, simulate

SIGMAS = (0.2, 0.4)


def simulate_minutes(seed: int, jobs: int, objective: str, sigma: float, learns: bool) -> float:
    """Return the mean completion of one simulation in minutes."""
    w = sharing(seed=seed, load=1.5, jobs=jobs, gpus=32).workload()
    options = SimulationOptions(
        objective=objective, prove_every=0, seed=seed, misjudged_slowdowns=sigma
    )

    def keep(learned: LearnedSlowdowns, now_s: float) -> object:
        return learned.given

    if learns:
        done = simulate(w, policy="mip", options=options)
    else:
        with mock.patch.object(LearnedSlowdowns, "corrected", keep):
            done = simulate(w, policy="mip", options=options)
    return float(done.metrics["jct_s_mean"]) / 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--objective", default="completion")
    args = parser.parse_args()

    def run(sigma: float, learns: bool) -> list[float]:
        return [
            simulate_minutes(seed, args.jobs, args.objective, sigma, learns)
            for seed in range(args.seeds)
        ]

    known = run(0.0, True)
    print("| sigma | slowdowns | minutes | against known |\n|---|---|---|---|")
    print(f"| 0 | known | {np.mean(known):.1f} |  |", flush=True)
    for sigma in SIGMAS:
        for name in ("wrong", "learned"):
            got = run(sigma, name == "learned")
            c = compare(got, known)
            change = f"{c.change_percent:+.1f} % [{c.low:+.1f}, {c.high:+.1f}]"
            print(f"| {sigma:g} | {name} | {np.mean(got):.1f} | {change} |", flush=True)


if __name__ == "__main__":
    main()
