"""Measure the CPU time of the simulator, except that of the decisions.

    python scripts/benchmarks/bench_simulator.py [--active N,N,...] [--rounds N]
        [--whole N,N,...] > tables.md

Per round: the number of jobs stays constant, and half of them hold GPUs. In every round one job in
a hundred ends, one arrives, and some fail. `wait`, `observe` and `apply` are the three calls of
allocator/loop/ports.py; `record` is that of the recorder. The median of the rounds counts.

Whole: jobs of the generator `bursty` under greedy, without and with bounds.

The time is the CPU time of the process, which a busy machine changes little. Standard output is
Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.workloads import generate
from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.workload import Workload
from allocator.engine.decision import decide_round
from allocator.simulator import SimulationOptions, run as running, simulate
from allocator.simulator.run import SimulationState, continue_simulation, initial_state

PARTS = ("wait", "observe", "apply", "record")
INTERVAL_S = 300.0


def steady(active: int, rounds: int) -> Workload:
    """Return a workload with a constant number of jobs.

    It has `active` jobs at time 0, and one in a hundred more per round. Each job has 0 to 50 rounds
    of work left on one GPU. Half of the jobs get GPUs, so that about a hundredth ends per round.
    """
    rng = np.random.default_rng(active)
    more = rounds * active // 100
    n, models = active + more, 20
    speeds = [
        {"model": f"m{i}", "gpu_type": t, "gpus": k, "work_per_s": s * k**0.8}
        for i in range(models)
        for t, s in (("A", 2.0), ("B", 1.0))
        for k in (1, 2, 4, 8)
    ]
    gpus = max(2, active // 4)
    return GeneratedWorkload(
        "steady",
        {"interval_s": INTERVAL_S},
        {
            "workload.csv": {
                "job_id": [f"job-{j:06d}" for j in range(n)],
                "submitted_s": np.concatenate(
                    [np.zeros(active), np.sort(rng.uniform(1, rounds * INTERVAL_S, more))]
                ),
                "model": [f"m{j % models}" for j in range(n)],
                "total_work": rng.uniform(0, 50, n) * 1.5 * INTERVAL_S + 1,
                "requested_gpus": [1] * n,
                "max_gpus": rng.choice([1, 2, 4, 8], n),
                "checkpoint_every_s": [600] * n,
            },
            "pools.csv": {
                "pool": ["a", "b"],
                "gpu_type": ["A", "B"],
                "gpus": [gpus, gpus],
                "price_per_gpu_hour": [2.0, 1.0],
            },
            "rates.csv": {name: [row[name] for row in speeds] for name in speeds[0]},
        },
    ).workload()


class CallMeter:
    """CPU seconds of calls, by name: one list entry per call."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same call, measured."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent[name].append(time.process_time() - started)

        return measured


def per_round(active: int, rounds: int) -> str:
    """Return a row of milliseconds of each part per round, and their sum per 1,000 active jobs.

    Each is the median over the rounds.
    """
    options = SimulationOptions(
        until_s=rounds * INTERVAL_S, prove_every=0, failures_per_gpu_hour=0.01, noise=0.1
    )
    state = initial_state(steady(active, rounds), "greedy", options)
    meter, here = CallMeter(), []
    for name in ("wait", "observe", "apply"):
        setattr(state.cluster, name, meter.around(name, getattr(state.cluster, name)))
    state.recorder.note = meter.around("record", state.recorder.note)  # type: ignore[method-assign]

    def count(state: SimulationState, turn: Any) -> None:
        here.append(len(turn.problem.jobs))

    continue_simulation(state, count)
    # the first round starts all jobs
    ms = [1000 * statistics.median(meter.spent[name][1:]) for name in PARTS]
    return (
        f"| {statistics.mean(here):,.0f} | {len(here)} | "
        + " | ".join(f"{x:.2f}" for x in ms)
        + f" | {sum(ms):.2f} | **{1000 * sum(ms) / statistics.mean(here):.2f}** |"
    )


def whole(jobs: int, prove_every: int) -> str:
    """Return a row: CPU seconds of a whole simulation, those of the decisions, and the rest."""
    workload = generate("bursty", seed=1, jobs=jobs).workload()
    meter = CallMeter()

    with mock.patch.object(running, "decide_round", meter.around("decide", decide_round)):
        started = time.process_time()
        done = simulate(
            workload, policy="greedy", options=SimulationOptions(prove_every=prove_every)
        )
        total, decisions = time.process_time() - started, sum(meter.spent["decide"])
    active = float(done.rounds["active"].mean())
    rest = total - decisions
    proved = {0: "never", 1: "every round"}.get(prove_every, f"every {prove_every}th")
    return (
        f"| {jobs:,} | {int(workload.problem.pools.gpus.sum()):,} | {len(done.rounds):,} |"
        f" {active:,.0f} |"
        f" {proved} | {total:.1f} | {decisions:.1f} | {rest:.1f} |"
        f" {1000 * rest / len(done.rounds):.2f} |"
    )


def main() -> int:
    """Print the tables."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--active", type=numbers, default=[100, 1000, 10_000], help="default: 100,1000,10000"
    )
    parser.add_argument("--rounds", type=int, default=40, help="of each (default: 40)")
    parser.add_argument(
        "--whole", type=numbers, default=[2500, 5000, 10_000], help="default: 2500,5000,10000"
    )
    args = parser.parse_args()
    print(machine())
    if args.active:
        print(
            "\nCPU milliseconds per round\n\n| active jobs | rounds | "
            + " | ".join(PARTS)
            + " | sum | per 1,000 jobs |\n|"
            + "---|" * (len(PARTS) + 4),
            flush=True,
        )
    for active in args.active:
        print(per_round(active, args.rounds), flush=True)
    if args.whole:
        print(
            "\nCPU seconds of whole simulations\n\n| jobs | GPUs | rounds | mean active | bounds |"
            " total | decisions | rest | rest per round, ms |\n|" + "---|" * 9,
            flush=True,
        )
    for jobs in args.whole:
        print(whole(jobs, 0), flush=True)
    if args.whole:
        print(whole(min(args.whole), 1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
