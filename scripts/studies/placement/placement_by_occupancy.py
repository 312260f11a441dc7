"""Measure how often plans that count GPUs by pool fit no nodes, and what placement makes of them.

    python scripts/studies/placement/placement_by_occupancy.py [--nodes 500] [--rounds 30] \\
        [--seed 0]

500 nodes of 8 GPUs. In each round 12 % of the running jobs end, and others of one size each, from 1
to 32 GPUs, some of them odd, fill the cluster up to the occupancy. By counts every job gets
its GPUs. One line for each occupancy:

- `fails`: share of rounds in which best fit without moves leaves a job without nodes: plans by
  counts cannot be carried out there;
- `short`: value below the bound of the counts, in %, with moves, without, and with all jobs placed
  anew at no cost;
- `moves`: running jobs that move per round, with moves and if all are placed anew;
- `gain`: value per round that the moves bring, in % of the value, after what they cost;
- `s`: CPU seconds per round of the decision with moves.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np

import allocator
from allocator import Job, Node, Placement, Pool, Problem, Rate

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
SHARES = (0.30, 0.20, 0.10, 0.15, 0.05, 0.05, 0.08, 0.03, 0.03, 0.01)
OCCUPANCIES = (0.80, 0.90, 0.95, 0.98, 1.0)
CHURN = 0.12
Places = dict[str, list[tuple[str, int]]]


@dataclasses.dataclass
class Sums:
    """What a way of placing did over all rounds."""

    fails: int = 0
    value: float = 0.0
    bound: float = 0.0
    moves: int = 0
    cpu_s: float = 0.0


def main() -> None:
    """Print a line for each occupancy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("occupancy  fails %        short: moves, nobody, anew    moves, anew    gain %       s")
    for occupancy in OCCUPANCIES:
        print(run(occupancy, args.nodes, args.rounds, args.seed), flush=True)


def run(occupancy: float, nodes: int, rounds: int, seed: int) -> str:
    """Run the rounds of one occupancy."""
    rng = np.random.default_rng(seed)
    sums = {name: Sums() for name in ("moves", "nobody", "anew")}
    jobs, places, number = dict[str, Job](), Places(), 0
    for turn in range(rounds + 1):
        gone = [name for name in jobs if rng.random() < CHURN]
        for name in gone:
            jobs.pop(name)
            places.pop(name, None)
        free = int(occupancy * 8 * nodes) - sum(job.max_gpus for job in jobs.values())
        while free > 0:
            size = int(rng.choice(SIZES, p=SHARES))
            size = size if size <= free else max(k for k in SIZES if k <= free)
            jobs[f"j{number}"] = new_job(f"j{number}", size, rng)
            number, free = number + 1, free - size
        plan, cpu_s = solve(jobs, places, nodes)
        if turn > 0:  # the first round fills an empty cluster
            still, _ = solve(jobs, places, nodes, resizes_left=0)
            anew, _ = solve(jobs, {}, nodes, running=set(places))
            count(sums["moves"], plan, places, cpu_s)
            count(sums["nobody"], still, places, 0.0)
            count(sums["anew"], anew, places, 0.0)
        places = nodes_of(plan)
    return line(occupancy, rounds, sums)


def new_job(name: str, size: int, rng: np.random.Generator) -> Job:
    """Return a job of one size."""
    return Job(
        name,
        "m",
        remaining_work=float(rng.uniform(2_000, 50_000)) * size,
        max_gpus=size,
        min_gpus=size,
        sizes=(size,),
        weight=float(rng.choice([0.5, 1.0, 2.0])),
    )


def solve(
    jobs: dict[str, Job],
    places: Places,
    nodes: int,
    running: set[str] | None = None,
    resizes_left: int | None = None,
) -> tuple[allocator.Plan, float]:
    """Decide the round; jobs that run without places are placed anew at no cost."""
    runs = set(places) if running is None else running
    rows = [
        dataclasses.replace(
            job, state="running", pool="p", gpus=job.max_gpus, resizes_left=resizes_left
        )
        if name in runs
        else job
        for name, job in jobs.items()
    ]
    problem = Problem.build(
        jobs=rows,
        pools=[Pool("p", "A", 8 * nodes)],
        rates=[Rate("m", "A", k, float(k)) for k in SIZES],
        nodes=[Node(f"n{i}", "p", 8) for i in range(nodes)],
        placements=[Placement(name, n, k) for name, spot in places.items() for n, k in spot],
        now_s=0.0,
    )
    begin = time.process_time()
    plan = allocator.solve(problem)
    return plan, time.process_time() - begin


def nodes_of(plan: allocator.Plan) -> Places:
    """Return the nodes of each job that runs."""
    return {
        name: [(place["node"], place["gpus"]) for place in spot]
        for name, spot in zip(plan.jobs["job_id"], plan.jobs["nodes"], strict=True)
        if spot
    }


def count(sums: Sums, plan: allocator.Plan, before: Places, cpu_s: float) -> None:
    """Add a round."""
    assert plan.placement is not None
    after = nodes_of(plan)
    sums.fails += plan.placement.moved + plan.placement.reduced > 0
    sums.moves += sum(
        name in after and sorted(after[name]) != sorted(spot) for name, spot in before.items()
    )
    sums.value += plan.objective_value
    sums.bound += plan.bound
    sums.cpu_s += cpu_s


def line(occupancy: float, rounds: int, sums: dict[str, Sums]) -> str:
    """Return the line of the table."""
    moves, nobody, anew = (sums[name] for name in ("moves", "nobody", "anew"))
    short = [100 * (1 - s.value / s.bound) for s in (moves, nobody, anew)]
    gain = 100 * (moves.value - nobody.value) / moves.value
    return (
        f"{occupancy:>9.0%}  {100 * nobody.fails / rounds:>7.0f}"
        f"  {short[0]:>7.4f} {short[1]:>7.4f} {short[2]:>7.4f}"
        f"  {moves.moves / rounds:>6.1f} {anew.moves / rounds:>6.1f}"
        f"  {gain:>8.4f}  {moves.cpu_s / rounds:>6.3f}"
    )


if __name__ == "__main__":
    main()
