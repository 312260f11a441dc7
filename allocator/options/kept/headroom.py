"""Headroom for interactive jobs: the GPUs that interactive.csv keeps in each pool, and their rows.

H_p is headroom_gpus, or GPUs for as many sessions as may be present at once
(formulations/model/headroom.py), with

    m = sessions_per_hour x (session_s + interval_s) / 3600

because a session waits for the next round. Where neither is given, a queue writes headroom_gpus
into the round (allocator/queue/jobs/sessions.py). Jobs that may not be moved can reduce the
headroom in force; a repair reports it. In pool p the jobs that are not interactive hold at most

    GPUs - (1 - shrinkable_share) H_p        in all
    GPUs - H_p                               without what shrinkable jobs could give back
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.option_table import OptionTable
from formulations.model import linear
from formulations.model.headroom import sessions
from formulations.model.linear import Block
from formulations.objectives.context import HOUR


def wanted_headroom(problem: Problem) -> Ints:
    """Return the GPUs that interactive.csv keeps in each pool, (P,).

    It is 0 without a row, or where the row leaves the number to a queue.
    """
    out = np.zeros(len(problem.pools), np.int64)
    rows = problem.interactive
    for r, p in enumerate(rows.pool.tolist()):
        if rows.headroom_gpus[r] >= 0:
            out[p] = rows.headroom_gpus[r]
        elif rows.sessions_per_hour[r] >= 0:
            there_s = float(rows.session_s[r]) + problem.interval_s
            mean = float(rows.sessions_per_hour[r]) * there_s / HOUR
            out[p] = sessions(mean, float(rows.late_share[r])) * int(rows.session_gpus[r])
    return np.minimum(out, problem.pools.gpus)


def headroom_in_force(problem: Problem, mandatory: Bools) -> Ints:
    """Return the GPUs kept in this round, (P,).

    mandatory (J,) marks the jobs that keep what they hold.
    """
    jobs = problem.jobs
    stay = mandatory & ~jobs.interactive & (jobs.primary < 0)
    bound = np.bincount(jobs.pool[stay], jobs.gpus[stay], len(problem.pools)).astype(np.int64)
    kept: Ints = np.maximum(0, np.minimum(wanted_headroom(problem), problem.pools.gpus - bound))
    return kept


def repairs(problem: Problem, mandatory: Bools) -> list[str]:
    """Describe every pool whose headroom is reduced by jobs that keep what they hold."""
    want = wanted_headroom(problem)
    have = headroom_in_force(problem, mandatory)
    return [
        f'headroom of pool "{problem.pools.pool[p]}" is {have[p]} GPUs instead of {want[p]}: jobs'
        " that may not be moved hold the others"
        for p in np.flatnonzero(have < want).tolist()
    ]


def headroom_rows(problem: Problem, mandatory: Bools, m: OptionTable) -> list[Block]:
    """Build the rows of headroom over the options of a table."""
    jobs = problem.jobs
    pools = problem.pools
    kept = headroom_in_force(problem, mandatory)
    share: Floats = np.zeros(len(pools))
    share[problem.interactive.pool] = problem.interactive.shrinkable_share
    idle = np.ceil((1.0 - share) * kept - 1e-9)
    batch = np.where(jobs.interactive[m.job], 0, m.held)
    gives = jobs.shrinkable & jobs.preemptible & (jobs.resizes_left != 0)
    firm = np.where(gives[m.job], np.minimum(batch, jobs.min_gpus[m.job]), batch)
    of_batch = np.where(idle > 0, pools.gpus - idle, np.inf)
    of_firm = np.where((kept > 0) & (share > 0), pools.gpus - kept, np.inf)
    return [
        Block.at_most(linear.IDLE, pools.pool, m.pool, batch, of_batch),
        Block.at_most(linear.HEADROOM, pools.pool, m.pool, firm, of_firm),
    ]
