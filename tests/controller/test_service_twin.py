"""The controller, its queue and ports decide like the simulator: the same rounds, the same
plans.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)

from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.sharing import sharing
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.domain.problem import Problem, join_names, other_jobs
from allocator.domain.snapshot import Table
from allocator.io.problem_tables import snapshot_folder
from allocator.loop.executor import Order
from allocator.loop.rounds import RoundOutcome, latest_tick
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.lost_time import restart_s
from allocator.performance.table import RateTable
from allocator.queue import snapshot as snapshots
from allocator.queue.database.connection import create_queue
from allocator.queue.jobs.submit import SET
from allocator.queue.queue import Queue
from allocator.simulator import SimulationOptions, simulate

SOAK = pytest.mark.soak
Plan = tuple[float, dict[str, tuple[str, int, str]] | None]


def plan_of_turn(turn: RoundOutcome) -> Plan:
    """Time, pool, GPUs and primary jobs by job of a round."""
    problem = turn.problem
    if turn.decision is None:
        return problem.now_s, None
    a = turn.decision.allocation
    names = problem.jobs.job_id
    others = other_jobs(a.secondary)
    return problem.now_s, {
        names[j]: (
            problem.pools.pool[int(a.pool[j])],
            int(a.gpus[j]),
            join_names(names[k] for k in others[j]) if a.primary[j] >= 0 else "",
        )
        for j in np.flatnonzero(a.pool >= 0).tolist()
    }


def truth(problem: Problem) -> MachineBehaviour:
    """Machines that behave as in the simulator with default options; one pool, one GPU type."""
    table = RateTable.of(problem)
    job = {name: j for j, name in enumerate(problem.jobs.job_id)}
    memory_gb = float(problem.pools.memory_gb[0])

    @cache
    def alone(model: int, gpus: int) -> float:
        at = (np.array([value]) for value in (model, 0, gpus))
        return float(table.rate(*at, memory_gb)[0][0])

    @cache
    def together(*pair: int) -> tuple[float, float]:
        *first, second = (np.array([value]) for value in pair)
        found = colocated_speeds(problem, *first, gpus_secondary=second)
        return float(found.rate_primary[0]), float(found.rate_secondary[0])

    def rate(order: Order) -> float:
        return alone(int(problem.jobs.model[job[order.job_id]]), order.gpus)

    def pause_s(order: Order, held: int) -> float:
        change = (np.array([value]) for value in (job[order.job_id], 0, order.gpus, held))
        again = float(restart_s(problem, *change)[0]) if held else 0.0
        return float(problem.pools.startup_s[0]) + again

    def colocated_rate(order: Order, other: Order) -> float:
        # the job with fewer GPUs is a primary job; of two of one size it does not matter
        first, second = sorted((order, other), key=lambda one: (one.gpus, job[one.job_id]))
        jobs, gpus = (job[first.job_id], job[second.job_id]), (first.gpus, second.gpus)
        return together(*jobs, 0, *gpus)[order is second]

    return MachineBehaviour(rate=rate, colocated_rate=colocated_rate, pause_s=pause_s)


def submit_all(queue: Queue, problem: Problem) -> None:
    """The cluster and its settings, and all jobs in advance for their later times."""
    whole = snapshot_folder(problem)
    jobs = whole.tables["jobs.csv"]
    tables = {name: table for name, table in whole.tables.items() if name != "received.csv"}
    tables["jobs.csv"] = Table("jobs.csv", {name: [] for name in jobs.columns}, range(0))
    with queue.store.write() as connection:
        snapshots.load_at(connection, replace(whole, tables=tables))
    cells = {"total_work": jobs.columns["remaining_work"], **jobs.columns}
    names = [name for name in SET if name in cells]
    queue.submit_many(
        [{name: cells[name][i] for name in names if cells[name][i]} for i in range(len(jobs))]
    )


def controlled(problem: Problem, folder: Path, policy: str, react_s: float) -> list[Plan]:
    """The rounds of a controller, which steps whenever a round may be due, until all jobs are
    done."""
    clock, start = SimulatedClock(problem.now_s), problem.now_s
    interval, submitted = problem.interval_s, problem.jobs.submitted_s
    gpus = dict(zip(problem.pools.pool, problem.pools.gpus.tolist(), strict=True))
    machines = SimulatedMachines(gpus, clock, truth(problem))
    options: dict[str, Any] = {"every_s": interval, "policy": policy, "react_s": react_s}
    options |= {"warm": False, "learn": False, "stall_s": 1e12, "time_limit_s": 1e6}
    plans: list[Plan] = []
    store, _ = create_queue(folder / "queue.db")
    with closing(Queue(store, clock=clock.now)) as queue:
        submit_all(queue, problem)
        controller = Controller(
            store, SimulatedExecutor(machines), clock, ControllerOptions(**options)
        )
        while queue.counts()["done"] < len(submitted):
            if (turn := controller.step()) is not None:
                plans.append(plan_of_turn(turn))
            now = clock.now_s
            times = [start + (latest_tick(now, start, interval) + 1) * interval]
            if math.isfinite(react_s):
                coming = submitted[submitted > now].min(initial=math.inf)
                times += [machines.next_end(), plans[-1][0] + react_s, coming]
            clock.now_s = float(min(t for t in times if t > now))
    assert machines.breaches == []
    return plans


@pytest.mark.parametrize(
    ("policy", "react_s", "seed", "jobs", "primaries"),
    [
        pytest.param("ffs", 30.0, 2, 8, 3, marks=pytest.mark.nightly),
        pytest.param("ffs", 30.0, 2, 16, 3, marks=pytest.mark.nightly),
        pytest.param("bsbf", math.inf, 1, 16, 3, marks=SOAK),
        pytest.param("mip", math.inf, 3, 16, 3, marks=SOAK),
        pytest.param("bsbf", 30.0, 1, 14, 1, marks=pytest.mark.nightly),
        pytest.param("mip", math.inf, 1, 14, 1, marks=SOAK),
    ],
)
def test_jobs_on_the_gpus_of_others(
    policy: str, react_s: float, seed: int, jobs: int, primaries: int, tmp_path: Path
) -> None:
    """Pairs, and groups with several primary jobs, are made, parted and left by jobs that are done,
    between rounds too: the same GPUs and the same primary jobs, at the same times to the
    microsecond (ends of jobs are sums of different numbers in the two runs).
    """
    workload = sharing(Asked("sharing", seed, 4.0, jobs, 16), slowdown=(1.05, 1.6)).workload()
    workload = replace(workload, problem=replace(workload.problem, max_primaries=primaries))
    expected: list[Plan] = []
    simulate(
        workload,
        policy=policy,
        options=SimulationOptions(react_s=react_s, prove_every=0),
        on_round=lambda _, turn: expected.append(plan_of_turn(turn)),
    )
    found = controlled(workload.problem, tmp_path, policy, react_s)
    assert [plan for _, plan in found] == [plan for _, plan in expected]
    assert [at_s for at_s, _ in found] == pytest.approx([at_s for at_s, _ in expected], abs=1e-6)
    plans = [plan for _, plan in found if plan]
    shared = [entry for plan in plans for entry in plan.values() if entry[2]]
    several = [
        primary
        for plan in plans
        for _, gpus, primary in plan.values()
        if "|" in primary or (primary and plan[primary][1] < gpus)
    ]
    assert len(several) > 3 if primaries > 1 else len(shared) > 10
