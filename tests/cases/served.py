"""A queue with a history, for the pages of `allocator serve`: their pictures, tests and benchmarks.

A controller has run it on a simulated clock up to the present. Four tenants share 12 nodes and one
pool without nodes; a node is drained, one job has failed too often, one is on hold, and a pipeline
waits for its first part.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.io.snapshots import parse_snapshot
from allocator.queue.queue import Queue

MODELS = {"resnet": 1.0, "bert": 1.4, "llama": 2.2, "whisper": 0.8}
SPEEDS = {"H100": 2.0, "A100": 1.0, "L4": 0.35}
TENANTS = ("vision", "speech", "language", "operations")
SIZES = (1, 2, 4, 8, 16)
FILES = {
    "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus\n",
    "pools.csv": (
        "pool,gpu_type,gpus,gpus_per_node,market,price_per_gpu_hour\n"
        "h100,H100,32,8,reserved,4.1\na100,A100,64,8,on_demand,1.9\nl4,L4,8,8,spot,0.4\n"
    ),
    "nodes.csv": "node,pool,gpus,rack,state\n"
    + "".join(f"h100-{i},h100,8,r{i // 2},up\n" for i in range(4))
    + "".join(f"a100-{i},a100,8,r{2 + i // 4},up\n" for i in range(8)),
    "tenants.csv": (
        "tenant,parent,weight,max_gpus,guaranteed_gpus,budget_per_hour\n"
        "research,,3,96,0,\nvision,research,2,48,8,90\nspeech,research,1,32,0,60\n"
        "language,research,2,64,16,\noperations,,1,24,4,40\n"
    ),
    "rates.csv": "model,gpu_type,gpus,work_per_s\n"
    + "".join(
        f"{model},{kind},{k},{speed * factor * k**0.92:.5g}\n"
        for model, factor in MODELS.items()
        for kind, speed in SPEEDS.items()
        for k in SIZES
        if k <= 8 or kind != "L4"
    ),
    "config.toml": "interval_s = 1800\nbudget_per_hour = 210\n",
}


def build_served_queue(
    path: Path, *, now_s: float, rounds: int = 60, waiting: int = 30, seed: int = 0
) -> Queue:
    """Run a controller for some rounds that end at `now_s`; return the open queue.

    Parameters
    ----------
    path : Path
        The file of the queue, which does not exist yet.
    now_s : float
        The present, unix seconds; the last round was a minute ago.
    rounds : int
        Rounds of half an hour.
    waiting : int
        Jobs that are under way or wait at any time, about.
    seed : int
        Seed of the jobs.
    """
    every_s = 1800.0
    clock = SimulatedClock(now_s - 60.0 - (rounds - 1) * every_s)
    source = parse_snapshot("served", {name: text.encode() for name, text in FILES.items()})
    queue = Queue.create(path, source, clock=clock.now)
    machines = SimulatedMachines(
        {"h100": 32, "a100": 64, "l4": 8},
        clock,
        MachineBehaviour(
            rate=lambda order: 0.8 * SPEEDS[order.gpu_type] * order.gpus**0.9,
            pause_s=lambda order, held: 60.0,
            failures_per_gpu_hour=0.0004,
            seed=seed,
        ),
    )
    controller = Controller(
        queue.store,
        SimulatedExecutor(machines),
        clock,
        ControllerOptions(every_s=every_s, policy="mip", time_limit_s=60.0, stall_s=1e12),
    )
    controller.cluster.lease_holder.ttl_s = 2 * every_s
    draw, jobs = np.random.default_rng(seed), _jobs(np.random.default_rng(seed + 1))
    for number in range(rounds):
        active = sum(queue.counts()[state] for state in ("queued", "running", "paused"))
        arriving = max(0, waiting - active) if number % 3 == 0 else int(draw.poisson(2.0))
        queue.submit_many([next(jobs) for _ in range(arriving)])
        if number == rounds - 1:
            _disturb(queue, jobs)
        controller.step()
        if number < rounds - 1:
            clock.sleep(every_s)
    clock.sleep(60.0)
    return queue


def _jobs(draw: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield jobs without end, the same for the same generator."""
    number = 0
    while True:
        number += 1
        model = str(draw.choice(list(MODELS)))
        most = int(draw.choice((1, 2, 4, 8, 16), p=(0.15, 0.2, 0.3, 0.25, 0.1)))
        yield {
            "job_id": f"{model}-{number:03d}",
            "model": model,
            "tenant": str(draw.choice(TENANTS, p=(0.35, 0.2, 0.35, 0.1))),
            "total_work": float(draw.lognormal(10.6, 1.1)) * most**0.7,
            "min_gpus": max(1, most // 4),
            "max_gpus": most,
            "weight": float(draw.choice((1, 1, 1, 2))),
            "command": ["python", "train.py", "--config", f"{model}.yaml"],
        }


def _disturb(queue: Queue, jobs: Iterator[dict[str, Any]]) -> None:
    """Drain a node, hold a job, submit one that no pool can run and one after another."""
    queue.change_nodes("a100-6", state="drain")
    first = next(jobs)
    second = {**next(jobs), "after": [first["job_id"]], "tenant": "language"}
    held = next(jobs)
    queue.submit_many([first, second, held])
    queue.hold(held["job_id"])
    large = {**next(jobs), "gpu_types": ["H100"], "min_gpus": 16, "max_gpus": 16}
    queue.submit_many([large])
