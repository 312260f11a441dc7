"""Sharing GPUs over whole workloads: bsbf, ffs and mip that may share against las, srtf and mip that may not.

    OMP_NUM_THREADS=1 python scripts/measure_sharing_policies.py                # 10 seeds; 25 minutes on one core
    OMP_NUM_THREADS=1 python scripts/measure_sharing_policies.py --gpus 32 --loads 1.5 --seeds 3

The workload of sharing with 240 jobs, rounds of 150 s, mean completion. Intervals: bootstrap over seeds of the paired
change (allocator/bench/paired.py). Policies that do not share do not look at slowdowns and run once for both.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import time

import numpy as np

from allocator.bench.paired import Comparison, compare
from allocator.bench.workloads.sharing import sharing
from allocator.domain.problem import Isolation
from allocator.domain.workload import Workload
from allocator.simulator import Options, simulate

SLOWDOWNS = ((1.1, 2.5), (1.05, 1.5))
APART = ("las", "srtf", "mip progress", "mip completion")
SHARED = ("ffs", "bsbf", "mip progress", "mip completion")


def alone(w: Workload) -> Workload:
    """The workload on pools that let nobody share."""
    pools = dataclasses.replace(w.problem.pools, sharing=np.full(len(w.problem.pools), Isolation.NONE))
    return dataclasses.replace(w, problem=dataclasses.replace(w.problem, pools=pools))


def minutes(w: Workload, name: str) -> float:
    """Mean completion under a policy and, for mip, an objective."""
    policy, _, objective = name.partition(" ")
    done = simulate(w, policy=policy, options=Options(objective=objective or None, prove_every=0))
    assert not done.unfinished
    return float(done.metrics["jct_s_mean"]) / 60


def told(c: Comparison) -> str:
    """Mean change in percent with its interval, and on how many seeds the policy was better."""
    return f"{c.change_percent:+.0f} % [{c.low:+.0f}, {c.high:+.0f}], {c.lower} of {c.n}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--gpus", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 1.5])
    args = parser.parse_args()
    begin = time.process_time()
    print(f"{platform.machine()}, Python {platform.python_version()}, seeds 0 to {args.seeds - 1}, 240 jobs; mean "
          "completion in minutes\n", flush=True)
    print("| GPUs | load | slowdowns | shares | policy | minutes | against las | against bsbf |\n" + "|---" * 8 + "|")
    for gpus in args.gpus:
        for load in args.loads:
            apart: dict[str, list[float]] = {}
            for slow in SLOWDOWNS:
                many = [sharing(seed=s, load=load, jobs=240, gpus=gpus, slowdown=slow).workload()
                        for s in range(args.seeds)]
                apart = apart or {name: [minutes(alone(w), name) for w in many] for name in APART}
                shared = {name: [minutes(w, name) for w in many] for name in SHARED}
                rows = [("no", *item) for item in apart.items()] + [("yes", *item) for item in shared.items()]
                for shares, name, got in rows:
                    print(f"| {gpus} | {load:g} | {slow[0]:g} to {slow[1]:g} | {shares} | `{name}` | "
                          f"{np.mean(got):.1f} | {told(compare(got, apart['las']))} | "
                          f"{told(compare(got, shared['bsbf']))} |", flush=True)
    print(f"\nCPU {time.process_time() - begin:.0f} s")


if __name__ == "__main__":
    main()
