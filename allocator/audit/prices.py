"""The price of the GPUs of a plan, read again row by row of rates.csv and models.csv.

A GPU costs price_per_gpu_hour, and price_per_gb_hour for each GB of it that the job needs. It is
memory_gb of the fastest row at that size that fits the GPU (of the fastest row, if none fits), else
what the curve says of its batch, else memory_gb of the job.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Floats
from allocator.performance.speed import believed_speeds


def costs(s: AuditContext) -> Floats:
    """Return the US dollars per hour of what the plan gives each job, (J,)."""
    pools = s.problem.pools
    if not len(pools):
        return np.zeros(len(s.problem.jobs))
    cost = np.where(s.has_gpus, s.held * pools.price_per_gpu_hour[s.pool], 0.0)
    known: dict[tuple[int, int, int], float] = {}
    for j in np.flatnonzero(s.has_gpus & (pools.price_per_gb_hour[s.pool] > 0)).tolist():
        way = int(s.problem.jobs.model[j]), int(s.pool[j]), int(s.gpus[j])
        if way not in known:
            known[way] = _by_row(s, *way) or _by_curve(s, *way)
        of_job = float(np.nan_to_num(s.problem.jobs.memory_gb[j]))
        price = float(pools.price_per_gb_hour[way[1]])
        cost[j] += float(s.held[j]) * price * (known[way] or of_job)
    return cost


def _rows(s: AuditContext, model: int, pool: int, gpus: int) -> list[int]:
    """Return the rows of rates.csv at that size, on as few nodes as it needs."""
    rates = s.problem.rates
    same = (rates.model == model) & (rates.gpu_type == s.problem.pools.gpu_type[pool])
    found: list[int] = np.flatnonzero(same & (rates.gpus == gpus) & (rates.nodes == 0)).tolist()
    return found


def _by_row(s: AuditContext, model: int, pool: int, gpus: int) -> float:
    """Return the GB of the row that gives the speed, 0 where none says so."""
    rates, pools = s.problem.rates, s.problem.pools
    rows = _rows(s, model, pool, gpus)
    fitting = [r for r in rows if not rates.memory_gb[r] > pools.memory_gb[pool]] or rows
    if not fitting:
        return 0.0
    speed = rates.over(np.array(fitting), pools.link_gb_s[[pool] * len(fitting)]).tolist()
    fastest = fitting[speed.index(max(speed))]
    return float(np.nan_to_num(rates.memory_gb[fastest]))


def _by_curve(s: AuditContext, model: int, pool: int, gpus: int) -> float:
    """Return the GB of the batch of the curve, 0 where a row has the speed, or none is known."""
    problem = s.problem
    gpu_type = int(problem.pools.gpu_type[pool])
    one = np.array([model]), np.array([gpu_type]), np.array([gpus])
    if _rows(s, model, pool, gpus) or not s.table.by_curve(*one)[0]:
        return 0.0
    curves = problem.curves
    mine = (curves.model == model) & (curves.gpu_type == gpu_type)
    of_curve = curves.parameters[int(np.flatnonzero(mine)[0])]
    found = believed_speeds(problem, *one)
    batch, passes = int(found.batch[0]), max(1, int(found.accumulation[0]))
    if not batch:
        return 0.0
    samples = math.ceil(batch / (gpus * passes) - 1e-9)
    return of_curve.get("memory_gb", 0.0) + of_curve.get("memory_per_sample_gb", 0.0) * samples
