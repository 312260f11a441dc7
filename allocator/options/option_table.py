"""The option table: every option of every job as parallel arrays.

An option is a pool and a number of GPUs, with its speed, pause, value and cost. Of the ways to keep
its workers in step it has the best (allocator/performance/lost_time.py). Where rates.csv has
the speed of a size on more nodes than it needs, a job that is not packed has one more option for
each such number of nodes. A running job can
always keep what it holds as long as a rate is known. A job that may not stay on its nodes can move
to as many other GPUs of its pool. "Nothing" is always possible and has no entry. A job whose speed
is an assumption has only options of its requested size. The sizes of a job and the speeds at them
follow docs/reference/rules.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.domain.problem import Bools, Floats, Ints, Market, Problem, State
from allocator.domain.size_rule import EVERY_NODES, named_sizes, sizes_by_rule
from allocator.options.holdable_sizes import HoldableSizes
from allocator.options.staying import Staying
from allocator.performance.lost_time import choose_modes, restart_s
from allocator.performance.table import RateTable
from allocator.valuation.values import build_context, gpu_prices, option_values
from formulations.model.linear import ragged, starts
from formulations.objectives import context
from formulations.objectives.context import Offer

Members = NDArray[np.void]
PRIMARY = np.dtype([("job", "i8"), ("gpus", "i8"), ("row", "i8"), ("rate", "f8")])
"""A primary job: its GPUs, its row of rates.csv, its work per second next to the secondary job."""


def no_primaries(problem: Problem, options: int) -> Members:
    """Return `OptionTable.primaries` (n, M) of options that all have GPUs of their own."""
    none = np.array((-1, 0, -1, 0.0), PRIMARY)
    return np.broadcast_to(none, (options, problem.max_primaries))


@dataclass(frozen=True)
class OptionTable:
    """n options, job by job, then by pool and size; those of job j are start[j] .. start[j+1].

    Options of secondary jobs (options/colocation/secondary_jobs.py) come after the others of their
    job.

    Attributes
    ----------
    job, pool, gpus : (n,)
        Job, pool and GPUs of each option.
    row : (n,)
        Row of rates.csv, -1 = between rows or from a curve.
    rate : (n,)
        Work per second.
    pause_s : (n,)
        Seconds without work at the start of the interval.
    value : (n,)
        Value in the objective.
    cost : (n,)
        US dollars per hour.
    keep : (n,)
        True where the option equals what the job holds.
    nodes : (n,)
        Number of nodes of a spread shape, 0 = as its placement says.
    primaries : (n, M)
        The jobs on whose GPUs a secondary job runs (`PRIMARY`), ascending; then, and for options
        with GPUs of their own, the job -1. M is `Problem.max_primaries`.
    """

    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    row: Ints
    rate: Floats
    pause_s: Floats
    value: Floats
    cost: Floats
    keep: Bools
    nodes: Ints
    primaries: Members

    @property
    def primary(self) -> Ints:
        """The first primary job of each option, (n,), -1 = the option has its own GPUs."""
        return np.asarray(self.primaries["job"][:, 0], np.int64)

    @property
    def held(self) -> Ints:
        """GPUs that each option takes itself, (n,)."""
        return np.asarray(self.gpus - self.primaries["gpus"].sum(axis=1), np.int64)

    @property
    def has_several(self) -> Bools:
        """Whether the option has several primary jobs, or GPUs besides theirs, (n,)."""
        more = (self.primaries["job"][:, 1:] >= 0).any(axis=1)
        return np.asarray((self.primary >= 0) & (more | (self.held > 0)), np.bool_)

    def columns_of(self, which: Ints) -> dict[str, Any]:
        """Return all columns but `start` of some options (k,), by name."""
        return {name: column[which] for name, column in vars(self).items() if name != "start"}

    def primaries_of(self, o: int) -> list[int]:
        """Return the jobs on whose GPUs the job of option o would run."""
        return [h for h in self.primaries[o]["job"].tolist() if h >= 0]

    def at(self, job: Ints, pool: Ints, gpus: Ints) -> Ints:
        """Find each job's option with its own GPUs at that pool and size, (n,), -1 = none.

        It is what the job holds, or else the packed shape.
        """
        if not len(job):
            return job
        own = np.flatnonzero((self.primary < 0) & ((self.nodes == 0) | self.keep))
        if not len(own):
            return np.full(len(job), -1)
        pools = int(max(self.pool.max(), pool.max(initial=0))) + 1
        span = int(max(self.gpus.max(), gpus.max(initial=0))) + 1
        key = (self.job[own] * pools + self.pool[own]) * span + self.gpus[own]
        wanted = (job * pools + pool) * span + gpus
        k = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[k] == wanted, own[k], -1)

    def __len__(self) -> int:
        return len(self.job)

    @property
    def offer(self) -> Offer:
        """The options without their values and costs."""
        return Offer(self.job, self.pool, self.gpus, self.rate, self.pause_s, self.keep)


def find_blocked_jobs(problem: Problem) -> Bools:
    """Find the jobs that may not get anything this round, (J,).

    Such a job is held by its owner, or waits for a job that is still in the snapshot.
    """
    jobs = problem.jobs
    waiting = (jobs.state == State.QUEUED) | (jobs.state == State.PAUSED)
    out: Bools = jobs.state == State.HELD
    if any(jobs.after):
        present = set(jobs.job_id)
        out |= waiting & np.array([not present.isdisjoint(names) for names in jobs.after])
    return out


def find_locked_jobs(problem: Problem) -> Bools:
    """Find the running jobs that can only keep what they hold, (J,).

    They are non-preemptible, or have no resizes left.
    """
    jobs = problem.jobs
    fixed: Bools = (jobs.state == State.RUNNING) & (~jobs.preemptible | (jobs.resizes_left == 0))
    return fixed


def option_table(problem: Problem) -> OptionTable:
    """Build all options of all jobs, with values and costs.

    A job without options (no known rate, no matching type, held) simply waits. What a job is
    offered depends on no other job but by its nodes (options/staying.py).
    """
    jobs = problem.jobs
    pools = problem.pools
    table = RateTable.of(problem)
    staying = Staying.of(problem)
    stays = staying.stays
    settled = staying.stays | staying.homeless
    able_to_run = ~find_blocked_jobs(problem)
    free = able_to_run & ~find_locked_jobs(problem)
    holdable = HoldableSizes(problem) if len(problem.nodes) else None
    types = problem.allowed_types
    shape = held_shapes(problem)
    is_known = ~(staying.assumed | staying.homeless)
    most = np.minimum(jobs.max_gpus, table.largest[jobs.model]) if len(jobs) else jobs.max_gpus
    most_spot = np.minimum(most, jobs.max_spot_gpus).astype(np.int64)
    blocks: list[tuple[Ints, Ints, Ints, Ints]] = []
    for p in range(len(pools)):
        able = np.flatnonzero(free & types[:, pools.gpu_type[p]])
        limit = most_spot if pools.market[p] == Market.SPOT else most
        owner, gpus = list_sizes(problem, able, p, np.minimum(limit[able], pools.gpus[p]))
        owner, gpus, nodes, shaped = _add_shapes(problem, table, p, owner, gpus)
        settled_gpus = np.where(settled & (jobs.pool == p), jobs.gpus, -1)
        other = settled_gpus[owner] != gpus
        if table.has_shapes:  # whether a job of unknown nodes would change its shape is not known
            other |= (shape[owner] != nodes) & is_known[owner]
        if holdable and problem.has_nodes[p]:
            other &= holdable.find(p, owner, gpus, nodes, shaped)
        blocks.append((owner[other], np.full(int(other.sum()), p), gpus[other], nodes[other]))
    kept = np.flatnonzero(stays & able_to_run)
    kept = kept[jobs.gpus[kept] <= pools.gpus[jobs.pool[kept]]]
    blocks.append((kept, jobs.pool[kept], jobs.gpus[kept], shape[kept]))
    job, pool, gpus, nodes = (np.concatenate(parts) for parts in zip(*blocks, strict=True))

    keep = stays[job] & (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
    keep &= shape[job] == nodes
    rate, row = table.rate_in_pools(pools, jobs.model[job], pool, gpus, keep, nodes)
    rate *= choose_modes(problem, job, pool, gpus).pace
    assumed = table.is_assumed(jobs.model[job], pools.gpu_type[pool], gpus)
    offered = (rate > 0) & (~assumed | keep | (gpus == jobs.requested_gpus[job]))
    order = np.flatnonzero(offered)
    place = job[order]  # in the list of all options
    for column in (pool, gpus, ~keep, nodes):
        place = place * (int(column.max(initial=0)) + 1) + column[order]
    order = order[np.argsort(place, kind="stable")]  # fast, as the pools are sorted already
    job, pool, gpus, nodes, row = (column[order] for column in (job, pool, gpus, nodes, row))
    keep, rate = keep[order], rate[order]
    pause = context.pause_s(
        keep,
        jobs.state[job] == State.RUNNING,
        restart_s(problem, job, pool, gpus),
        pools.startup_s[pool],
    )
    offer = Offer(job, pool, gpus, rate, pause, keep)
    return OptionTable(
        starts(job, len(jobs)),
        job,
        pool,
        gpus,
        row,
        rate,
        pause,
        option_values(problem, build_context(problem, offer)),
        gpus * gpu_prices(problem, job, pool, gpus),
        keep,
        nodes,
        no_primaries(problem, len(job)),
    )


def _add_shapes(
    problem: Problem, table: RateTable, pool: int, owner: Ints, gpus: Ints
) -> tuple[Ints, Ints, Ints, Bools]:
    """Add their spread shapes to the sizes (owner, gpus) of a pool.

    Returns
    -------
    owner, gpus : (n,)
        The given sizes, then those on more nodes than they need.
    nodes : (n,)
        Number of nodes of a spread shape, else 0. It is that of the given size itself where nodes
        of another pool of the type hold more GPUs, so that this number is a spread shape.
    shaped : (n,)
        Whether the size has spread shapes.
    """
    nodes = np.zeros(len(owner), np.int64)
    shaped = np.zeros(len(owner), bool)
    if not (table.has_shapes and problem.has_nodes[pool]):
        return owner, gpus, nodes, shaped
    jobs = problem.jobs
    pools = problem.pools
    model = jobs.model[owner]
    gpu_type = np.full(len(owner), pools.gpu_type[pool])
    fewest = problem.fewest_nodes(owner, np.full(len(owner), pool), gpus)
    nodes = np.where(table.is_shape(model, gpu_type, gpus, fewest), fewest, 0)
    at, more = table.find_shapes(model, gpu_type, gpus)
    shaped[at] = True
    is_packed = np.array([name == "packed" for name in jobs.placement], bool)
    new = ~is_packed[owner[at]] & (more > fewest[at])
    at = at[new]
    more = more[new]
    return (
        np.append(owner, owner[at]),
        np.append(gpus, gpus[at]),
        np.append(nodes, more),
        np.append(shaped, shaped[at]),
    )


def held_shapes(problem: Problem) -> Ints:
    """Return the number of nodes of the spread shape that each job holds, (J,), else 0."""
    jobs = problem.jobs
    table = RateTable.of(problem)
    nodes = Staying.of(problem).nodes
    at = np.flatnonzero((nodes > 0) & (jobs.primary < 0)) if table.has_shapes else nodes[:0]
    is_shape = table.is_shape(
        jobs.model[at], problem.pools.gpu_type[jobs.pool[at]], jobs.gpus[at], nodes[at]
    )
    out = np.zeros(len(jobs), np.int64)
    out[at] = np.where(is_shape, nodes[at], 0)
    return out


def list_sizes(problem: Problem, able: Ints, pool: int, most: Ints) -> tuple[Ints, Ints]:
    """List (owner, gpus) of every size up to `most` that the jobs `able` may have in the pool.

    Sizes come from the job's list, or from the rule for sizes.
    """
    jobs = problem.jobs
    code = jobs.sizes[able]
    largest = int(most.max(initial=0))
    lists = [*problem.size_lists, sizes_by_rule(int(problem.pools.gpus_per_node[pool]), largest)]
    flat = np.concatenate(lists)
    begin = np.concatenate([[0], np.cumsum([len(s) for s in lists])])
    code = np.where(code < 0, len(lists) - 1, code)
    owner, k = ragged(begin[code], begin[code + 1])
    gpus = flat[k]
    if largest > EVERY_NODES * int(problem.pools.gpus_per_node[pool]):
        named = named_sizes(problem, able, pool)
        owner, gpus = np.unique(np.hstack([(owner, gpus), named]), axis=1)
    fits = (gpus >= jobs.min_gpus[able][owner]) & (gpus <= most[owner])
    return able[owner[fits]], gpus[fits]


def is_allowed_option(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Bools:
    """Find the options (job, pool, gpus) to which a job might change, (n,).

    What a job holds already may lie outside the sizes, types and market that it allows.
    """
    jobs = problem.jobs
    pools = problem.pools
    held = (jobs.state[job] == State.RUNNING) & (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
    may = np.ones(len(job), bool)
    for p in np.unique(pool[held]).tolist():
        here = np.flatnonzero(held & (pool == p))
        most = np.minimum(jobs.max_gpus, pools.gpus[p])
        if pools.market[p] == Market.SPOT:
            most = np.minimum(most, jobs.max_spot_gpus).astype(np.int64)
        able = np.unique(job[here])
        able = able[problem.allowed_types[able, pools.gpu_type[p]]]
        owner, sizes = list_sizes(problem, able, p, most[able])
        may[here] = np.isin(job[here], owner[sizes == jobs.gpus[owner]])
    return may
