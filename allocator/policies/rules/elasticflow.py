"""ElasticFlow: minimum satisfactory shares with admission control, then marginal returns.

Source: Gu et al., ElasticFlow, ASPLOS 2023, algorithms 1 and 2. A deadline is accepted if it and
all those accepted before can be kept together. To test this, each job, by earliest deadline, takes
the smallest share that keeps its deadline in what those before it leave over time
(formulations/deadlines/joint_promises.py). Accepted jobs get their share of the first slot. The
remaining GPUs are given one size at a time: first to jobs that have none, then to the job that
saves most GPU time per GPU.

Differences from the original:

- The policy is a function of the snapshot. The order in which deadlines were accepted is taken to
  be: running jobs before waiting ones, each by submission.
- The original drops a job whose deadline it does not accept. Here such a job continues without a
  deadline (best effort), and may be accepted later if GPUs become free.
- Sizes are those of the options. A GPU-second at the next size loses
  1 - (rate' - rate) / (size' - size) x size_m / rate_m GPU-seconds, because it saves GPU time
  later at the size m: the largest size of the share, or the present size of a job without one.
- A job does not grow where the pause costs more than the growth brings.
- The original has one kind of GPU. Here a job stays in the pool it runs in if it can, and otherwise
  goes where it takes the smallest part.

max_changes: see steps.replan.
"""

from __future__ import annotations

import heapq

import numpy as np

from allocator.domain.problem import Ints, State
from allocator.options.promises import accept_promises, build_reservations, first_option
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.rules.edf import work_in_round
from allocator.policies.steps import (
    is_least_of_job,
    next_larger_option,
    option_rates,
    order_by_submission,
    rank_options,
    replan,
    serve_first,
)
from formulations.deadlines.joint_promises import ReservationPlan


def elasticflow(task: Task) -> Proposal:
    """Serve accepted deadlines first, by deadline, then all other jobs."""
    round_ = task.round
    i, jobs = round_.instance, round_.problem.jobs
    accepted = build_reservations(round_)
    accept_promises(accepted, round_)
    by_size = rank_options(round_, np.arange(len(i.job)), -i.gpus)
    small = rank_options(round_, np.flatnonzero(is_least_of_job(i.start, i.gpus)))
    first = np.array(accepted.jobs, dtype=np.int64)
    old = order_by_submission(round_)
    order = np.concatenate([first, old[~np.isin(old, first)]])
    running = (jobs.state == State.RUNNING)[order]
    by_claim = np.concatenate(
        [first, order[len(first) :][np.argsort(~running[len(first) :], kind="stable")]]
    )

    def steps(free_capacity: FreeCapacity) -> None:
        others = serve_first(free_capacity, order, by_size)
        unserved = set(others)
        # accepted jobs get their share of the first slot, or the most that fits below it
        for j, promise in zip(accepted.jobs, accepted.made, strict=True):
            gpus, pool = int(promise.reservation.size[0]), promise.place.pool
            if gpus and j in unserved:
                less = [o for o in by_size[j] if i.pool[o] == pool and i.gpus[o] < gpus]
                free_capacity.assign_first(j, [first_option(round_, j, pool, gpus), *less])
        for j in others:
            if free_capacity.choice[j] < 0 and not free_capacity.is_full:
                free_capacity.assign_first(j, small[j])
        _grow_by_return(free_capacity, accepted, free_capacity.movable(order))

    return replan(task, by_claim, steps)


def _grow_by_return(free_capacity: FreeCapacity, accepted: ReservationPlan, order: Ints) -> None:
    """Grow the job that loses least GPU time, one size at a time, while that adds work now."""
    round_ = free_capacity.round
    i = round_.instance
    rate = option_rates(round_).data
    done = work_in_round(round_).data
    gpus = i.gpus.data
    # GPU-seconds that a unit of work takes later on
    later = {}
    for j, promise in zip(accepted.jobs, accepted.made, strict=True):
        k = int(promise.reservation.size.max())
        need = promise.place.need
        later[j] = k / float(need.rate[np.searchsorted(need.sizes, k)])
    heap: list[tuple[float, int, int, int]] = []

    def push_step(place: int, j: int) -> None:
        now = int(free_capacity.choice[j])
        step = next_larger_option(round_, now)
        while step >= 0 and done[step] <= done[now]:
            step = next_larger_option(round_, step)
        if step >= 0:
            unit = later.get(j, gpus[now] / rate[now])
            saved = (rate[step] - rate[now]) / (gpus[step] - gpus[now]) * unit
            heapq.heappush(heap, (-saved, place, j, step))

    for place, j in enumerate(order.tolist()):
        push_step(place, j)
    while heap and not free_capacity.is_full:
        _, place, j, step = heapq.heappop(heap)
        if free_capacity.assign(j, step):
            push_step(place, j)
