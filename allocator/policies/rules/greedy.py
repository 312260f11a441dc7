"""The published greedy baseline and its naive variant.

Source: a reconstruction of the baseline of Hu et al. 2021, in two steps:

1. FIFO: give each job its requested size. If it does not fit, halve the size down to min_gpus. If
   nothing fits, leave the job queued.
2. While GPUs are free, double the running job with the largest (s(2k) - s(k)) / k that stays within
   max_gpus. s is the speed relative to that at the requested size.

Naive: running jobs are never shrunk, and each arriving job takes as much as it may.

The baseline is stated for one kind of GPU and no rules. With several pools a job considers first
the pool it runs in, then the others from fast to slow. Doubling stays in the pool. Every step keeps
budget, quotas and tenant budgets. Jobs that may not move come first, then jobs of tenants below
their guarantee, then all others. If the number of changes is limited, the plan starts from what
runs now instead of from nothing. If a guarantee or that limit is still broken, the plan is repaired
with the least loss of value (formulations.primal.rounding.repair), and both steps continue from
there.
"""

from __future__ import annotations

import heapq

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    OptionRanking,
    option_rates,
    order_by_submission,
    rank_options,
    run_steps,
    serve,
)
from formulations.model.linear import Ints


def greedy(task: Task) -> Proposal:
    """Serve FIFO at the requested size, halved where needed, then double by marginal speed."""
    round_ = task.round
    order = order_by_submission(round_)
    preferred = _rank_halved_sizes(round_)

    def steps(free_capacity: FreeCapacity) -> None:
        serve(free_capacity, order, preferred, grows=False)
        _double_sizes(free_capacity)

    return run_steps(
        task, steps, start=round_.unchanged_choice() if round_.instance.least_kept > 0 else None
    )


def greedy_naive(task: Task) -> Proposal:
    """Keep running jobs unchanged, and give each waiting job, oldest first, the most free GPUs."""
    round_ = task.round
    order = order_by_submission(round_)
    return run_steps(
        task,
        lambda free_capacity: serve(
            free_capacity, order, _rank_largest_first(free_capacity), grows=False
        ),
        start=round_.unchanged_choice(),
    )


def _rank_halved_sizes(round_: CompiledRound) -> OptionRanking:
    """Rank options at the requested size, then halved down to min_gpus.

    Mandatory options come first.
    """
    i = round_.instance
    jobs = round_.problem.jobs
    asked = jobs.requested_gpus[i.job]
    halvings = np.maximum(_binary_digits(asked) - _binary_digits(i.gpus), 0)
    bound = i.keep & (jobs.resizes_left[i.job] == 0)
    preferred = np.flatnonzero(
        bound | ((asked >> halvings == i.gpus) & (i.gpus >= jobs.min_gpus[i.job]))
    )
    return rank_options(round_, preferred, ~bound[preferred], halvings[preferred])


def _binary_digits(k: Ints) -> Ints:
    """Return the number of binary digits of whole numbers above 0."""
    return np.asarray(np.frexp(k.astype(float))[1])


def _rank_largest_first(free_capacity: FreeCapacity) -> OptionRanking:
    """Rank what a running job holds, or a waiting job's options by GPUs, then speed."""
    i = free_capacity.round.instance
    may_keep = np.zeros(len(i.mandatory), dtype=bool)
    may_keep[i.job[i.keep]] = True
    kept = free_capacity.choice[free_capacity.choice >= 0]
    kept = kept[i.keep[kept]]
    # larger options never fit
    reach = i.capacity - np.bincount(i.pool[kept], i.gpus[kept], len(i.capacity))
    preferred = np.flatnonzero(i.keep | (~may_keep[i.job] & (i.gpus <= reach[i.pool])))
    return rank_options(free_capacity.round, preferred, -i.gpus[preferred])


def _double_sizes(free_capacity: FreeCapacity) -> None:
    """Double sizes by gain per GPU (step 2 of the module), with a heap of possible doublings.

    After a doubling a job enters the heap again with its next one.
    """
    round_ = free_capacity.round
    i = round_.instance
    job, pool, gpus, primary, start = (x.data for x in (i.job, i.pool, i.gpus, i.primary, i.start))
    rate = option_rates(round_).data
    asked = round_.problem.jobs.requested_gpus.data
    heap: list[tuple[float, int, int]] = []

    def find_option(o: int, k: int) -> int:
        """Return the option of the same job and pool with k GPUs, -1 if there is none."""
        for x in range(start[job[o]], start[job[o] + 1]):
            if gpus[x] == k and pool[x] == pool[o] and primary[x] < 0:
                return x
        return -1

    def push_doubling(j: int, o: int) -> None:
        twice = find_option(o, 2 * gpus[o])
        if twice >= 0:
            base = find_option(o, asked[j])
            gain = (rate[twice] - rate[o]) / rate[base if base >= 0 else o] / gpus[o]
            if gain > 0:
                heapq.heappush(heap, (-gain, j, twice))

    for j in np.flatnonzero((free_capacity.choice >= 0) & ~i.mandatory).tolist():
        push_doubling(j, int(free_capacity.choice[j]))
    while heap:
        _, j, o = heapq.heappop(heap)
        if free_capacity.assign(j, o):
            push_doubling(j, o)
