"""Options of a secondary job with several primary jobs, or with idle GPUs besides theirs.

Such an option takes all GPUs of its primary jobs, which may hold fewer than it gets, and the others
from the pool. Its speed is that on the slowest of its GPUs; each primary job is slowed by its pair
(performance/colocated_speed.py). `config.toml` says by max_primaries how many primary jobs there
may be. Pools with nodes, spot pools and jobs that may not be moved have no such options.

A small round offers every set of primary jobs. In a large one each secondary job has, at each size,
those sets whose primary jobs lose least for each of their GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from allocator.domain.allocation import Allocation
from allocator.domain.problem import (
    Bools,
    Ints,
    Isolation,
    Jobs,
    Market,
    Problem,
    State,
    other_jobs,
)
from allocator.options.colocation.pairs import is_primary_interchangeable
from allocator.options.option_table import OptionTable, find_locked_jobs, is_allowed_option
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.lost_time import number_rows
from formulations.columns import Columns
from formulations.model.linear import begins_run

# a round is small, and offers all sets of primary jobs, if it has at most so many
SMALL_SETS = 100_000
# a large round looks at so many pairs of options at most, and offers each secondary job at each
# size at most so many sets, of so many primary jobs
MOST_PAIRS = 20_000
MOST_SETS = 16
NEAREST = 6


Members = tuple[tuple[int, int], ...]
"""Primary jobs with their GPUs, by ascending job."""
Group = tuple[int, int, int, Members]
"""A secondary job, its pool, its GPUs, and its primary jobs."""


@dataclass(frozen=True)
class Groups(Columns):
    """k secondary jobs with their primary jobs.

    Attributes
    ----------
    secondary, pool, gpus : (k,)
        The secondary jobs, and what they get.
    primary, primary_gpus : (k, M)
        Their primary jobs and the GPUs of these; -1 and 0 = none.
    """

    secondary: Ints
    pool: Ints
    gpus: Ints
    primary: Ints
    primary_gpus: Ints

    @classmethod
    def of(cls, problem: Problem, rows: Iterable[Group]) -> Groups:
        """Return the groups in rows; equal ones count once."""
        rows = list(dict.fromkeys(rows))
        width = problem.max_primaries
        members = np.full((len(rows), width, 2), (-1, 0))
        for at, row in enumerate(rows):
            members[at, : len(row[3])] = row[3]
        columns = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3)
        secondary, pool, gpus = columns.T
        return cls(secondary, pool, gpus, members[:, :, 0], members[:, :, 1])

    @classmethod
    def of_pairs(cls, problem: Problem, m: OptionTable, primary: Ints, secondary: Ints) -> Groups:
        """Return pairs of options (k,) with GPUs of their own."""
        more = ((0, 0), (0, problem.max_primaries - 1))
        return cls(
            m.job[secondary],
            m.pool[secondary],
            m.gpus[secondary],
            np.pad(m.job[primary, None], more, constant_values=-1),
            np.pad(m.gpus[primary, None], more),
        )

    def __len__(self) -> int:
        return len(self.secondary)

    @property
    def is_pair(self) -> Bools:
        """Whether one primary job has as many GPUs, (k,)."""
        return np.asarray(self.primary_gpus[:, 0] == self.gpus)

    def join(self, others: Groups) -> Groups:
        """Return these and others; equal ones count once."""
        columns = zip(vars(self).values(), vars(others).values(), strict=True)
        both = Groups(*map(np.concatenate, columns))
        number = number_rows(
            both.secondary, both.pool, both.gpus, *both.primary.T, *both.primary_gpus.T
        )
        return both.take(np.sort(np.unique(number, return_index=True)[1]))


def can_share_with_several(problem: Problem, job: Ints, pool: Ints) -> Bools:
    """Find the jobs that may share with jobs of other sizes there, (n,)."""
    pools = problem.pools
    may: Bools = (
        (pools.sharing[pool] != Isolation.NONE)
        & ~problem.has_nodes[pool]
        & (pools.market[pool] != Market.SPOT)
        & problem.jobs.preemptible[job]
    )
    return may & (problem.max_primaries > 1)


def running_groups(problem: Problem) -> Groups:
    """List the groups that run, and what is left of them where primary jobs leave.

    Pairs are listed in both orders where the order makes a difference. It makes one by itself where
    the memory of a GPU leaves less to the secondary job.
    """
    listed: list[Group] = [
        (g, pool, gpus, part)
        for g, pool, gpus, members in _list_groups_of(problem.jobs)
        for n in range(len(members), 0, -1)
        for part in combinations(members, n)
    ]
    groups = Groups.of(problem, listed)
    pairs = groups.take(groups.is_pair)
    h, g = pairs.primary[:, 0], pairs.secondary
    now, back = (colocated_speeds(problem, *x, pairs.pool, pairs.gpus) for x in ((h, g), (g, h)))
    swapped = np.where(pairs.primary >= 0, g[:, None], -1)
    matters = ~(now.mirrors(back) & is_primary_interchangeable(problem))
    return groups.join(replace(pairs, secondary=h, primary=swapped).take(matters))


def list_groups(problem: Problem, m: OptionTable) -> Groups:
    """List the sets of primary jobs that a round offers; m has only options of single jobs."""
    if problem.max_primaries < 2:
        return Groups.of(problem, ())
    jobs = problem.jobs
    own = np.arange(len(m))
    second = own[
        can_share_with_several(problem, m.job, m.pool)
        & ~find_locked_jobs(problem)[m.job]
        & is_allowed_option(problem, m.job, m.pool, m.gpus)
        & (m.gpus > 1)
    ]
    first = own[np.isin(m.pool, m.pool[second]) & jobs.preemptible[m.job]]
    is_small = len(second) * math.comb(len(first), problem.max_primaries) <= SMALL_SETS
    if not is_small:
        running = jobs.state == State.RUNNING
        first = first[m.keep[first] & (jobs.primary[m.job[first]] < 0)]
        is_requested = m.gpus[second] == jobs.requested_gpus[m.job[second]]
        second = second[is_requested & ~running[m.job[second]]]
        order = np.argsort(jobs.submitted_s[m.job[second]], kind="stable")
        second = second[order][: MOST_PAIRS // max(1, len(first))]
    h, g = (x.ravel() for x in np.meshgrid(first, second, indexing="ij"))
    near = (
        (m.pool[h] == m.pool[g])
        & (m.gpus[h] <= m.gpus[g])
        & (m.job[h] != m.job[g])
        & (m.nodes[h] == 0)
    )
    h, g = h[near], g[near]
    speeds = colocated_speeds(
        problem, m.job[h], m.job[g], m.pool[h], m.gpus[h], gpus_secondary=m.gpus[g]
    )
    fine = speeds.possible
    h, g, speeds = h[fine], g[fine], speeds.take(fine)
    lost = m.value[h] * (1.0 - speeds.rate_primary / m.rate[h]) / m.gpus[h]
    lost += m.value[g] / m.gpus[g] * (1.0 - 1.0 / speeds.slowdown_secondary)
    order = np.lexsort((h, lost, g))
    h, g = h[order], g[order]
    start = np.flatnonzero(begins_run(g))
    listed: list[Group] = []
    for begin, end in pairwise([*start.tolist(), len(g)]):
        o = int(g[begin])
        several = [
            (int(m.job[x]), int(m.gpus[x]))
            for x in h[begin : end if is_small else begin + NEAREST].tolist()
        ]
        sets = _sets(several, int(m.gpus[o]), problem.max_primaries)
        for at, members in enumerate(sets):
            if not is_small and at >= MOST_SETS:
                break
            listed.append((int(m.job[o]), int(m.pool[o]), int(m.gpus[o]), members))
    return Groups.of(problem, listed)


def _sets(several: list[tuple[int, int]], gpus: int, most: int) -> Iterator[Members]:
    """Yield the sets of at most `most` primary jobs that have at most `gpus` GPUs together.

    A single job of as many GPUs is left out.
    """
    for n in range(1, most + 1):
        for members in combinations(several, n):
            jobs = {job for job, _ in members}
            total = sum(size for _, size in members)
            if len(jobs) == n and total <= gpus and not (n == 1 and total == gpus):
                yield tuple(sorted(members))


def groups_of_options(m: OptionTable) -> Groups:
    """List the options with several primary jobs, or with GPUs besides those of one."""
    o = np.flatnonzero(m.has_several)
    members = m.primaries[o]
    return Groups(m.job[o], m.pool[o], m.gpus[o], members["job"], members["gpus"])


def groups_of_plan(problem: Problem, plan: Allocation) -> Groups:
    """List the secondary jobs of a plan with their primary jobs."""
    return Groups.of(problem, _list_groups_of(plan))


def _list_groups_of(plan: Allocation | Jobs) -> Iterator[Group]:
    """Yield each secondary job of a plan, or of what runs now, with its primary jobs."""
    others = other_jobs(plan.secondary)
    for g in np.flatnonzero(plan.primary >= 0).tolist():
        members = tuple((h, int(plan.gpus[h])) for h in others[g])
        yield g, int(plan.pool[g]), int(plan.gpus[g]), members
