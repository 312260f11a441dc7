"""Measure the CPU seconds to place all jobs of a plan on nodes.

    # print the machine, the seed and a table; about half a minute
    python scripts/benchmarks/bench_placement.py [--seed 1] [--repeats 3]

Jobs of 1 to 32 GPUs, odd sizes among them, fill 95 % of nodes of 8 GPUs. They come largest first. A
job of more GPUs than a node has takes whole nodes and a rest. The table has

- `holes`: best fit for plans, in plain Python (formulations/placement/holes.py)
- `best_fit`, `value`: the placement rules, which score again only the nodes that changed
- `per-node loop`: what a usual scheduler does, in plain Python and for free GPUs only: it looks at
  every node for every piece of a job; measured for LOOKS pieces and multiplied up to all of them

Loading numba and compiling come before the measurement; they take about a third of a second of CPU
time in a process that finds compiled loops on disk.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from allocator.bench.machine import machine
from formulations.model.linear import Ints
from formulations.placement.engine import Placer
from formulations.placement.holes import Holes, Need
from formulations.placement.rules import RULES
from formulations.placement.state import Demand, NodeState

CASES = ((10_000, 2_048), (50_000, 8_192), (100_000, 16_384))  # jobs, nodes
GPUS_PER_NODE = 8
FULL = 0.95
LOOKS = 300  # pieces for which the loop over all nodes is measured
SIZES = np.array([1, 2, 3, 4, 5, 6, 8, 12, 16, 32])
OFTEN = np.array([0.70, 0.16, 0.03, 0.05, 0.01, 0.01, 0.025, 0.005, 0.005, 0.005])


def draw_sizes(jobs: int, nodes: int, seed: int) -> Ints:
    """Return the GPUs of jobs that fill the nodes to FULL, largest first.

    From the job on at which they would be fuller than that, all jobs want one GPU.
    """
    sizes = np.random.default_rng(seed).choice(SIZES, jobs, p=OFTEN)
    most = int(FULL * nodes * GPUS_PER_NODE)
    fits = np.cumsum(sizes - 1) <= most - jobs
    return np.sort(np.where(fits, sizes, 1))[::-1]


def pieces_of(sizes: Ints) -> Ints:
    """Return the GPUs of each piece of the jobs: whole nodes, then the rest."""
    whole, rest = np.divmod(sizes, GPUS_PER_NODE)
    pieces = np.concatenate([np.full(whole.sum(), GPUS_PER_NODE), rest[rest > 0]])
    return np.sort(pieces)[::-1].astype(np.int64)


def place_in_holes(sizes: Ints, nodes: int) -> int:
    """Place the jobs by best fit for plans, and return how many found no place."""
    endless = [math.inf] * nodes
    holes = Holes([0] * nodes, [GPUS_PER_NODE] * nodes, endless, endless)
    refused = 0
    for k in sizes.tolist():
        need = Need(pool=0, gpus=k, most_nodes=-(-k // GPUS_PER_NODE))
        places = holes.find(need)
        if places is None:
            refused += 1
        else:
            holes.take(places, need)
    return refused


def place_by_rule(name: str, sizes: Ints, nodes: int) -> int:
    """Place the pieces of the jobs by a rule, and return how many found no place."""
    state = NodeState.of_sizes(np.full(nodes, GPUS_PER_NODE))
    classes, of_piece, often = Demand.of_gpus(pieces_of(sizes)).classes()
    rule = RULES[name](state, classes, often.astype(np.float64))
    node, _ = Placer(state, classes, rule).place(of_piece)
    return int((node < 0).sum())


def loop_over_nodes(sizes: Ints, nodes: int) -> float:
    """Return the CPU seconds of a loop over all nodes for every piece."""
    pieces = pieces_of(sizes)
    sample = pieces[:: max(1, len(pieces) // LOOKS)]
    free = [GPUS_PER_NODE] * nodes
    begin = time.process_time()
    for k in sample.tolist():
        best, at = math.inf, -1
        for n in range(nodes):
            if free[n] >= k and free[n] - k < best:
                best, at = free[n] - k, n
        free[at] -= k
    return (time.process_time() - begin) * len(pieces) / len(sample)


def least_seconds(run: Callable[[], int], repeats: int) -> float:
    """Return the least CPU seconds of some runs, none of which may refuse a job."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        refused = run()
        seconds.append(time.process_time() - begin)
        if refused:
            raise SystemExit(f"{refused} jobs found no place")
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds to place all jobs of a plan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for name in ("best_fit", "value"):  # compile
        place_by_rule(name, SIZES, 64)
    print(f"{machine()}; seed {args.seed}, least of {args.repeats} runs\n")
    print("| jobs | nodes | holes | best_fit | value | per-node loop |")
    print("|---|---|---|---|---|---|")
    for jobs, nodes in CASES:
        sizes = draw_sizes(jobs, nodes, args.seed)
        runs: list[Callable[[], int]] = [
            lambda s=sizes, n=nodes: place_in_holes(s, n),
            lambda s=sizes, n=nodes: place_by_rule("best_fit", s, n),
            lambda s=sizes, n=nodes: place_by_rule("value", s, n),
        ]
        seconds = [least_seconds(run, args.repeats) for run in runs]
        seconds.append(loop_over_nodes(sizes, nodes))
        cells = " | ".join(f"{s:.2f}" for s in seconds)
        print(f"| {len(sizes):,} | {nodes:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
