"""Pairs of a running job and a waiting job, for colocation policies with rules of their own.

A policy that follows the objective considers a few good pairs (pairs.py). Other policies always
share, or share by another rule. They consider waiting jobs at their requested size, together with
two kinds of jobs: those that hold as many GPUs of the pool, and those that would start there first
because they have less time left. At each pool and size the MAX_SECONDARIES waiting jobs with the
least time left at that size are considered.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Ints, Isolation, Problem, State
from allocator.options.option_table import OptionTable

MAX_SECONDARIES = 256  # per pool and size; more do not start in one round


def list_candidate_pairs(problem: Problem, m: OptionTable) -> tuple[Ints, Ints]:
    """List the options (primary, secondary) of candidate pairs, (n,) each.

    The table m has only options with GPUs of their own. The caller has to check that the two jobs
    fit.
    """
    jobs = problem.jobs
    running = problem.jobs.state == State.RUNNING
    distance = 2 * np.abs(m.gpus - jobs.requested_gpus[m.job]) + (
        m.gpus > jobs.requested_gpus[m.job]
    )
    nearest = np.full(len(jobs), np.iinfo(np.int64).max)
    np.minimum.at(nearest, m.job, distance)
    here = problem.pools.sharing[m.pool] != Isolation.NONE
    running_options = np.flatnonzero(here & m.keep & (jobs.primary[m.job] < 0))
    new = np.flatnonzero(here & ~running[m.job] & (distance == nearest[m.job]))
    new = new[
        np.lexsort(
            (
                m.job[new],
                jobs.submitted_s[m.job[new]],
                jobs.remaining_work[m.job[new]] / m.rate[new],
            )
        )
    ]
    pairs: list[tuple[Ints, Ints]] = [(np.zeros(0, np.int64),) * 2]
    place = m.pool * (int(m.gpus.max(initial=0)) + 1) + m.gpus
    for at in np.unique(place[new]).tolist():
        secondaries_here = new[place[new] == at][:MAX_SECONDARIES]
        primaries_here = np.concatenate(
            [running_options[place[running_options] == at], secondaries_here]
        )
        first, second = np.meshgrid(
            np.arange(len(primaries_here)), np.arange(len(secondaries_here)), indexing="ij"
        )
        before = first < second + len(primaries_here) - len(secondaries_here)
        pairs.append((primaries_here[first[before]], secondaries_here[second[before]]))
    primary, secondary = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return primary, secondary
