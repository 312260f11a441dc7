"""Options of running jobs that move to as many other GPUs of their pool, at the cost of a pause."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from allocator.domain.problem import Bools, Problem
from allocator.options.option_table import OptionTable, find_locked_jobs, is_allowed_option
from allocator.performance.lost_time import restart_s
from allocator.performance.table import RateTable
from allocator.valuation import build_context, option_values
from formulations.model.linear import starts
from formulations.objectives import context
from formulations.objectives.context import Offer


def options_of_moves(problem: Problem, exclusive: OptionTable, movable: Bools) -> OptionTable:
    """Build the options of jobs that may move to as many other GPUs of their pool.

    Rows of rates.csv that need more memory than the GPUs have count only for GPUs that are already
    held. The value is that of the held GPUs alone, less the cost of the move.

    Parameters
    ----------
    exclusive : OptionTable
        Options with GPUs of their own.
    movable : (J,)
        The jobs whose moves are asked for; of these the locked ones have none.
    """
    jobs = problem.jobs
    pools = problem.pools
    now = np.flatnonzero(
        exclusive.keep
        & (exclusive.primary < 0)
        & (movable & ~find_locked_jobs(problem))[exclusive.job]
    )
    job, pool, gpus = exclusive.job[now], exclusive.pool[now], exclusive.gpus[now]
    packed = np.array([name == "packed" for name in jobs.placement], bool)
    nodes = exclusive.nodes[now]
    can = ~(packed[job] & (nodes > problem.fewest_nodes(job, pool, gpus)))
    can &= is_allowed_option(problem, job, pool, gpus)
    rates = RateTable.of(problem)
    rate, _ = rates.rate_in_pools(pools, jobs.model[job], pool, gpus, nodes=nodes)
    now = now[can & (rate > 0)]
    here = exclusive.columns_of(now)
    job = here["job"]
    pool = here["pool"]
    gpus = here["gpus"]
    keep = np.zeros(len(job), bool)
    pause = context.pause_s(keep, ~keep, restart_s(problem, job, pool, gpus), pools.startup_s[pool])
    whole = build_context(problem, exclusive.offer)
    moved, stays = (
        option_values(problem, whole.for_offer(Offer(job, pool, gpus, here["rate"], lost, same)))
        for lost, same in ((pause, keep), (here["pause_s"], ~keep))
    )
    changed = {"keep": keep, "pause_s": pause, "value": here["value"] + moved - stays}
    return OptionTable(starts(job, len(jobs)), **here | changed)


def merge_options(problem: Problem, *tables: OptionTable) -> OptionTable:
    """Return the options of all tables in the order of an OptionTable."""
    both = {
        f.name: np.concatenate([getattr(table, f.name) for table in tables])
        for f in fields(OptionTable)
        if f.name != "start"
    }
    primary = both["primaries"]["job"][:, 0]
    order = np.lexsort(
        (
            primary,
            both["nodes"],
            ~both["keep"],
            both["gpus"],
            both["pool"],
            primary >= 0,
            both["job"],
        )
    )
    sorted_ = {name: x[order] for name, x in both.items()}
    return OptionTable(starts(sorted_["job"], len(problem.jobs)), **sorted_)
