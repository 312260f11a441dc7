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

from allocator.domain.problem import Ints, Market, State
from allocator.performance.pipelines import due_s
from allocator.policies.base import Proposal, Task
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
    """Use spot GPUs if available, else wait as long as the deadline allows.

    A job needs reliable GPUs to keep its deadline if after one more interval it would be late, even
    on its fastest option that is not spot. The estimate includes the pause of a change. So a job
    that has moved to reliable GPUs stays there, and does not move back and forth.
    """
    i, p = task.round.instance, task.round.problem
    preferred = options_at_requested_size(task.round)
    job, pool = i.job[preferred], i.pool[preferred]
    spot = p.pools.market[pool] == Market.SPOT
    pause_s = p.pools.startup_s[pool] + p.jobs.restart_s[job]
    done_s = pause_s + p.jobs.remaining_work[job] / option_rates(task.round)[preferred]
    soonest_s = np.full(len(p.jobs), np.inf)
    np.minimum.at(soonest_s, job[~spot], done_s[~spot])
    due = due_s(p)
    is_late = np.isfinite(soonest_s) & (p.now_s + p.interval_s + soonest_s > due)
    may_wait = ~np.isnan(due)
    return _serve_preferred(task, preferred[np.where(is_late[job], ~spot, spot | ~may_wait[job])])


def _serve_preferred(task: Task, preferred: Ints) -> Proposal:
    round_ = task.round
    jobs, pools = round_.problem.jobs, round_.problem.pools
    rank = np.array([FIRST[Market(m)] for m in pools.market.tolist()], dtype=np.int64)
    order = order_by_submission(round_)
    ways = rank_options(round_, preferred, rank[round_.instance.pool[preferred]])
    on_spot = (jobs.state == State.RUNNING) & (np.append(rank, -1)[jobs.pool] == 0)
    on_spot &= np.isin(round_.unchanged_choice(), preferred)
    pinned = round_.instance.mandatory | on_spot
    return replan(task, order, lambda free_capacity: serve(free_capacity, order, ways), pinned)
