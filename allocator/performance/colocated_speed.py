"""Speeds of two jobs on the same GPUs.

The *primary job* holds the GPUs, and the *secondary job* runs on them as the second one. A pair is
possible where the pool allows the two (isolation), their slowdowns are known (interference.py), and
a way of each fits the memory of the GPU together (Footprints). Of the ways that fit, the pair
takes the one that loses least speed, as the sum of both relative speeds. Of equal ways it takes the
one in which the primary job is faster, then the one that needs less memory.

At (model, gpu_type, gpus) every row of rates.csv with memory_gb is a way. Without such a row,
memory_gb of the job counts at its usual speed. Without that there is no way, because GPUs are not
shared on a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Isolation, Problem
from allocator.domain.schema.columns import MOST_GPUS
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.table import RateTable
from formulations.columns import Columns
from formulations.model.linear import begins_run, ragged

SPAN = MOST_GPUS + 1


@dataclass(frozen=True)
class Footprints:
    """The ways to run jobs at n places; arrays (W,).

    Attributes
    ----------
    start : (n + 1,)
        Those of place i are start[i] to start[i + 1].
    rate : (W,)
        Work per second alone.
    memory_gb : (W,)
        Memory on each GPU, GB.
    row : (W,)
        Row of rates.csv, -1 = none.
    accumulation : (W,)
        Passes per step, 0 = unknown.
    """

    start: Ints
    rate: Floats
    memory_gb: Floats
    row: Ints
    accumulation: Ints


def find_footprints(
    problem: Problem,
    model: Ints,
    pool: Ints,
    gpus: Ints,
    rate: Floats,
    row: Ints,
    memory_gb: Floats,
) -> Footprints:
    """Return the ways of n places, arrays (n,).

    rate and row are the usual speed and its row of rates.csv; memory_gb is that of the job, nan =
    unknown.
    """
    rates = problem.rates
    types = len(problem.gpu_types)
    measured = np.flatnonzero((rates.memory_gb > 0) & (rates.rate > 0) & (rates.nodes == 0))
    key = (rates.model[measured] * types + rates.gpu_type[measured]) * SPAN + rates.gpus[measured]
    order = np.argsort(key, kind="stable")
    wanted = (model * types + problem.pools.gpu_type[pool]) * SPAN + gpus
    first = np.searchsorted(key[order], wanted, side="left")
    count = np.searchsorted(key[order], wanted, side="right") - first
    alone = (count == 0) & (memory_gb > 0)
    start = np.append(0, np.cumsum(np.where(alone, 1, count)))
    owner = np.repeat(np.arange(len(model)), np.diff(start))
    place = first[owner] + np.arange(len(owner)) - start[owner]
    own = alone[owner]
    which = np.where(own, row[owner], np.append(measured[order], -1)[np.where(own, -1, place)])
    speed = rate[owner].copy()
    listed = np.flatnonzero(~own)
    speed[listed] = rates.over(which[listed], problem.pools.link_gb_s[pool[owner[listed]]])
    return Footprints(
        start,
        speed,
        np.where(own, memory_gb[owner], np.append(rates.memory_gb, np.nan)[which]),
        which,
        np.maximum(np.append(rates.accumulation, -1)[which], 0),
    )


MEMORY_TOLERANCE = 1e-12  # relative: memory may be over by the rounding of a sum


@dataclass(frozen=True)
class ColocatedSpeeds(Columns):
    """Speeds of pairs, arrays (n,).

    Attributes
    ----------
    rate_primary, rate_secondary : (n,)
        Work per second, 0 where the pair is impossible.
    row_primary, row_secondary : (n,)
        Rows of rates.csv, -1 = none.
    accumulation_primary, accumulation_secondary : (n,)
        Passes per step, 0 = unknown.
    memory_gb : (n,)
        Memory of both jobs on a GPU, GB, nan where impossible.
    alone_secondary, slowdown_secondary, memory_secondary : (n,)
        Of the way of the secondary job: its work per second alone, its slowdown, and its memory on
        a GPU, GB; nan where impossible.
    """

    rate_primary: Floats
    rate_secondary: Floats
    row_primary: Ints
    row_secondary: Ints
    accumulation_primary: Ints
    accumulation_secondary: Ints
    memory_gb: Floats
    alone_secondary: Floats
    slowdown_secondary: Floats
    memory_secondary: Floats

    def __len__(self) -> int:
        return len(self.rate_primary)

    @property
    def possible(self) -> Bools:
        """Whether the two jobs can share GPUs at all, (n,)."""
        return self.rate_primary > 0

    def mirrors(self, other: ColocatedSpeeds) -> Bools:
        """Return whether both jobs are as fast as in `other`, where they change places, (n,)."""
        first = self.rate_primary == other.rate_secondary
        return np.asarray(first & (self.rate_secondary == other.rate_primary))


def can_pair(problem: Problem, job: Ints, pool: Ints) -> Bools:
    """Return whether jobs can be in a pair in pools, (n,).

    They list no modes, take whole GPUs there and lie anywhere, and the pool has no stragglers.
    """
    plain = (problem.jobs.modes[job] < 0) & (problem.pools.straggler_cv[pool] == 0)
    plain &= (problem.jobs.gpus_per_pod[job] == 1) | ~problem.has_nodes[pool]
    return np.asarray(plain & (problem.gpu_share(job, pool) == 1))


def may_colocate(problem: Problem, primary: Ints, secondary: Ints, pool: Ints) -> Bools:
    """Return whether the two jobs may share GPUs, (n,): can_pair and pools.csv `sharing`."""
    kind, tenant = problem.pools.sharing[pool], problem.jobs.tenant
    may: Bools = (kind == Isolation.ANY) | (
        (kind == Isolation.TENANT) & (tenant[primary] == tenant[secondary])
    )
    may |= (kind == Isolation.BEST_EFFORT) & problem.jobs.best_effort[secondary]
    return may & can_pair(problem, primary, pool) & can_pair(problem, secondary, pool)


def isolate(
    problem: Problem, job: Ints, other: Ints, pool: Ints, slowdown: Floats, slowdown_other: Floats
) -> tuple[Floats, Floats]:
    """Return the slowdowns of jobs and of the others on their GPUs where pools isolate them, (n,).

    A guaranteed job next to a best-effort one is slowed down by `isolation` at most. What that
    saves of its speed the best-effort job loses, so that both together do as much as without; nan
    where nothing is left for it.
    """
    most = problem.pools.isolation[pool]
    free, free_other = problem.jobs.best_effort[job], problem.jobs.best_effort[other]
    protects = ~free & free_other & (slowdown > most)
    protects_other = free & ~free_other & (slowdown_other > most)
    with np.errstate(all="ignore"):
        left = 1 / slowdown_other - (1 / most - 1 / slowdown)
        left_other = 1 / slowdown - (1 / most - 1 / slowdown_other)
        pays = np.where(left > 0, 1 / left, np.nan)
        pays_other = np.where(left_other > 0, 1 / left_other, np.nan)
    return (
        np.select([protects, protects_other], [most, pays_other], slowdown),
        np.select([protects, protects_other], [pays, most], slowdown_other),
    )


def colocated_speeds(
    problem: Problem,
    primary: Ints,
    secondary: Ints,
    pool: Ints,
    gpus: Ints,
    gpus_secondary: Ints | None = None,
) -> ColocatedSpeeds:
    """Return the speeds of pairs of jobs on the same GPUs.

    Parameters
    ----------
    primary, secondary : (n,)
        The jobs of each pair.
    pool, gpus : (n,)
        Where they run.
    gpus_secondary : (n,), optional
        GPUs of the secondary job, if it has more than its primary job. Slowdowns are those at the
        GPUs that the two share.
    """
    jobs, pools, n = problem.jobs, problem.pools, len(primary)
    both, kind = np.concatenate([primary, secondary]), pools.gpu_type[pool]
    model, places = jobs.model[both], np.tile(pool, 2)
    sizes = np.append(gpus, gpus if gpus_secondary is None else gpus_secondary)
    usual, row = RateTable.of(problem).rate_in_pools(pools, model, places, sizes)
    w = find_footprints(problem, model, places, sizes, usual, row, jobs.memory_gb[both])
    xi = MeasuredSlowdowns.of(problem).slowdown(model[:n], model[n:], kind, gpus)
    xi_primary, xi_secondary = isolate(problem, primary, secondary, pool, *xi)
    count = np.diff(w.start)
    at = np.flatnonzero(
        may_colocate(problem, primary, secondary, pool)
        & ~np.isnan(xi_primary)
        & ~np.isnan(xi_secondary)
        & (usual[:n] > 0)
        & (usual[n:] > 0)
    )
    # every way of the first job with every way of the second
    pair, k = ragged(np.zeros(len(at), np.int64), count[at] * count[n + at])
    pair = at[pair]
    i, j = w.start[pair] + k // count[n + pair], w.start[n + pair] + k % count[n + pair]
    memory = w.memory_gb[i] + w.memory_gb[j]
    fits = memory <= pools.memory_gb[pool[pair]] * (1 + MEMORY_TOLERANCE)
    pair, i, j, memory = pair[fits], i[fits], j[fits], memory[fits]
    slow_primary = xi_primary[pair] * usual[pair] / w.rate[i]
    slow_secondary = xi_secondary[pair] * usual[n + pair] / w.rate[j]
    # rounded, so that the last bit does not decide between equal speeds
    speed = np.round(1.0 / slow_primary + 1.0 / slow_secondary, 12)
    order = np.lexsort((memory, slow_primary, -speed, pair))
    best = order[begins_run(pair[order])]
    pair, i, j = pair[best], i[best], j[best]
    zeros, none = np.zeros(n, np.int64), np.full(n, -1)
    out = ColocatedSpeeds(
        np.zeros(n),
        np.zeros(n),
        none,
        none.copy(),
        zeros,
        zeros.copy(),
        *(np.full(n, np.nan) for _ in range(4)),
    )
    out.rate_primary[pair] = w.rate[i] / xi_primary[pair]
    out.rate_secondary[pair] = w.rate[j] / xi_secondary[pair]
    out.row_primary[pair], out.row_secondary[pair] = w.row[i], w.row[j]
    out.accumulation_primary[pair] = w.accumulation[i]
    out.accumulation_secondary[pair] = w.accumulation[j]
    out.memory_gb[pair] = memory[best]
    out.alone_secondary[pair], out.memory_secondary[pair] = w.rate[j], w.memory_gb[j]
    out.slowdown_secondary[pair] = xi_secondary[pair]
    return out


@dataclass(frozen=True)
class SpeedsWithSeveral:
    """Speeds of secondary jobs with several primary jobs, or with GPUs besides theirs, arrays (k,).

    Attributes
    ----------
    rate, row : (k,)
        Work per second of the secondary job, 0 where it can not run so, and its row of rates.csv.
    pairs : ColocatedSpeeds
        The pairs with each primary job, of which the sides of the primary jobs hold.
    """

    rate: Floats
    row: Ints
    pairs: ColocatedSpeeds


def speeds_with_several(
    problem: Problem,
    group: Ints,
    primary: Ints,
    secondary: Ints,
    pool: Ints,
    gpus: Ints,
    gpus_secondary: Ints,
) -> SpeedsWithSeveral:
    """Return the speed of secondary jobs that run on the GPUs of several primary jobs.

    The slowest of its GPUs sets the speed of a job. It computes in as many passes as the pair needs
    in which it has least memory, because all of its GPUs compute alike. A primary job is slowed by
    its pair alone.

    Parameters
    ----------
    group : (n,)
        Numbers 0 to k - 1, ascending, of the secondary job's options that pairs belong to.
    primary, secondary, pool, gpus, gpus_secondary : (n,)
        The pairs, with the GPUs of the primary and of the secondary job.
    """
    pairs = colocated_speeds(problem, primary, secondary, pool, gpus, gpus_secondary)
    count = int(group[-1]) + 1 if len(group) else 0
    order = np.lexsort((pairs.row_secondary, pairs.memory_secondary, group))
    least = order[begins_run(group[order])]
    slowest = np.ones(count)
    np.maximum.at(slowest, group, np.nan_to_num(pairs.slowdown_secondary, nan=np.inf))
    possible = np.bincount(group, ~pairs.possible, count) == 0
    rate = np.where(possible, np.nan_to_num(pairs.alone_secondary[least]) / slowest, 0.0)
    return SpeedsWithSeveral(rate, pairs.row_secondary[least], pairs)
