"""Common rules for spot GPUs without a plan: take them when available, otherwise pay on demand.

    spot-first   A job at its requested size takes spot GPUs if any are free. Otherwise it goes to
                 other pools at once, cheapest market first, and back to spot as soon as it fits.
    spot-wait    The same, but a job waits for spot as long as its deadline leaves time. When the
                 spare time is used up, it goes where GPUs are not revoked, and stays there (the
                 greedy policy of Wu et al., NSDI 2024, section 3).

Jobs that hold spot GPUs keep them; the others are served in order of submission. Jobs without a
deadline never wait.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Ints, Market, State
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

FIRST = {Market.SPOT: 0, Market.RESERVED: 1, Market.ON_DEMAND: 2}


def spot_first(task: Task) -> Proposal:
    """Use spot GPUs if available, else any other GPUs at once."""
    return _serve_preferred(task, options_at_requested_size(task.round))


def spot_wait(task: Task) -> Proposal:
    """Use spot GPUs if available, else wait as long as the deadline allows."""
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
    i = round_.instance
    jobs = round_.problem.jobs
    pools = round_.problem.pools
    rank = np.array([FIRST[Market(m)] for m in pools.market.tolist()], dtype=np.int64)
    order = order_by_submission(round_)
    ways = rank_options(round_, preferred, rank[i.pool[preferred]])
    on_spot = (jobs.state == State.RUNNING) & np.isin(
        jobs.pool, np.flatnonzero(pools.market == Market.SPOT)
    )
    on_spot &= (round_.unchanged_choice() >= 0) & np.isin(round_.unchanged_choice(), preferred)

    def steps(free_capacity: FreeCapacity, pinned: Bools) -> None:
        serve(round_, free_capacity, order, ways, pinned | on_spot)

    return replan(task, order, steps)


def _may_wait(round_: CompiledRound) -> Bools:
    """Return the jobs with a deadline, (J,).

    They take only spot GPUs until they need reliable ones.
    """
    return ~np.isnan(due_s(round_.problem))


def _needs_reliable_gpus(round_: CompiledRound, preferred: Ints) -> Bools:
    """Return the jobs that need reliable GPUs now to keep their deadline, (J,).

    After waiting one more interval they would be late, even on their fastest preferred option that
    is not spot. The estimate includes the pause of a change. So a job that has moved to reliable
    GPUs stays there, and does not move back and forth.
    """
    p = round_.problem
    i = round_.instance
    sure = preferred[p.pools.market[i.pool[preferred]] != Market.SPOT]
    job = i.job[sure]
    pause = p.pools.startup_s[i.pool[sure]] + p.jobs.restart_s[job]
    soonest = np.full(len(p.jobs), np.inf)
    np.minimum.at(soonest, job, pause + p.jobs.remaining_work[job] / option_rates(round_)[sure])
    done_s = p.now_s + p.interval_s + soonest
    return np.asarray(np.isfinite(soonest) & (done_s > due_s(p)))
