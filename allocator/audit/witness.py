"""Check a plan against every hard rule and recompute what it is worth, from the problem and the rate table alone.

Nothing of options, policies or formulations is used, so a mistake there does not hide itself here. Numbers (contract
section 3, with seconds lost `pause_s` and work done `done = rate x max(0, interval_s - pause_s)`):

    progress    weight x min(1, done / remaining_work)
    throughput  weight x min(done, remaining_work) / base
    base        interval_s x the slowest rate at requested_gpus among the allowed types of the cluster's pools that have
                one; if none has, the slowest of the job's options at the size nearest to requested_gpus, the smaller of
                two sizes as near (the contract is silent on this case)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.audit import alone, together
from allocator.audit.guarantee import options
from allocator.audit.scene import Scene
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance.table import RateTable


@dataclass(frozen=True)
class Audit:
    """The witness's statement.

    faults: sentences naming object, value and rule; empty = the plan is legal.
    value (J,) in the objective; rate (J,) work per second; cost (J,) dollars per hour; 0 for jobs that get nothing.
    objective_value: sum of `value`.
    """

    faults: tuple[str, ...]
    value: Floats
    rate: Floats
    cost: Floats
    objective_value: float


def audit(problem: Problem, allocation: Allocation, repairs: Repairs, table: RateTable | None = None) -> Audit:
    """Check every rule of contract section 2 and recompute value, rate and cost of every job.

    table: the problem's RateTable if one is at hand; building it is most of the audit's time. Raises nothing.
    """
    scene = Scene(problem, allocation, repairs, table or RateTable.of(problem))
    shape = tuple(_shape_faults(problem, allocation, repairs))
    if shape:
        nothing = np.zeros(len(problem.jobs))
        return Audit(shape, nothing, nothing, nothing, 0.0)
    price = problem.pools.price_per_gpu_hour
    cost = np.where(scene.on, scene.gpus * price[scene.pool], 0.0) if len(price) else np.zeros(len(problem.jobs))
    rate = np.where(scene.rate > 0, scene.rate, 0.0)
    value = _value(scene, rate)
    found = (*alone.faults(scene), *together.faults(scene, cost))
    return Audit(found, value, rate, cost, float(value.sum()))


def _shape_faults(problem: Problem, a: Allocation, repairs: Repairs) -> Iterator[str]:
    jobs, tenants = len(problem.jobs), len(problem.tenants)
    for name, array, length in (("allocation.pool", a.pool, jobs), ("allocation.gpus", a.gpus, jobs),
                                ("allocation.row", a.row, jobs), ("repairs.released", repairs.released, jobs),
                                ("repairs.usable", repairs.usable, tenants)):
        if array.shape != (length,):
            yield f"{name} has shape {array.shape}, it should be ({length},)"


def _value(s: Scene, rate: Floats) -> Floats:
    problem, jobs = s.problem, s.problem.jobs
    startup = problem.pools.startup_s[s.pool] if len(problem.pools) else np.zeros(len(jobs))
    pause = np.where(s.running, jobs.restart_s + startup, startup)
    done = rate * np.maximum(0.0, problem.interval_s - np.where(s.kept, 0.0, pause))
    if problem.objective != "throughput":
        return problem.weight * np.minimum(1.0, done / jobs.remaining_work)
    j = np.flatnonzero(rate > 0)
    value = np.zeros(len(jobs))
    value[j] = problem.weight[j] * np.minimum(done[j], jobs.remaining_work[j]) / (_base_rate(s, j) * problem.interval_s)
    return value


def _base_rate(s: Scene, chosen: Ints) -> Floats:
    """Rate of each chosen job as requested, on the slowest type; see the top of this file. Shape (len(chosen),)."""
    jobs = s.problem.jobs
    slowest = np.full(len(jobs), np.inf)
    for t in np.unique(s.problem.pools.gpu_type):
        j = chosen[s.types[chosen, t]]
        rate, _ = s.table.rate(jobs.model[j], np.full(len(j), t), jobs.requested_gpus[j])
        slowest[j] = np.minimum(slowest[j], np.where(rate > 0, rate, np.inf))
    without = chosen[np.isinf(slowest[chosen])]
    if len(without):
        job, _, gpus, rate = options(s, without)
        order = np.lexsort((rate, gpus, np.abs(gpus - jobs.requested_gpus[job]), job))
        first = order[np.append(True, np.diff(job[order]) > 0)[:len(order)]]
        slowest[job[first]] = rate[first]
    return slowest[chosen]
