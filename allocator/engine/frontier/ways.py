"""All ways to run jobs from now to their end: hours and dollars of each pool and size.

    hours   = (pause + R / (r phi A)) / 3600
    dollars = GPUs x price x max(pause + R / (r phi), billed) / 3600

R is the remaining work, r the speed, phi the useful share that revocations and checkpoints leave
(performance/lost_time.py), and A the availability of a spot pool. GPUs that are not available are
not billed. `billed` is min_billing_s, or 0 if the job keeps what it holds. The GPUs that other jobs
hold are not considered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain.findings import find_nearest
from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.errors import UsageError
from allocator.options.option_table import find_blocked_jobs, option_table
from allocator.performance.lost_time import LEAST, useful_share
from allocator.performance.sizes import estimate_sizes
from allocator.valuation.prices import added_prices, gpu_prices
from formulations.bounds.hull import front, hull
from formulations.objectives import interval


@dataclass(frozen=True)
class JobWays:
    """n ways of J jobs, job by job, then by pool and size.

    Attributes
    ----------
    name, number : (J,)
        Names of the jobs and their indices in the snapshot.
    job : (n,)
        Index into the names.
    pool, gpus : (n,)
        Index of the pool, and number of GPUs.
    useful_share : (n,)
        The share phi.
    hours, listed, added : (n,)
        Hours and US dollars to the end of the job; `added` leaves out reserved pools.
    dollars : (n,)
        Either `listed` or `added`, whichever counts.
    weight : (J,)
        Weights of the jobs.
    front, hull : (n,)
        True where no way is cheaper and faster, and at corners of the lower convex hull of the job.
    option : (n,)
        Index in the option table.
    """

    name: tuple[str, ...]
    number: Ints
    weight: Floats
    job: Ints
    pool: Ints
    gpus: Ints
    useful_share: Floats
    hours: Floats
    listed: Floats
    added: Floats
    dollars: Floats
    front: Bools
    hull: Bools
    option: Ints

    def __len__(self) -> int:
        return len(self.job)


def job_ways(problem: Problem, names: Sequence[str], dollars: str = "listed") -> JobWays:
    """List all ways of the named jobs.

    `dollars` is "listed" or "added". Raises UsageError with every fault of the names.
    """
    problem, number = estimate_sizes(problem), _numbers(problem, names)
    m = option_table(problem)
    pools = problem.pools
    jobs = problem.jobs
    place = np.full(len(jobs), -1)
    place[number] = np.arange(len(number))
    option = np.flatnonzero(place[m.job] >= 0)
    phi = useful_share(problem, m.job[option], m.pool[option], m.gpus[option], m.rate[option])
    order = np.argsort(place[m.job[option]], kind="stable")
    order = order[phi[order] > LEAST]
    option = option[order]
    phi = phi[order]
    job = place[m.job[option]]
    pool = m.pool[option]
    gpus = m.gpus[option]
    none = [
        f'job "{name}" can run in no pool: no size and GPU type that fit have a known speed'
        for name, found in zip(names, np.bincount(job, minlength=len(number)), strict=True)
        if not found
    ]
    if none:
        raise UsageError("\n".join(none))
    work_s = jobs.remaining_work[number[job]] / (m.rate[option] * phi)
    hours = (m.pause_s[option] + work_s / pools.availability[pool]) / interval.HOUR
    listed, added = (
        interval.dollars(
            m.keep[option],
            gpus * prices(problem, m.job[option], pool, gpus),
            m.pause_s[option] + work_s,
            pools.min_billing_s[pool],
        )
        for prices in (gpu_prices, added_prices)
    )
    cost = listed if dollars == "listed" else added
    best = np.zeros(len(job), bool)
    corner = np.zeros(len(job), bool)
    best[front(job, cost, hours)] = True
    corner[hull(job, cost, hours)] = True
    return JobWays(
        tuple(names),
        number,
        problem.weight[number],
        job,
        pool,
        gpus,
        phi,
        hours,
        listed,
        added,
        cost,
        best,
        corner,
        option,
    )


def _numbers(problem: Problem, names: Sequence[str]) -> Ints:
    """Return the indices of the jobs in the snapshot."""
    place = {name: j for j, name in enumerate(problem.jobs.job_id)}
    still = find_blocked_jobs(problem)
    faults = []
    for name in dict.fromkeys(names):
        near = "" if name in place else find_nearest(name, problem.jobs.job_id)
        if name not in place:
            faults.append(
                f'no job "{name}" in the snapshot' + (f', did you mean "{near}"?' if near else "")
            )
        elif still[place[name]]:
            faults.append(
                f'job "{name}" cannot start now: it is held, or waits for a job that is not done'
            )
        if list(names).count(name) > 1:
            faults.append(f'job "{name}" is named twice')
    if faults:
        raise UsageError("\n".join(faults))
    return np.array([place[name] for name in names], np.int64)
