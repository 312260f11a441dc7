"""ElasticFlow: minimum satisfactory shares with admission control, then marginal returns.

Source: Gu et al., ElasticFlow, ASPLOS 2023, algorithms 1 and 2. A deadline is accepted if it and
all those accepted before can be kept together: by earliest deadline, each job takes the smallest
share that keeps its deadline in what those before it leave over time (formulations/promised.py).
Accepted jobs get their share of the first slot. GPUs left over go one size at a time: first to jobs
that have none, then to whoever saves most GPU time per GPU.

Here a function of the snapshot: running jobs before waiting ones, each by submission, stand for the
order in which deadlines were accepted. The original drops a job whose deadline it does not accept;
here it goes on without one (best effort, as jobs without a deadline), and may be accepted later if
there is room after all. One more GPU is worth what a GPU-second at the new size saves later at the
share, 1 - (rate' - rate) / (size' - size) x size_m / rate_m GPU-seconds lost; sizes are those of
the menu; no growth where the pause eats it up. Where the original has one kind of GPU, a job stays
in the pool it runs in if it can, else goes where it takes the smallest part. max_changes: see
steps.replan.
"""

from __future__ import annotations

import heapq

import numpy as np

from allocator.domain.problem import State
from allocator.options.promises import accept, chain, first_option
from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.edf import done_in_round
from allocator.policies.room import Room
from allocator.policies.steps import (
    Wishes,
    larger,
    least,
    oldest_first,
    rates,
    replan,
    serve_owed,
    serve_pinned,
    wishes,
)
from formulations.linear import Bools, Ints
from formulations.promised import Chain


def elasticflow(task: Task) -> Decision:
    """Accepted deadlines first, by deadline; then everybody else."""
    round_ = task.round
    jobs = round_.problem.jobs
    accepted = chain(round_)
    accept(accepted, round_)
    by_size = wishes(round_, np.arange(len(round_.instance.job)), -round_.instance.gpus)
    small = wishes(round_, np.flatnonzero(least(round_.instance.start, round_.instance.gpus)))
    first = np.array(accepted.jobs, dtype=np.int64)
    old = oldest_first(round_)
    order = np.concatenate([first, old[~np.isin(old, first)]])
    running = (jobs.state == State.RUNNING)[order]
    by_claim = np.concatenate(
        [first, order[len(first) :][np.argsort(~running[len(first) :], kind="stable")]]
    )

    def steps(room: Room, pinned: Bools) -> None:
        serve_pinned(round_, room, order, pinned)
        served = serve_owed(round_, room, order[~pinned[order]], by_size)
        _shares(round_, room, accepted, pinned, served, by_size)
        for j in order[~pinned[order]].tolist():
            if room.choice[j] < 0 and j not in served and any(room.free):
                room.take_first(j, small.of(j))
        _returns(round_, room, accepted, order[~pinned[order]])

    return replan(task, by_claim, steps)


def _shares(
    round_: Round, room: Room, accepted: Chain, pinned: Bools, served: set[int], by_size: Wishes
) -> None:
    """Accepted jobs take their share of the first slot, or the most that fits below it."""
    i = round_.instance
    for j, promise in zip(accepted.jobs, accepted.made, strict=True):
        gpus, pool = int(promise.share.size[0]), promise.place.pool
        if pinned[j] or j in served or gpus == 0:
            continue
        if not room.take(j, first_option(round_, j, pool, gpus)):
            room.take_first(j, [o for o in by_size.of(j) if i.pool[o] == pool and i.gpus[o] < gpus])


def _returns(round_: Round, room: Room, accepted: Chain, order: Ints) -> None:
    """One size at a time to the job that loses least GPU time, as long as more gets done in this
    round.
    """
    i, rate, done = round_.instance, rates(round_).data, done_in_round(round_).data
    gpus = i.gpus.data
    # GPU-seconds that a unit of work takes later on
    later = {}
    for j, promise in zip(accepted.jobs, accepted.made, strict=True):
        k = int(promise.share.size.max())
        need = promise.place.need
        later[j] = k / float(need.rate[np.searchsorted(need.sizes, k)])
    heap: list[tuple[float, int, int, int]] = []

    def push(place: int, j: int) -> None:
        now = int(room.choice[j])
        step = larger(round_, now) if now >= 0 else -1
        while step >= 0 and done[step] <= done[now]:
            step = larger(round_, step)
        if step >= 0:
            unit = later.get(j, gpus[now] / rate[now])
            saved = (rate[step] - rate[now]) / (gpus[step] - gpus[now]) * unit
            heapq.heappush(heap, (-saved, place, j, step))

    for place, j in enumerate(order.tolist()):
        push(place, j)
    while heap and any(room.free):
        _, place, j, step = heapq.heappop(heap)
        if room.take(j, step):
            push(place, j)
