"""The price of GPUs for a job: what a GPU costs by the hour, with the memory that the job needs.

    price = price_per_gpu_hour + price_per_gb_hour x GB

GB is what the job needs of each GPU of a pool at a size: memory_gb of the row of rates.csv that
gives its speed; of a curve that knows batches memory_gb + memory_per_sample_gb x samples on the GPU
at once; else memory_gb of the job, and 0 where that is not given. On more nodes than the size needs
it is the same. GPUs that two jobs share have the price that the job which holds them would pay
alone.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.performance.speed import believed_speeds
from allocator.performance.table import RateTable


def gpu_prices(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the dollars for an hour of each GPU of n ways to run jobs, as pools.csv lists them.

    Parameters
    ----------
    job, pool, gpus : (n,)
        The job, the pool and the number of GPUs.

    Returns
    -------
    (n,) array of float
        US dollars per GPU-hour.
    """
    price = problem.pools.price_per_gpu_hour[pool]
    if not problem.pools.prices_memory:
        return price
    return price + problem.pools.price_per_gb_hour[pool] * way_memory_gb(problem, job, pool, gpus)


def added_prices(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the dollars that an hour of each GPU of n ways adds to the bill, (n,).

    They are 0 in reserved pools, which are paid for in any case.
    """
    listed = gpu_prices(problem, job, pool, gpus)
    return np.where(problem.pools.market[pool] == Market.RESERVED, 0.0, listed)


def way_memory_gb(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the memory of each GPU that n ways need, GB (n,).

    It is 0 where it is not known, and where the pool has no price for it.
    """
    out = np.zeros(len(job))
    at = np.flatnonzero(problem.pools.price_per_gb_hour[pool] > 0)
    if not len(at):
        return out
    # many jobs are of one model
    pools, most = len(problem.pools), int(gpus[at].max()) + 1
    kind = (problem.jobs.model[job[at]] * pools + pool[at]) * most + gpus[at]
    _, first, back = np.unique(kind, return_index=True, return_inverse=True)
    distinct = at[first]
    j, p, k = job[distinct], pool[distinct], gpus[distinct]
    table, model = RateTable.of(problem), problem.jobs.model[j]
    gpu_type = problem.pools.gpu_type[p]
    _, row = table.rate_in_pools(problem.pools, model, p, k, np.ones(len(distinct), dtype=bool))
    curved = np.flatnonzero((row < 0) & table.by_curve(model, gpu_type, k))
    batch, passes = np.zeros(len(distinct), dtype=np.int64), np.zeros(len(distinct), dtype=np.int64)
    if len(curved):
        speed = believed_speeds(problem, model[curved], gpu_type[curved], k[curved])
        batch[curved], passes[curved] = speed.batch, speed.accumulation
    known = known_memory_gb(problem, model, gpu_type, k, batch, passes, row)
    out[at] = or_of_job(problem, job[at], known[back.reshape(-1)])
    return out


def known_memory_gb(
    problem: Problem,
    model: Ints,
    gpu_type: Ints,
    gpus: Ints,
    batch: Ints,
    passes: Ints,
    row: Ints,
) -> Floats:
    """Return the memory of each GPU by rates.csv or models.csv, GB (n,), nan where neither knows.

    Parameters
    ----------
    batch, passes : (n,)
        The global batch and the passes of a step; a curve says nothing for batch 0.
    row : (n,)
        Row of rates.csv, -1 = none.
    """
    curve = RateTable.of(problem).curve(model, gpu_type)
    local = np.ceil(batch / (gpus * np.maximum(passes, 1)) - 1e-9)
    by_row = np.append(problem.rates.memory_gb, np.nan)[row]
    fixed, per_sample = (
        np.array([q.get(name, 0.0) for q in problem.curves.parameters] + [0.0])[curve]
        for name in ("memory_gb", "memory_per_sample_gb")
    )
    by_curve = np.where((batch > 0) & (row < 0), fixed + per_sample * local, np.nan)
    return np.where(np.isnan(by_row), by_curve, by_row)


def or_of_job(problem: Problem, job: Ints, known_gb: Floats) -> Floats:
    """Return the known memory (n,), that of the job where it is not above 0, or 0."""
    return np.nan_to_num(np.where(known_gb > 0, known_gb, problem.jobs.memory_gb[job]))
