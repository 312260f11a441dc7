"""Apathetic future share (AFS-L): GPUs one by one to the job with the largest effect on completion.

Source: Hwang, Kim, Kim, Shin and Park, NSDI 2021, AFS-L. Of two jobs, let a be the one that would
end earlier with what it has been given so far, and b the other. With p the present speed and p' the
speed with one GPU more, the next GPU goes to b if

    (p_b' - p_b) / p_b'  >  (p_a' - p_a) / p_a

and to a otherwise. The reason is that a GPU given to a comes back when a ends, while a GPU given to
b is unavailable for the whole run of a. A job with nothing (p = 0) comes before any job that has
something, the shorter one first. For each GPU a champion is compared with all other jobs, from the
shortest to the longest, and the winner becomes the champion. The last champion gets the GPU. The
policy knows speeds and lengths. "Apathetic" means that nothing is assumed about jobs to come.

Simplified:

- A step leads to the next size of the job's options in its pool, and both sides are per GPU of the
  step.
- A job whose next size does not fit, breaks a rule or is no faster gets no more.
- The paper has one kind of GPU. Here a running job stays in its pool. A waiting job goes to the
  pool where its speed times the GPUs per job so far is best, so that slow pools are used too.

max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.rules.srtf import order_by_remaining_time
from allocator.policies.steps import (
    OptionRanking,
    is_least_of_job,
    option_rates,
    rank_options,
    replan,
    serve_first,
)
from formulations.model.linear import Ints


def afs(task: Task) -> Proposal:
    """Give each job its smallest size, shortest first; then grow the champion size by size."""
    round_ = task.round
    smallest = np.flatnonzero(is_least_of_job(round_.instance.start, round_.instance.gpus))
    order = order_by_remaining_time(round_, smallest)
    preferred = rank_options(round_, smallest)

    def steps(free_capacity: FreeCapacity) -> None:
        others = serve_first(free_capacity, order, preferred)
        _assign_smallest(free_capacity, others, preferred)
        _grow_by_gain(free_capacity, free_capacity.movable(order))

    return replan(task, order, steps)


def _assign_smallest(
    free_capacity: FreeCapacity, jobs: list[int], preferred: OptionRanking
) -> None:
    """Give each job, in this order, its smallest size.

    It stays where it runs, or goes where speed times GPUs per job is best.
    """
    round_ = free_capacity.round
    i = round_.instance
    pool = i.pool.data
    rate = option_rates(round_).data
    home = round_.problem.jobs.pool.data
    now = free_capacity.choice.data
    capacity = i.capacity.tolist()
    jobs_in_pool = (
        1
        + np.bincount(
            i.pool[free_capacity.choice[free_capacity.choice >= 0]], minlength=len(capacity)
        )
    ).tolist()

    def negative_appeal(o: int) -> float:
        return float(-rate[o] * capacity[pool[o]] / jobs_in_pool[pool[o]])

    for j in jobs:
        if now[j] < 0 and free_capacity.is_full:
            continue
        options = preferred[j]
        if home[j] < 0:
            options = sorted(options, key=negative_appeal)
        before = now[j]
        if free_capacity.assign_first(j, options) and before < 0:
            jobs_in_pool[pool[now[j]]] += 1


def _grow_by_gain(free_capacity: FreeCapacity, jobs: Ints) -> None:
    """Grow the jobs (k,) that hold something, one step at a time, by the comparison of the module.

    Arrays over these jobs:

    - left (k,): seconds to the end with what they have, inf for those that get no more.
    - a, b (k,): relative gain per GPU of the next size, as the shorter and as the longer of a pair.
    - need (k,): GPUs of the next step.

    `champions` holds the champions of the last scan. What the last one is given changes nothing for
    those before it, so the next scan continues from there.
    """
    round_ = free_capacity.round
    i = round_.instance
    n = len(i.job)
    rate = option_rates(round_).data
    gpus = i.gpus.data
    job = i.job.data
    pool = i.pool.data
    work = round_.problem.jobs.remaining_work.data
    now = free_capacity.choice.data
    name = jobs.tolist()
    at = i.pool[free_capacity.choice[jobs]]
    left = np.full(len(jobs), np.inf)
    a = np.zeros(len(jobs))
    b = np.zeros(len(jobs))
    need = np.zeros(len(jobs))

    def find_next_size(x: int) -> None:
        o = now[name[x]]
        nxt = o + 1
        gain = (
            rate[nxt] - rate[o] if nxt < n and job[nxt] == job[o] and pool[nxt] == pool[o] else 0.0
        )
        more = gpus[nxt] - gpus[o] if gain > 0 else 0
        if not 0 < more <= free_capacity.free[pool[o]]:
            left[x] = np.inf
        else:
            left[x], need[x] = work[name[x]] / rate[o], more
            a[x], b[x] = gain / rate[o] / more, gain / rate[nxt] / more

    for x in range(len(name)):
        find_next_size(x)
    widest = need.max(initial=0)
    champions: list[int] = []
    while True:
        while True:
            length = (
                np.where((left > left[champions[-1]]) & (b > a[champions[-1]]), left, np.inf)
                if champions
                else left
            )
            x = int(length.argmin()) if len(length) else -1
            if x < 0 or length[x] == np.inf:
                break
            champions.append(x)
        if not champions:
            return
        x = champions.pop()
        p = int(at[x])
        if not free_capacity.assign(name[x], now[name[x]] + 1):
            left[x] = np.inf
            continue
        find_next_size(x)
        widest = max(widest, need[x])
        if free_capacity.free[p] < widest:
            left[(at == p) & (need > free_capacity.free[p])] = np.inf
        cut = next(
            (c for c, y in enumerate(champions) if left[y] >= left[x] or left[y] == np.inf),
            len(champions),
        )
        del champions[cut:]
