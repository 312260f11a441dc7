"""Measure the effect of headroom on interactive sessions, and its cost for batch jobs.

    python scripts/studies/policies/measure_headroom.py --seeds 8

The workloads are those of the generator `interactive` (240 jobs, 32 GPUs, load 1.2). Half of the
batch jobs may be moved, or none. GPUs are kept by the Poisson quantile for 5 % (interactive.csv),
or none are kept. The script prints the machine, the seeds and a table of means over seeds: share of
the sessions that wait for longer than the next round, their mean wait, mean completion time of the
batch jobs, and utilisation.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform

import numpy as np

from allocator.bench.workloads import generate
from allocator.options.headroom import wanted_headroom
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import simulate


def measured(seed: int, policy: str, moves: bool, keeps: bool) -> list[float]:
    """Return the results of one simulation.

    They are late share, mean wait in s, mean batch completion time in h, utilisation, and GPUs
    kept.
    """
    w = generate("interactive", seed=seed, jobs=240, gpus=32, load=1.2).workload()
    p, rows = w.problem, w.problem.interactive
    if not keeps:
        rows = dataclasses.replace(
            rows, **{name: column[:0] for name, column in vars(rows).items()}
        )
    jobs = (
        p.jobs
        if moves
        else dataclasses.replace(p.jobs, preemptible=np.zeros(len(p.jobs), dtype=bool))
    )
    p = dataclasses.replace(p, jobs=jobs, interactive=rows)
    result = simulate(
        dataclasses.replace(w, problem=p),
        policy=policy,
        options=SimulationOptions(objective="progress", prove_every=0),
    )
    wait = (result.jobs["started_s"] - result.jobs["submitted_s"]).to_numpy()
    took = (result.jobs["finished_s"] - result.jobs["submitted_s"]).to_numpy()
    session = p.jobs.interactive
    return [
        float((wait[session] > p.interval_s + 1e-6).mean()),
        float(wait[session].mean()),
        float(took[~session].mean()) / 3600.0,
        float(result.metrics["utilisation"]),
        float(wanted_headroom(p).sum()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args()
    print(
        f"{platform.machine()}, Python {platform.python_version()}; seeds 0 to {args.seeds - 1}\n"
    )
    print(
        "| policy | batch jobs that may be moved | GPUs kept | sessions late | mean wait, s | batch"
        " completion, h | utilisation |\n|---|---|---|---|---|---|---|"
    )
    for policy, moves in (("static", False), ("mip", False), ("mip", True)):
        for keeps in (False, True):
            mean = np.mean(
                [measured(seed, policy, moves, keeps) for seed in range(args.seeds)], axis=0
            )
            late, wait_s, batch_h, used, kept = mean.tolist()
            print(
                f"| `{policy}` | {'half' if moves else 'none'} | {kept:.1f} | {late:.1%} |"
                f" {wait_s:.0f} | {batch_h:.2f} | {used:.1%} |"
            )


if __name__ == "__main__":
    main()
