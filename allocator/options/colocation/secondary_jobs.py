"""Options of secondary jobs: a job runs as the second one on the GPUs of its primary job.

The option of a secondary job takes no GPUs and costs nothing: its primary job pays for both. It
requires the primary job's option, and its value covers both jobs:

    value =   value of the secondary job at its speed next to the primary job
            - (value of the primary job alone - value of the primary job at its speed next to it)

So the values of a plan's options add up to the values of its jobs, and every rule stays a row
(`formulations.model.rows.colocation`).

The caller chooses the pairs that a round offers; pairs that run now are always among them. A
secondary job pauses like any job that changes, unless it runs on these GPUs already, as secondary
or as primary job of the same pair. If its primary job leaves, the secondary job's own option at
that pool and size keeps it running, and it then holds the GPUs itself. A row excludes that option
where the primary job stays (`formulations.model.rows.takeover`). A secondary job that leaves its
primary job for other GPUs of the pool has changed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from allocator.domain.problem import Bools, Ints, Problem, State
from allocator.options.colocation.pairs import is_primary_interchangeable
from allocator.options.colocation.several_primaries import (
    Groups,
    running_groups,
    speeds_of_groups,
)
from allocator.options.moves import merge_options, options_of_moves
from allocator.options.option_table import (
    OptionTable,
    held_gpus,
    is_allowed_option,
    no_primaries,
)
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.pauses import restart_s
from allocator.performance.table import RateTable
from allocator.valuation import build_context, option_values
from allocator.valuation.prices import gpu_prices
from formulations.objectives import interval
from formulations.objectives.context import Offer

PairArrays = tuple[Ints, Ints, Ints, Ints]
"""(primary, secondary, pool, gpus) of pairs, arrays (n,)."""


class PairOffer(IntEnum):
    """Which pairs of jobs a round offers."""

    RUNNING = 0  # pairs that run now, so that they may continue
    PROFITABLE = 1  # also all other pairs that a best plan may need (pairs.py)
    # also pairs that colocation policies consider (running_pairs.py), whatever their value
    ALL = 2


def add_colocated_options(
    problem: Problem,
    exclusive: OptionTable,
    table: RateTable,
    offered: PairOffer,
    pairs: PairArrays,
    groups: Groups | None = None,
) -> OptionTable:
    """Add options of secondary jobs to the option table.

    They follow the other options of their job, by pool, size and primary job.

    Parameters
    ----------
    exclusive : OptionTable
        Options with GPUs of their own.
    pairs : arrays (n,)
        Pairs to offer in addition to those that run now. Only those of positive value are offered,
        unless `offered` is `ALL`.
    groups : Groups, optional
        The same for secondary jobs with several primary jobs (several_primaries.py).
    """
    grouped = _options_with_several(problem, exclusive, table, offered, groups)
    now = _running_pairs(problem)
    new = ~_already_colocated(problem, *pairs)
    primary, secondary, pool, gpus = (np.append(a, b[new]) for a, b in zip(now, pairs, strict=True))
    # a secondary job that may not share any more may move to as many other GPUs of its pool
    if not len(primary) and not len(grouped) and not (problem.jobs.primary >= 0).any():
        return exclusive
    whole = build_context(problem, exclusive.offer)
    at = option_at(exclusive, primary, pool, gpus)
    found = colocated_speeds(problem, primary, secondary, pool, gpus)
    fine = np.flatnonzero(
        (at >= 0)
        & found.possible
        & (
            _already_colocated(problem, primary, secondary, pool, gpus)
            | is_allowed_option(problem, secondary, pool, gpus)
        )
    )
    primary = primary[fine]
    secondary = secondary[fine]
    pool = pool[fine]
    gpus = gpus[fine]
    at = at[fine]
    found = found.take(fine)
    keep = _already_colocated(problem, primary, secondary, pool, gpus)
    running = problem.jobs.state[secondary] == State.RUNNING
    pause = interval.pause_s(
        keep, running, restart_s(problem, secondary, pool, gpus), problem.pools.startup_s[pool]
    )

    by_secondary = np.argsort(secondary, kind="stable")
    by_primary = np.argsort(primary, kind="stable")
    value = np.empty(len(primary))
    as_secondary = _offer(
        problem, secondary, pool, gpus, found.rate_secondary, pause, keep, by_secondary
    )
    lost = exclusive.pause_s[at]
    same = exclusive.keep[at]
    as_primary = _offer(problem, primary, pool, gpus, found.rate_primary, lost, same, by_primary)
    value[by_secondary] = option_values(problem, whole.for_offer(as_secondary, pays_for_gpus=False))
    value[by_primary] += option_values(problem, whole.for_offer(as_primary))
    value -= exclusive.value[at]

    stays = np.flatnonzero(keep | (value > 0) | (offered == PairOffer.ALL))
    secondaries = OptionTable(
        exclusive.start,
        secondary,
        pool,
        gpus,
        found.row_secondary,
        found.rate_secondary,
        pause,
        value,
        np.zeros(len(primary)),
        keep,
        np.zeros(len(primary), dtype=np.int64),
        primary,
        found.rate_primary,
        found.row_primary,
        no_primaries(problem, len(primary)),
    )
    separate = options_of_moves(problem, exclusive, table, problem.jobs.primary >= 0)
    secondaries = OptionTable(start=exclusive.start, **secondaries.columns_of(stays))
    return merge_options(problem, exclusive, separate, secondaries, grouped)


def _options_with_several(
    problem: Problem,
    exclusive: OptionTable,
    table: RateTable,
    offered: PairOffer,
    groups: Groups | None,
) -> OptionTable:
    """Build the options of secondary jobs with several primary jobs, or GPUs besides theirs."""
    jobs = problem.jobs
    running = running_groups(problem)
    keeps = set(running.rows())
    other = [] if groups is None else [row for row in groups.rows() if row not in keeps]
    found = Groups.of(problem, [*running.rows(), *other])
    if not len(found):
        nothing = np.zeros(0, dtype=np.int64)
        return OptionTable(start=exclusive.start, **exclusive.columns_of(nothing))
    keep = np.arange(len(found)) < len(running)
    speeds = speeds_of_groups(problem, found)
    at, member = np.nonzero(found.primary >= 0)
    columns = np.full(found.primary.shape, -1)
    columns[at, member] = option_at(
        exclusive, found.primary[at, member], found.pool[at], found.primary_gpus[at, member]
    )
    known = (columns >= 0) | (found.primary < 0)
    fine = np.flatnonzero((speeds.rate > 0) & known.all(axis=1))
    found, keep, columns = found.take(fine), keep[fine], columns[fine]
    several = no_primaries(problem, len(fine))
    if len(fine):
        several["job"], several["gpus"] = found.primary, found.primary_gpus
        several["row"], several["rate"] = speeds.primary_row[fine], speeds.primary_rate[fine]
    g, pool, gpus = found.secondary, found.pool, found.gpus
    own = held_gpus(found.primary[:, 0] if len(fine) else g, gpus, several)
    pause = interval.pause_s(
        keep,
        jobs.state[g] == State.RUNNING,
        restart_s(problem, g, pool, gpus),
        problem.pools.startup_s[pool],
    )
    whole = build_context(problem, exclusive.offer)
    order = np.argsort(g, kind="stable")
    value = np.empty(len(fine))
    offer = _offer(problem, g, pool, gpus, speeds.rate[fine], pause, keep, order)
    value[order] = option_values(problem, whole.for_offer(offer, (own / gpus)[order]))
    at, member = np.nonzero(columns >= 0)
    column = columns[at, member]
    by_primary = np.argsort(exclusive.job[column], kind="stable")
    slowed = _offer(
        problem,
        exclusive.job[column],
        exclusive.pool[column],
        exclusive.gpus[column],
        several["rate"][at, member],
        exclusive.pause_s[column],
        exclusive.keep[column],
        by_primary,
    )
    lost = exclusive.value[column]
    lost[by_primary] -= option_values(problem, whole.for_offer(slowed))
    np.subtract.at(value, at, lost)
    stays = np.flatnonzero(keep | (value > 0) | (offered == PairOffer.ALL))
    every = OptionTable(
        exclusive.start,
        g,
        pool,
        gpus,
        speeds.row[fine],
        speeds.rate[fine],
        pause,
        value,
        own * gpu_prices(problem, g, pool, gpus),
        keep,
        np.zeros(len(fine), dtype=np.int64),
        several["job"].min(axis=1, initial=len(jobs), where=several["job"] >= 0),
        np.zeros(len(fine)),
        np.full(len(fine), -1),
        several,
    )
    return OptionTable(start=exclusive.start, **every.columns_of(stays))


def _running_pairs(problem: Problem) -> PairArrays:
    """List the pairs that run, in both orders where the order makes a difference.

    It makes one by itself where the memory of a GPU leaves less to the secondary job.
    """
    jobs = problem.jobs
    secondary = np.flatnonzero((jobs.primary >= 0) & (jobs.held == 0))
    primary = jobs.primary[secondary]
    secondary = secondary[jobs.gpus[primary] == jobs.gpus[secondary]]  # others are groups
    primary = jobs.primary[secondary]
    pool, gpus = jobs.pool[secondary], jobs.gpus[secondary]
    now = colocated_speeds(problem, primary, secondary, pool, gpus)
    back = colocated_speeds(problem, secondary, primary, pool, gpus)
    matters = ~(now.mirrors(back) & is_primary_interchangeable(problem))
    return (
        np.append(primary, secondary[matters]),
        np.append(secondary, primary[matters]),
        np.append(pool, pool[matters]),
        np.append(gpus, gpus[matters]),
    )


def _already_colocated(
    problem: Problem, primary: Ints, secondary: Ints, pool: Ints, gpus: Ints
) -> Bools:
    """Find the pairs that run on these GPUs now, in either order, (n,)."""
    jobs = problem.jobs
    paired = (jobs.primary[secondary] == primary) | (jobs.primary[primary] == secondary)
    there: Bools = paired & (jobs.pool[secondary] == pool) & (jobs.gpus[secondary] == gpus)
    there &= jobs.gpus[primary] == gpus
    return there


def option_at(m: OptionTable, job: Ints, pool: Ints, gpus: Ints) -> Ints:
    """Find each job's option with its own GPUs at that pool and size, (n,), -1 = none.

    It is what the job holds, or else the packed shape.
    """
    own = np.flatnonzero((m.primary < 0) & ((m.nodes == 0) | m.keep))
    if not len(own):
        return np.full(len(job), -1)
    pools = int(max(m.pool.max(), pool.max(initial=0))) + 1
    span = int(max(m.gpus.max(), gpus.max(initial=0))) + 1
    key = (m.job[own] * pools + m.pool[own]) * span + m.gpus[own]
    wanted = (job * pools + pool) * span + gpus
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, own[at], -1)


def _offer(
    problem: Problem,
    job: Ints,
    pool: Ints,
    gpus: Ints,
    rate: object,
    pause: object,
    keep: Bools,
    order: Ints,
) -> Offer:
    start = np.searchsorted(job[order], np.arange(len(problem.jobs) + 1))
    return Offer(start, *(np.asarray(x)[order] for x in (job, pool, gpus, rate, pause, keep)))
