"""GPUs of a pool that are kept from a time on for a large job that waits, and their rows (R68).

A reservation says that job j starts with k GPUs of pool p as soon as the jobs that may not be
stopped leave them, after T seconds. If T is 0, it must get an option. Until then

    sum_{o in p, not of j} there_o x_o <= GPUs_p - k

where there_o are the GPUs that option o holds if its job may not be stopped and ends after T, and 0
of all others. So a job that ends before T, or that can be stopped at T, delays nobody.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import SAME, Bools, Floats, Ints, Problem
from allocator.options.option_table import OptionTable
from formulations.model import linear
from formulations.model.block import Block


def ends_after(end_s: Floats, after_s: float) -> Bools:
    """Return whether jobs that end then still hold GPUs at a time, (n,)."""
    return end_s > after_s * (1 + SAME)


def option_ends(problem: Problem, m: OptionTable, which: Ints | slice = slice(None)) -> Floats:
    """Return the seconds from now until options (n,) are done with their jobs, (n,)."""
    return m.pause_s[which] + problem.jobs.remaining_work[m.job[which]] / m.rate[which]


def due_jobs(problem: Problem) -> Bools:
    """Find the jobs whose reservations begin now, (J,)."""
    out = np.zeros(len(problem.jobs), bool)
    out[[r.job for r in problem.kept if r.after_s == 0]] = True
    return out


def reservation_rows(problem: Problem, mandatory: Bools, m: OptionTable) -> list[Block]:
    """Build the rows of reservations over the options of a table; empty without any.

    Jobs of which more stay than a reservation leaves keep their GPUs: it then begins late.
    """
    later = [r for r in problem.kept if r.after_s > 0]
    if not later:
        return []
    end_s = option_ends(problem, m)
    firm = ~problem.jobs.preemptible[m.job]
    amount = np.zeros(len(m), np.int64)
    most = np.full(len(problem.pools), np.inf)
    for r in later:
        there = firm & (m.pool == r.pool) & (m.job != r.job) & ends_after(end_s, r.after_s)
        amount[there] = m.held[there]
        stays = np.zeros(len(mandatory), np.int64)
        held = np.flatnonzero(there & m.keep & mandatory[m.job])
        np.maximum.at(stays, m.job[held], amount[held])
        most[r.pool] = max(int(problem.pools.gpus[r.pool]) - r.gpus, int(stays.sum()))
    return [Block.at_most(linear.RESERVATION, problem.pools.pool, m.pool, amount, most)]
