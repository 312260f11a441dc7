"""The menu: every option of every job as parallel arrays.

An option is a pool and a size, with its speed, pause, worth and cost. "Keep what I hold" is always among the
options of a running job as long as a rate is known; "nothing" is always possible and has no entry.
Source: contract sections 1 (sizes, rates) and 2 (what a decision may do).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.performance.table import RateTable
from formulations import objectives


@dataclass(frozen=True)
class Menu:
    """n options, job by job, then by pool and size; those of job j are start[j] .. start[j+1].

    job, pool, gpus (n,); row (n,): row of rates.csv, -1 = between rows or from a curve; rate (n,) work per second;
    pause_s (n,); value (n,) in the objective; cost (n,) dollars per hour; keep (n,): equals what the job holds.
    """

    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    row: Ints
    rate: Floats
    pause_s: Floats
    value: Floats
    cost: Floats
    keep: Bools

    def __len__(self) -> int:
        return len(self.job)


def blocked(problem: Problem) -> Bools:
    """(J,) True for jobs that may not get anything this round: held, or waiting for a job that is still here."""
    jobs = problem.jobs
    waiting = (jobs.state == State.QUEUED) | (jobs.state == State.PAUSED)
    out: Bools = jobs.state == State.HELD
    if any(jobs.after):
        present = set(jobs.job_id)
        out |= waiting & np.array([not present.isdisjoint(names) for names in jobs.after])
    return out


def locked(problem: Problem) -> Bools:
    """(J,) True for running jobs whose only option is what they hold: non-preemptible, or no resizes left."""
    jobs = problem.jobs
    fixed: Bools = (jobs.state == State.RUNNING) & (~jobs.preemptible | (jobs.resizes_left == 0))
    return fixed


def allowed_types(problem: Problem) -> Bools:
    """(J, T) True where the job may use the GPU type."""
    sets = np.vstack([*problem.type_sets, np.ones(len(problem.gpu_types), dtype=bool)])   # code -1 = the last = any
    allowed: Bools = sets[problem.jobs.gpu_types]
    return allowed


def sizes_by_rule(gpus_per_node: int, largest: int) -> Ints:
    """Powers of two up to gpus_per_node, then whole multiples of it, none above `largest`, ascending."""
    inside = 2 ** np.arange(int(gpus_per_node).bit_length(), dtype=np.int64)
    sizes = np.union1d(inside[inside <= gpus_per_node], np.arange(1, largest // gpus_per_node + 1) * gpus_per_node)
    return sizes[sizes <= largest]


def menu(problem: Problem, table: RateTable) -> Menu:
    """All options of all jobs, worth and cost included.

    Raises nothing: a job without options (no known rate, no matching type, held) simply waits.
    """
    jobs, pools = problem.jobs, problem.pools
    running = jobs.state == State.RUNNING
    free = ~blocked(problem) & ~locked(problem)
    types = allowed_types(problem)
    most = np.minimum(jobs.max_gpus, table.largest[jobs.model]) if len(jobs) else jobs.max_gpus
    found: list[tuple[Ints, Ints, Ints]] = []
    for p in range(len(pools)):
        able = np.flatnonzero(free & types[:, pools.gpu_type[p]])
        owner, gpus = _sizes(problem, able, p, np.minimum(most[able], pools.gpus[p]))
        other = ~(running[owner] & (jobs.pool[owner] == p) & (jobs.gpus[owner] == gpus))
        found.append((owner[other], np.full(int(other.sum()), p), gpus[other]))
    held = np.flatnonzero(running & ~blocked(problem))
    held = held[jobs.gpus[held] <= pools.gpus[jobs.pool[held]]]
    found.append((held, jobs.pool[held], jobs.gpus[held]))
    job, pool, gpus = (np.concatenate(parts) for parts in zip(*found, strict=True))

    rate, row = table.rate(jobs.model[job], pools.gpu_type[pool], gpus)
    offered = rate > 0
    order = np.flatnonzero(offered)
    order = order[np.lexsort((gpus[order], pool[order], job[order]))]
    return _priced(problem, table, job[order], pool[order], gpus[order], rate[order], row[order])


def _sizes(problem: Problem, able: Ints, pool: int, most: Ints) -> tuple[Ints, Ints]:
    """(owner, gpus) of every size that the jobs `able` may have in the pool, by list or by rule, up to `most`."""
    jobs = problem.jobs
    code = jobs.sizes[able]
    largest = int(most.max(initial=0))
    lists = [*problem.size_lists, sizes_by_rule(int(problem.pools.gpus_per_node[pool]), largest)]
    flat = np.concatenate(lists)
    begin = np.concatenate([[0], np.cumsum([len(s) for s in lists])])
    code = np.where(code < 0, len(lists) - 1, code)
    owner, k = ragged(begin[code], begin[code + 1])
    gpus = flat[k]
    fits = (gpus >= jobs.min_gpus[able][owner]) & (gpus <= most[owner])
    return able[owner[fits]], gpus[fits]


def ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All integers of the ranges begin[i] .. end[i], with the i they belong to: (i, integer), each (total,)."""
    length = end - begin
    owner = np.repeat(np.arange(len(begin)), length)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return owner, begin[owner] + offset


def _priced(problem: Problem, table: RateTable, job: Ints, pool: Ints, gpus: Ints, rate: Floats, row: Ints) -> Menu:
    jobs, pools = problem.jobs, problem.pools
    running = jobs.state == State.RUNNING
    keep = running[job] & (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
    pause = objectives.pause_s(keep, running[job], jobs.restart_s[job], pools.startup_s[pool])
    done = objectives.work_done(rate, pause, problem.interval_s)
    start = np.searchsorted(job, np.arange(len(jobs) + 1))
    if problem.objective == "throughput":
        base = _requested_work(problem, table, start, job, gpus, rate)[job]
        value = objectives.throughput(problem.weight[job], done, jobs.remaining_work[job], base)
    else:
        value = objectives.progress(problem.weight[job], done, jobs.remaining_work[job])
    return Menu(start, job, pool, gpus, row, rate, pause, value, gpus * pools.price_per_gpu_hour[pool], keep)


def _requested_work(problem: Problem, table: RateTable, start: Ints, job: Ints, gpus: Ints, rate: Floats) -> Floats:
    """(J,) work of one interval at requested_gpus on the slowest allowed type of the cluster that has a rate there.

    Where no type has one: the slowest option at the size nearest to requested_gpus, the smaller of two as near.
    """
    jobs = problem.jobs
    slowest = np.full(len(jobs), np.inf)
    types = allowed_types(problem)
    for t in np.unique(problem.pools.gpu_type):
        r, _ = table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus)
        slowest = np.where(types[:, t] & (r > 0), np.fmin(slowest, r), slowest)
    missing = ~np.isfinite(slowest)
    if missing[job].any():
        distance = np.abs(gpus - jobs.requested_gpus[job])
        order = np.lexsort((rate, gpus, distance, job))
        first = order[start[:-1][np.diff(start) > 0]]
        first = first[missing[job[first]]]
        slowest[job[first]] = rate[first]
    return slowest * problem.interval_s
