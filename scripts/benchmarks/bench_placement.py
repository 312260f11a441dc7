"""Measure the CPU seconds that nodes add to a decision, and those to place all jobs of a plan.

    # print the machine, the seed and a table; about two minutes of CPU time
    python scripts/benchmarks/bench_placement.py [--seed 1] [--repeats 3] [--upto 200000]

Jobs of 1 to 32 GPUs, odd sizes among them, fill 95 % of nodes of 8 GPUs. The table has

- `counts`: a decision by GPUs of pools, in a round after which 12 % of the jobs were replaced;
- `nodes add`: what the same decision takes more if nodes.csv lists the nodes: places for all jobs,
  those that stay among them, and the check of the plan by the audit;
- `CPUs scarce`: the same if jobs need 4 to 16 CPUs for a GPU and nodes have 72, so that plans by
  counts leave jobs without nodes that have to be served in another way;
- `holes`: best fit for plans, in plain Python (formulations/placement/holes.py);
- `best_fit`, `value`: the placement rules, which score again only the nodes that changed;
- `per-node loop`: what a usual scheduler does, in plain Python and for free GPUs only: it looks at
  every node for every piece of a job; measured for LOOKS pieces and multiplied up to all of them.

The last four place all jobs on empty nodes, largest first; a job of more GPUs than a node has takes
whole nodes and a rest. Loading numba and compiling come before the measurement; they take about a
third of a second of CPU time in a process that finds compiled loops on disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import math
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import allocator
from allocator import Job, Node, Placement, Pool, Problem, Rate
from allocator.bench.machine import machine
from formulations.model.linear import Ints
from formulations.placement.engine import Placer
from formulations.placement.holes import Holes, Need
from formulations.placement.rules import RULES
from formulations.placement.state import Demand, NodeState

CASES = ((10_000, 2_048), (50_000, 8_192), (100_000, 16_384), (200_000, 32_768))  # jobs, nodes
GPUS_PER_NODE = 8
FULL = 0.95
CHURN = 0.12
CPUS_PER_GPU = (4.0, 8.0, 12.0, 16.0)  # where CPUs are scarce
CPUS_PER_NODE = 72.0
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


def added_by_nodes(
    sizes: Ints, nodes: int, cpus: bool, seed: int, repeats: int
) -> tuple[float, float]:
    """Return the CPU seconds of a decision by counts, and what nodes add to it."""
    rng = np.random.default_rng(seed)
    jobs = [
        Job(
            f"j{at}",
            "m",
            remaining_work=float(rng.uniform(2_000, 50_000)) * size,
            max_gpus=size,
            min_gpus=size,
            sizes=(size,),
            weight=float(rng.choice([0.5, 1.0, 2.0])),
            cpus_per_gpu=float(rng.choice(CPUS_PER_GPU)) if cpus else None,
        )
        for at, size in enumerate(sizes.tolist())
    ]
    rows = [Node(f"n{at}", "p", GPUS_PER_NODE, cpus=CPUS_PER_NODE) for at in range(nodes)]
    first = allocator.solve(problem_of(jobs, nodes, rows, []))
    spots = dict(zip(first.jobs["job_id"], first.jobs["nodes"], strict=True))
    held = list[Placement]()
    for at, job in enumerate(jobs):
        if rng.random() < CHURN:
            jobs[at] = dataclasses.replace(job, job_id=f"new-{job.job_id}")
        elif spots[job.job_id]:
            jobs[at] = dataclasses.replace(job, state="running", pool="p", gpus=job.max_gpus)
            held += [Placement(job.job_id, x["node"], x["gpus"]) for x in spots[job.job_id]]
    seconds = []
    for some in ([], rows):
        problem = problem_of(jobs, nodes, some, held if some else [])
        seconds.append(least_seconds(lambda p=problem: decide(p), repeats))
    return seconds[0], seconds[1] - seconds[0]


def problem_of(jobs: list[Job], nodes: int, rows: list[Node], held: list[Placement]) -> Problem:
    """Return a round of one pool, with the nodes in `rows`."""
    return Problem.build(
        jobs=jobs,
        pools=[Pool("p", "A", GPUS_PER_NODE * nodes)],
        rates=[Rate("m", "A", k, float(k)) for k in SIZES.tolist()],
        nodes=rows,
        placements=held,
        now_s=0.0,
    )


def decide(problem: Problem) -> int:
    """Decide a round; no job is refused: one that gets nothing waits."""
    allocator.solve(problem)
    return 0


def least_seconds(run: Callable[[], int], repeats: int) -> float:
    """Return the least CPU seconds of some runs, none of which may refuse a job."""
    seconds = []
    for _ in range(repeats):
        gc.collect()  # what other runs left is no part of this one
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
    parser.add_argument("--upto", type=int, default=CASES[-1][0], help="jobs of the largest case")
    args = parser.parse_args()
    for name in ("best_fit", "value"):  # compile
        place_by_rule(name, SIZES, 64)
    added_by_nodes(SIZES, 64, False, args.seed, 1)  # load the solvers
    print(f"{machine()}; seed {args.seed}, least of {args.repeats} runs\n")
    print(
        "| jobs | nodes | counts | nodes add | CPUs scarce"
        " | holes | best_fit | value | per-node loop |"
    )
    print("|" + "---|" * 9)
    for jobs, nodes in CASES:
        if jobs > args.upto:
            break
        sizes = draw_sizes(jobs, nodes, args.seed)
        runs: list[Callable[[], int]] = [
            lambda s=sizes, n=nodes: place_in_holes(s, n),
            lambda s=sizes, n=nodes: place_by_rule("best_fit", s, n),
            lambda s=sizes, n=nodes: place_by_rule("value", s, n),
        ]
        seconds = [*added_by_nodes(sizes, nodes, False, args.seed, args.repeats)]
        seconds.append(added_by_nodes(sizes, nodes, True, args.seed, args.repeats)[1])
        seconds += [least_seconds(run, args.repeats) for run in runs]
        seconds.append(loop_over_nodes(sizes, nodes))
        cells = " | ".join(f"{s:.2f}" for s in seconds)
        print(f"| {len(sizes):,} | {nodes:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
