"""All ways to run one job to its end: pool, size and batch, with time and cost.

    hours = (pause + remaining_work / speed) / 3600
    cost  = GPUs x (price + memory x price of memory) x hours

memory is what the way needs of each GPU, GB: memory_gb of its row of rates.csv; of a curve that
knows batches, memory_gb + memory_per_sample_gb x samples on the GPU at once; else memory_gb of the
job.
The pause is startup_s, plus restart_s of a running job that changes. At least min_billing_s are
paid, except for the GPUs that the job holds. Reserved pools cost their listed price too.

At a measured size each row of rates.csv is one way to run (its batch, accumulation and variant). At
other sizes the ways are the batches of a curve that knows batches, or the interpolation between
measured sizes. A row or batch that needs more memory than a GPU of the pool has is left out. The
GPUs that other jobs hold, and revocations of spot GPUs, are not considered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.findings import find_nearest
from allocator.domain.problem import Bools, Floats, Ints, Market, Problem, State
from allocator.errors import Infeasible, Relaxation, UsageError
from allocator.options.option_table import list_sizes
from allocator.performance import batched
from allocator.performance.knee import front, knee
from allocator.performance.lost_time import restart_s
from allocator.performance.profiling import plan
from allocator.performance.sizes import estimate_sizes
from allocator.performance.speed import MEASURED, believed_speeds
from allocator.performance.table import RateTable
from allocator.valuation.values import known_memory_gb, or_of_job
from formulations.objectives import context

SHOWN_BATCHES = 9  # batches of a curve that are shown at each size
TRY_S = 60.0  # seconds to try one configuration: a restart and some steps


@dataclass(frozen=True)
class RunConfigurations:
    """n ways to run the job, by pool, size and batch; arrays (n,).

    Attributes
    ----------
    gpu_type : (n,)
        Index of the GPU type.
    batch, accumulation : (n,)
        Samples per step and passes per step, 0 = unknown.
    rate : (n,)
        Useful work per second.
    error : (n,)
        Relative standard deviation of `rate`.
    memory_gb : (n,)
        Memory that it needs of each GPU, GB, 0 = unknown.
    hours, cost : (n,)
        Hours and US dollars to the end of the job.
    front : (n,)
        True where no other way is both cheaper and faster.
    """

    job: str
    pool: tuple[str, ...]
    gpu_type: Ints
    gpus: Ints
    batch: Ints
    accumulation: Ints
    variant: tuple[str, ...]
    rate: Floats
    error: Floats
    measured: Bools
    memory_gb: Floats
    hours: Floats
    cost: Floats
    front: Bools

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def knee(self) -> int:
        """The way beyond which more money saves little time."""
        return knee(self.cost, self.hours)

    def fastest(self, cost: float = np.inf) -> int:
        """Return the fastest way within this many US dollars, the cheaper of two equally fast ones.

        Raises
        ------
        Infeasible
            No way is cheap enough.
        """
        message = f'every way to run job "{self.job}" costs more than {cost:g} $'
        return self._best(self.hours, self.cost, cost, message, "--cost")

    def cheapest(self, hours: float = np.inf) -> int:
        """Return the cheapest way within this many hours, the faster of two equally cheap ones.

        Raises
        ------
        Infeasible
            No way is fast enough.
        """
        message = f'every way to run job "{self.job}" takes longer than {hours:g} hours'
        return self._best(self.cost, self.hours, hours, message, "--deadline")

    def _best(self, aim: Floats, limited: Floats, most: float, message: str, option: str) -> int:
        """Return the way of least `aim` among those within a limit, of equal ones the smaller."""
        within = np.flatnonzero(limited <= most)
        if not len(within):
            raise Infeasible([message], [Relaxation(option, "", most, float(limited.min()))])
        return int(within[np.lexsort((limited[within], aim[within]))[0]])

    def next_to_try(self) -> list[tuple[int, str, float]]:
        """List what to measure next as (index, reason, gain).

        The corners of the front come first. Then come ways whose measurement could change the
        choice of least time x cost by more than the TRY_S seconds that it takes.
        """
        cost = np.maximum(self.cost, 1e-9)
        try_h = TRY_S / context.HOUR
        aim = 0.5 * np.log(self.hours * cost)
        best = int(np.argmin(aim))
        price = 0.5 * (try_h / self.hours[best] + try_h * cost / self.hours / cost[best])
        return plan(self.gpu_type, self.gpus, self.batch, aim, self.error, self.measured, price)


def job_number(problem: Problem, job_id: str) -> int:
    """Return the index of a job. Raises UsageError for an unknown one."""
    if job_id not in problem.jobs.job_id:
        near = find_nearest(job_id, problem.jobs.job_id)
        raise UsageError(
            f'no job "{job_id}" in the snapshot' + (f', did you mean "{near}"?' if near else "")
        )
    return problem.jobs.job_id.index(job_id)


def configure(problem: Problem, job_id: str) -> RunConfigurations:
    """Return all ways to run a job.

    Raises
    ------
    UsageError
        The job is unknown, or it can run in no pool.
    """
    problem, j = estimate_sizes(problem), job_number(problem, job_id)
    pool, gpus, batch, row = _tried(problem, j)
    pools = problem.pools
    rates = problem.rates
    model = np.full(len(pool), problem.jobs.model[j])
    link = pools.link_gb_s[pool]
    own = row >= 0
    speed = believed_speeds(
        problem, model, pools.gpu_type[pool], gpus, batch, pools.memory_gb[pool], link
    )
    rate, size, passes = speed.rate, speed.batch, speed.accumulation
    rate[own] = rates.over(row[own], link[own])
    for column, of_row in ((size, rates.batch_size), (passes, rates.accumulation)):
        column[own] = np.maximum(of_row[row[own]], 0)
    good = rate > 0
    if not good.any():
        raise UsageError(
            f'job "{job_id}" can run in no pool: no size, GPU type and memory that fit have a known'
            " speed"
        )
    jobs = problem.jobs
    running = np.full(len(pool), jobs.state[j] == State.RUNNING)
    keeps = running & (jobs.pool[j] == pool) & (jobs.gpus[j] == gpus)
    pause = context.pause_s(
        keeps, running, restart_s(problem, np.full(len(pool), j), pool, gpus), pools.startup_s[pool]
    )
    seconds = pause + jobs.remaining_work[j] / np.where(good, rate, 1.0)
    known_gb = known_memory_gb(problem, model, pools.gpu_type[pool], gpus, size, passes, row)
    memory_gb = or_of_job(problem, np.full(len(pool), j), known_gb)
    dollars_per_gpu_hour = (
        pools.price_per_gpu_hour[pool] + pools.price_per_gb_hour[pool] * memory_gb
    )
    cost = context.dollars(keeps, gpus * dollars_per_gpu_hour, seconds, pools.min_billing_s[pool])
    # the best batch of a curve may also be one of the listed batches
    once = np.unique(np.stack([pool, gpus, size, passes, row]), axis=1, return_index=True)[1]
    keep = np.intersect1d(np.flatnonzero(good), once)
    keep = keep[np.lexsort((size[keep], gpus[keep], pool[keep]))]
    names = [rates.variant[r] if r >= 0 else "" for r in row.tolist()]
    return RunConfigurations(
        job=job_id,
        pool=tuple(pools.pool[p] for p in pool[keep]),
        gpu_type=pools.gpu_type[pool[keep]],
        gpus=gpus[keep],
        batch=size[keep],
        accumulation=passes[keep],
        variant=tuple(names[i] for i in keep),
        rate=rate[keep],
        error=np.where(own, MEASURED, speed.error)[keep],
        measured=own[keep],
        memory_gb=memory_gb[keep],
        hours=seconds[keep] / context.HOUR,
        cost=cost[keep],
        front=front(cost[keep], seconds[keep]),
    )


def _tried(problem: Problem, j: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (pool, gpus, batch, row) of every way.

    row is a row of rates.csv or -1; batch is that of a curve, 0 = not fixed.
    """
    jobs = problem.jobs
    pools = problem.pools
    rates = problem.rates
    table = RateTable.of(problem)
    model = jobs.model[j]
    types = problem.allowed_types[j]
    ways: list[tuple[int, int, int, int]] = []
    for p in np.flatnonzero(types[pools.gpu_type]).tolist():
        most = min(int(jobs.max_gpus[j]), int(pools.gpus[p]), int(table.largest[model]))
        if pools.market[p] == Market.SPOT:
            most = int(min(most, jobs.max_spot_gpus[j]))
        here = (rates.model == model) & (rates.gpu_type == pools.gpu_type[p])
        fits = here & ~(rates.memory_gb > pools.memory_gb[p])
        for k in list_sizes(problem, np.array([j]), p, np.array([most]))[1].tolist():
            rows = np.flatnonzero(fits & (rates.gpus == k)).tolist()
            if rows:
                ways += [(p, k, 0, r) for r in rows]
            elif not (here & (rates.gpus == k)).any():
                ways += [(p, k, b, -1) for b in _batches(problem, table, int(model), p, k)]
    matrix = np.array(ways, np.int64).reshape(-1, 4)
    return matrix[:, 0], matrix[:, 1], matrix[:, 2], matrix[:, 3]


def _batches(problem: Problem, table: RateTable, model: int, pool: int, gpus: int) -> list[int]:
    """List the batches to show where no row of rates.csv applies.

    They are the batches of a curve, evenly spaced in their logarithm; 0 stands for the best one.
    The result is [0] where no curve knows batches.
    """
    models = np.array([model])
    gpu_type = problem.pools.gpu_type[[pool]]
    curve = int(table.curve(models, gpu_type)[0])
    if (
        not table.by_curve(models, gpu_type, np.array([gpus]))[0]
        or problem.curves.kind[curve] not in batched.KINDS
    ):
        return [0]
    low, high = map(
        float, batched.range_of(problem.curves.kind[curve], problem.curves.parameters[curve])
    )
    if high <= low:
        return [0]
    tried = np.unique(np.round(np.geomspace(max(low, gpus), max(high, gpus), SHOWN_BATCHES)))
    return [0, *tried.astype(np.int64).tolist()]
