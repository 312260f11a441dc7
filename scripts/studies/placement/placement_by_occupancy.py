"""Measure how often plans that count GPUs by pool fit no nodes, and what placement makes of them.

    # print the table; about four minutes of CPU time
    python scripts/studies/placement/placement_by_occupancy.py [--nodes 500,100] [--rounds 12]
        [--seeds 10] [--occupancies 80,90,95,98,100]

Nodes of 8 GPUs. In each round 12 % of the running jobs end, and others of one size each, from 1
to 32 GPUs, some of them odd, fill the cluster up to the occupancy. By counts every job gets
its GPUs. Each line has the means over the seeds, with their 95 % bootstrap interval if it is not
empty:

- `cannot be placed`: share of rounds in which best fit without moves leaves a job without nodes:
  plans by counts cannot be carried out there;
- `refused`: jobs in all rounds of all seeds that get less than by counts, with moves, and if nobody
  moves;
- `short`: value below the bound of the counts, in %, with moves, if nobody moves, and with all jobs
  placed anew at no cost;
- `moves`: running jobs that move per round, with moves and if all are placed anew;
- `gain`: value per round that the moves bring, in % of the value, after what they cost;
- `CPU s`: of the decision with moves, per round.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np

import allocator
from allocator import Job, Node, Placement, Pool, Problem, Rate
from allocator.bench.machine import machine
from allocator.bench.paired import interval

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
SHARES = (0.30, 0.20, 0.10, 0.15, 0.05, 0.05, 0.08, 0.03, 0.03, 0.01)
CHURN = 0.12
Places = dict[str, list[tuple[str, int]]]


@dataclasses.dataclass
class Sums:
    """What a way of placing did over all rounds of a seed."""

    fails: int = 0
    refused: int = 0
    value: float = 0.0
    bound: float = 0.0
    moves: int = 0
    cpu_s: float = 0.0

    @property
    def short(self) -> float:
        """Value below the bound, in %."""
        return 100 * (1 - self.value / self.bound)


def main() -> None:
    """Print a line for each number of nodes and occupancy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="500,100")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--occupancies", default="80,90,95,98,100", help="in %%")
    args = parser.parse_args()
    print(f"{machine()}; seeds 0 to {args.seeds - 1}, {args.rounds} rounds each\n")
    print(
        "| nodes | occupancy | cannot be placed % | refused, nobody moves"
        " | short %, with moves | nobody moves | all anew | moves | all anew | gain % | CPU s |"
    )
    print("|" + "---|" * 11)
    for nodes in map(int, args.nodes.split(",")):
        for occupancy in (int(percent) / 100 for percent in args.occupancies.split(",")):
            runs = [run(occupancy, nodes, args.rounds, seed) for seed in range(args.seeds)]
            print(line(nodes, occupancy, args.rounds, runs), flush=True)


def run(occupancy: float, nodes: int, rounds: int, seed: int) -> dict[str, Sums]:
    """Run the rounds of one occupancy, and return the sums of each way of placing."""
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
    return sums


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
    sums.refused += plan.placement.reduced
    sums.moves += sum(
        name in after and sorted(after[name]) != sorted(spot) for name, spot in before.items()
    )
    sums.value += plan.objective_value
    sums.bound += plan.bound
    sums.cpu_s += cpu_s


def line(nodes: int, occupancy: float, rounds: int, runs: list[dict[str, Sums]]) -> str:
    """Return the line of the table."""
    ways = {name: [sums[name] for sums in runs] for name in ("moves", "nobody", "anew")}
    cells = [
        f"{nodes}",
        f"{occupancy:.0%}",
        with_interval([100 * s.fails / rounds for s in ways["nobody"]], 0),
        " / ".join(f"{sum(s.refused for s in ways[name])}" for name in ("moves", "nobody")),
        *(with_interval([s.short for s in sums], 3) for sums in ways.values()),
        with_interval([s.moves / rounds for s in ways["moves"]], 1),
        with_interval([s.moves / rounds for s in ways["anew"]], 0),
        with_interval(
            [
                100 * (moves.value / nobody.value - 1)
                for moves, nobody in zip(ways["moves"], ways["nobody"], strict=True)
            ],
            3,
        ),
        f"{np.mean([s.cpu_s for s in ways['moves']]) / rounds:.3f}",
    ]
    return "| " + " | ".join(cells) + " |"


def with_interval(values: list[float], digits: int) -> str:
    """Return the mean and its interval, or the mean alone where all values are equal."""
    low, high = interval(np.array(values))
    mean = round(float(np.mean(values)), digits) + 0.0  # no -0
    if high - low < 0.5 * 10**-digits:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
