"""What clusters do with spot GPUs without a plan: take them whenever they are there, and fall back
on demand.

    spot-first   a job at the size it asked for: on spot GPUs if any are free, else in the other
                 pools at once, cheapest
                 market first; back to spot as soon as it fits
    spot-wait    the same, but while its deadline leaves time a job waits for spot; when the time to
                 spare is used up it
                 goes where GPUs are not taken back, and stays there (the greedy policy of Wu et
                     al., NSDI 2024, section
                 3: spot whenever there is any, on demand when the deadline forces it)

Who holds spot GPUs keeps them; the others are served in order of submission. Jobs without a
deadline never wait.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Market, State
from allocator.options.instance_building import CompiledRound
from allocator.performance.pipelines import due_s
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    order_by_submission,
    rank_options,
    replan,
    serve,
)
from formulations.model.linear import Ints

FIRST = {Market.SPOT: 0, Market.RESERVED: 1, Market.ON_DEMAND: 2}


def spot_first(task: Task) -> Proposal:
    """Spot if it is there, else whatever else is, at once."""
    return _serve_preferred(task, options_at_requested_size(task.round))


def spot_wait(task: Task) -> Proposal:
    """Spot if it is there; else wait as long as the deadline allows."""
    round_ = task.round
    preferred = options_at_requested_size(round_)
    job = round_.instance.job[preferred]
    spot = round_.problem.pools.market[round_.instance.pool[preferred]] == Market.SPOT
    return _serve_preferred(
        task,
        preferred[
            np.where(
                _needs_reliable_gpus(round_, preferred)[job], ~spot, _may_wait(round_)[job] <= spot
            )
        ],
    )


def _serve_preferred(task: Task, preferred: Ints) -> Proposal:
    round_ = task.round
    i, jobs, pools = round_.instance, round_.problem.jobs, round_.problem.pools
    rank = np.array([FIRST[Market(m)] for m in pools.market.tolist()], dtype=np.int64)
    order, ways = (
        order_by_submission(round_),
        rank_options(round_, preferred, rank[i.pool[preferred]]),
    )
    on_spot = (jobs.state == State.RUNNING) & np.isin(
        jobs.pool, np.flatnonzero(pools.market == Market.SPOT)
    )
    on_spot &= (round_.unchanged_choice() >= 0) & np.isin(round_.unchanged_choice(), preferred)

    def steps(free_capacity: FreeCapacity, pinned: Bools) -> None:
        serve(round_, free_capacity, order, ways, pinned | on_spot)

    return replan(task, order, steps)


def _may_wait(round_: CompiledRound) -> Bools:
    """(J,) jobs with a deadline: they take nothing but spot until they must be sure."""
    return ~np.isnan(due_s(round_.problem))


def _needs_reliable_gpus(round_: CompiledRound, preferred: Ints) -> Bools:
    """(J,) jobs that could not wait another interval and still be done in time on the fastest sure
    option they like; a job that has started there is held to it by the pauses that moving back and
    forth would cost."""
    p, i = round_.problem, round_.instance
    sure = preferred[p.pools.market[i.pool[preferred]] != Market.SPOT]
    job = i.job[sure]
    pause = p.pools.startup_s[i.pool[sure]] + p.jobs.restart_s[job]
    soonest = np.full(len(p.jobs), np.inf)
    np.minimum.at(soonest, job, pause + p.jobs.remaining_work[job] / option_rates(round_)[sure])
    done_s = p.now_s + p.interval_s + soonest
    return np.asarray(np.isfinite(soonest) & (done_s > due_s(p)), dtype=np.bool_)
