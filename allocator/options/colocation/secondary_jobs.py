"""Options of secondary jobs: a job runs as the second one on the GPUs of its primary job.

The option of a secondary job takes no GPUs and costs nothing: its primary job pays for both. It
requires the primary job's option, and its value covers both jobs:

    value =   value of the secondary job at its speed next to the primary job
            - (value of the primary job alone - value of the primary job at its speed next to it)

With several primary jobs (several_primaries.py) it covers all of them, and a pair is a set of one.
So the values of a plan's options add up to the values of its jobs, and every rule stays a row
(`formulations.model.single_round.colocation`).

The caller chooses the pairs that a round offers; pairs that run now are always among them. A
secondary job pauses like any job that changes, unless it runs on these GPUs already, as secondary
or as primary job of the same pair. If its primary job leaves, the secondary job's own option at
that pool and size keeps it running, and it then holds the GPUs itself. A row excludes that option
where the primary job stays (`formulations.model.single_round.takeover`). A secondary job that
leaves its primary job for other GPUs of the pool has changed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from allocator.domain.problem import Bools, Problem, State
from allocator.options.colocation.several_primaries import Groups, running_groups
from allocator.options.moves import merge_options, options_of_moves
from allocator.options.option_table import OptionTable, is_allowed_option, no_primaries
from allocator.performance.colocated_speed import speeds_with_several
from allocator.performance.lost_time import restart_s
from allocator.valuation.values import build_context, gpu_prices, option_values
from formulations.objectives import context
from formulations.objectives.context import Offer


class PairOffer(IntEnum):
    """Which pairs of jobs a round offers."""

    RUNNING = 0  # pairs that run now, so that they may continue
    PROFITABLE = 1  # also all other pairs that a best plan may need (pairs.py)
    # also pairs that colocation policies consider (running_pairs.py), whatever their value
    ALL = 2


def add_colocated_options(
    problem: Problem,
    exclusive: OptionTable,
    offered: PairOffer,
    groups: Groups,
) -> OptionTable:
    """Add options of secondary jobs to the option table.

    They follow the other options of their job, by pool, size and primary job.

    Parameters
    ----------
    exclusive : OptionTable
        Options with GPUs of their own.
    groups : Groups
        Secondary jobs with their primary jobs to offer in addition to those that run now. Only
        those of positive value are offered, unless `offered` is `ALL`.
    """
    jobs = problem.jobs
    running = running_groups(problem)
    sets = running.join(groups.take(~_run_together(problem, groups)))
    keep = np.arange(len(sets)) < len(running)
    at, member = np.nonzero(sets.primary >= 0)
    primary, size = sets.primary[at, member], sets.primary_gpus[at, member]
    speeds = speeds_with_several(
        problem, at, primary, sets.secondary[at], sets.pool[at], size, sets.gpus[at]
    )
    column = exclusive.at(primary, sets.pool[at], size)
    fine = (speeds.rate > 0) & (np.bincount(at, column < 0, len(sets)) == 0)
    fine &= keep | is_allowed_option(problem, sets.secondary, sets.pool, sets.gpus)
    which, entry = np.flatnonzero(fine), np.flatnonzero(fine[at])
    at, member, column = np.searchsorted(which, at[entry]), member[entry], column[entry]
    slowed = speeds.pairs.take(entry)
    sets, keep = sets.take(which), keep[which]
    primaries = no_primaries(problem, len(sets)).copy()
    for name, of_entry in (
        ("job", exclusive.job[column]),
        ("gpus", exclusive.gpus[column]),
        ("row", slowed.row_primary),
        ("rate", slowed.rate_primary),
    ):
        primaries[name][at, member] = of_entry

    g, pool, gpus, rate = sets.secondary, sets.pool, sets.gpus, speeds.rate[which]
    own = gpus - sets.primary_gpus.sum(axis=1)
    pause = context.pause_s(
        keep,
        jobs.state[g] == State.RUNNING,
        restart_s(problem, g, pool, gpus),
        problem.pools.startup_s[pool],
    )
    whole = build_context(problem, exclusive.offer)
    second = Offer(g, pool, gpus, rate, pause, keep)
    value = option_values(problem, whole.for_offer(second, own / gpus))
    first = Offer(
        exclusive.job[column],
        exclusive.pool[column],
        exclusive.gpus[column],
        slowed.rate_primary,
        exclusive.pause_s[column],
        exclusive.keep[column],
    )
    np.add.at(value, at, option_values(problem, whole.for_offer(first)))
    np.subtract.at(value, at, exclusive.value[column])
    secondaries = OptionTable(
        exclusive.start,
        g,
        pool,
        gpus,
        speeds.row[which],
        rate,
        pause,
        value,
        own * gpu_prices(problem, g, pool, gpus),
        keep,
        np.zeros(len(sets), np.int64),
        primaries,
    )
    stays = np.flatnonzero(keep | (value > 0) | (offered == PairOffer.ALL))
    separate = options_of_moves(problem, exclusive, jobs.primary >= 0)
    secondaries = OptionTable(start=exclusive.start, **secondaries.columns_of(stays))
    return merge_options(problem, exclusive, separate, secondaries)


def _run_together(problem: Problem, groups: Groups) -> Bools:
    """Find the groups that run now, pairs in either order, or are left of one that runs, (k,)."""
    jobs, g, h = problem.jobs, groups.secondary, groups.primary
    is_member: Bools = (jobs.secondary[h] == g[:, None]) | (jobs.primary[h] == g[:, None])
    is_member &= jobs.gpus[h] == groups.primary_gpus
    there: Bools = (jobs.pool[g] == groups.pool) & (jobs.gpus[g] == groups.gpus)
    return there & (is_member | (h < 0)).all(axis=1)
