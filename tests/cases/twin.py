"""Run a workload twice: by the simulator, and by the controller over a queue."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
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
from allocator.controller.options import ControllerOptions as Options
from allocator.domain.schema.colocation import join_names, other_jobs
from allocator.domain.snapshot import Table
from allocator.domain.workload import Workload
from allocator.io.problem_tables import snapshot_folder
from allocator.loop.executor import Order
from allocator.loop.rounds import RoundOutcome
from allocator.loop.ticks import latest_tick
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.pauses import restart_s
from allocator.performance.table import RateTable
from allocator.queue import snapshot as snapshots
from allocator.queue.database.connection import create_queue
from allocator.queue.jobs.submit import SET
from allocator.queue.queue import Queue
from allocator.simulator import simulate
from allocator.simulator.options import SimulationOptions as Simulated

SAME_S = 1e-6
Plan = tuple[float, dict[str, tuple[str, int, str]] | None]


def plan_of_turn(turn: RoundOutcome) -> Plan:
    """Return (time, pool, GPUs and primary jobs by job) of a round."""
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


def simulated(workload: Workload, policy: str, **options: Any) -> list[Plan]:
    """Return what the simulator decides with these values of its options."""
    plans: list[Plan] = []
    simulate(
        workload,
        policy=policy,
        options=Simulated(**options),
        on_round=lambda _state, turn: plans.append(plan_of_turn(turn)),
    )
    return plans


def same_plans(a: Plan, b: Plan) -> bool:
    """Return whether two lists of rounds give the same GPUs to the same jobs at the same time.

    Times are compared to the microsecond. The ends of jobs, which cause early rounds, are sums of
    different numbers in the two runs.
    """
    return a[1] == b[1] and abs(a[0] - b[0]) <= SAME_S


@dataclass
class Twin:
    """The same cluster as a queue, machines and a controller."""

    workload: Workload
    queue: Queue
    machines: SimulatedMachines
    controller: Controller

    @classmethod
    def of(cls, workload: Workload, folder: Path, policy: str, **options: Any) -> Twin:
        """Build the twin with all jobs submitted in advance for their later times."""
        problem = workload.problem
        clock = SimulatedClock(problem.now_s)
        whole = snapshot_folder(problem)
        jobs = whole.tables["jobs.csv"]
        tables = {name: table for name, table in whole.tables.items() if name != "received.csv"}
        tables["jobs.csv"] = Table("jobs.csv", {name: [] for name in jobs.columns}, range(0))
        store, _ = create_queue(folder / "queue.db")
        with store.write() as connection:
            snapshots.load_at(connection, dataclasses.replace(whole, tables=tables))
        queue = Queue(store, clock=clock.now)
        cells = {
            **jobs.columns,
            "total_work": jobs.columns.get("total_work", jobs.columns["remaining_work"]),
        }
        names = [name for name in SET if name in cells]
        queue.submit_many(
            [{name: cells[name][i] for name in names if cells[name][i]} for i in range(len(jobs))]
        )
        machines = SimulatedMachines(
            dict(zip(problem.pools.pool, problem.pools.gpus.tolist(), strict=True)),
            clock,
            truth(workload),
        )
        controller = Controller(
            store,
            SimulatedExecutor(machines),
            clock,
            Options(
                **{
                    "every_s": problem.interval_s,
                    "policy": policy,
                    "warm": False,
                    "learn": False,
                    "stall_s": 1e12,
                    "time_limit_s": 1e6,
                    **options,
                }
            ),
        )
        return cls(workload, queue, machines, controller)

    def run(
        self,
        rounds: int,
        most: int = 100_000,
        on_step: Callable[[RoundOutcome, float], None] | None = None,
    ) -> list[Plan]:
        """Step whenever a round may be due.

        It ends when all jobs are over, or after `rounds` rounds. `on_step` is called after every
        round with the wall seconds of the step.
        """
        plans: list[Plan] = []
        start, clock = self.machines.clock.now_s, self.machines.clock
        for _ in range(most):
            begin = time.perf_counter()
            turn = self.controller.step()
            if turn is not None:
                plans.append(plan_of_turn(turn))
                if on_step is not None:
                    on_step(turn, time.perf_counter() - begin)
                if len(plans) > rounds:
                    break
            clock.now_s = self._next(start, plans[-1][0] if plans else start)
            counts = self.queue.counts()
            if not sum(counts[state] for state in ("queued", "running", "paused", "held")):
                break
        return plans

    def _next(self, start: float, last: float) -> float:
        """Return the next time at which a round may be due.

        It is the next tick or, with react_s, an arrival, an end, or react_s after the last round.
        """
        now, interval = self.machines.clock.now_s, self.workload.problem.interval_s
        times = [start + (latest_tick(now, start, interval) + 1) * interval]
        if math.isfinite(react_s := self.controller.options.react_s):
            submitted = self.workload.problem.jobs.submitted_s
            times += [
                self.machines.next_end(),
                last + react_s,
                submitted[submitted > now].min(initial=math.inf),
            ]
        return float(min(t for t in times if t > now))


def truth(workload: Workload) -> MachineBehaviour:
    """Return machines that behave as in the simulator with default options."""
    problem = workload.problem
    table = RateTable.of(problem)
    job = {name: j for j, name in enumerate(problem.jobs.job_id)}
    kind = {name: t for t, name in enumerate(problem.gpu_types)}
    pool = {name: p for p, name in enumerate(problem.pools.pool)}

    def arrays(*values: float) -> Iterator[Any]:
        return (np.array([value]) for value in values)

    @cache
    def alone(model: int, gpu_type: int, gpus: int, memory_gb: float) -> float:
        return float(table.rate(*arrays(model, gpu_type, gpus), memory_gb)[0][0])

    def rate(order: Order) -> float:
        memory_gb = float(problem.pools.memory_gb[pool[order.pool]])
        model = int(problem.jobs.model[job[order.job_id]])
        return alone(model, kind[order.gpu_type], order.gpus, memory_gb)

    def pause_s(order: Order, held: int) -> float:
        at = pool[order.pool]
        change = arrays(job[order.job_id], at, order.gpus, held)
        again = float(restart_s(problem, *change)[0]) if held else 0.0
        return float(problem.pools.startup_s[at]) + again

    @cache
    def together(*pair: int) -> tuple[float, float]:
        *first, second = arrays(*pair)
        found = colocated_speeds(problem, *first, gpus_secondary=second)
        return float(found.rate_primary[0]), float(found.rate_secondary[0])

    def colocated_rate(order: Order, other: Order) -> float:
        # the job with fewer GPUs is a primary job; of two of one size it does not matter
        first, second = sorted((order, other), key=lambda one: (one.gpus, job[one.job_id]))
        jobs, gpus = (job[first.job_id], job[second.job_id]), (first.gpus, second.gpus)
        return together(*jobs, pool[order.pool], *gpus)[order is second]

    return MachineBehaviour(rate=rate, colocated_rate=colocated_rate, pause_s=pause_s)
