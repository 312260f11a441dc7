"""All pairs of jobs that the rules of a round allow on the same GPUs, priced without listing them.

Two jobs may share a pool and size that is an option of both if the pool allows it, their slowdowns
are known, and both fit the memory of a GPU (performance/colocated_speed.py). One of the two, the
primary job, pays for the GPUs. The other, the secondary job, may not be bound to GPUs of its own.
The value of a pair is a sum of one term for each job. A term depends on the other job only through
its kind: its model, its memory, whether it has a guarantee, and its tenant where the pool isolates
tenants.

    value of secondary job g with primary job h = secondary_term(g, kind of h)
                                                + primary_term(h, kind of g)
    primary_term = value of h at its speed next to g - value of h alone

So the best pair of two kinds, at any prices, consists of the best job of each kind. All pairs are
priced with jobs x kinds numbers for each pool and size instead of jobs x jobs
(`Colocations.price`):

    add a pair if   reduced_h + primary_term + secondary_term > u_h + u_g

Here reduced_h is the value of the primary job's option less the prices of what it uses. u is the
cost of each job's place in a plan, that is the reduced value of its best option. A pair that is to
be added breaks the inequality of the dual, left side <= right side. Raising u until no pair breaks
it gives the bound over all pairs.

Either job may be the primary one. Only one of the two orders is priced where the order makes no
difference: neither job holds these GPUs now, and no rule of tenants, headroom or money
distinguishes the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from allocator.domain.objectives import parse_objectives
from allocator.domain.problem import Bools, Floats, Ints, Isolation, Problem, State
from allocator.options.option_table import OptionTable, find_locked_jobs, is_allowed_option
from allocator.performance.colocated_speed import colocated_speeds
from allocator.performance.footprint import SPAN
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.modes import is_plain
from allocator.performance.pauses import restart_s
from allocator.performance.table import RateTable
from allocator.valuation import build_context, option_values
from formulations.model.ragged import begins_run, ragged
from formulations.objectives import interval
from formulations.objectives.context import Offer

# one pricing pairs an option with at most KINDS kinds, and with at most MATCHES jobs of each
KINDS, MATCHES = 2, 2
EPS = 1e-9  # relative to the mean value: a pair that gains less is not added


@dataclass(frozen=True)
class PairSide:
    """The terms of one side of the pairs of kinds, those of pair k at start[k] .. start[k+1].

    Attributes
    ----------
    pair : (e,)
        Pair of kinds.
    option : (e,)
        Option of a job with GPUs of its own.
    term : (e,)
        The job's term, -inf where it may not be on this side.
    """

    start: Ints
    pair: Ints
    option: Ints
    term: Floats


@dataclass(frozen=True)
class PricedPairs:
    """All pairs at some prices.

    Attributes
    ----------
    least : (J,)
        Least increase of each job's u with which no pair breaks the inequality.
    primary, secondary : (n,)
        Options of the pairs that break it most, a few for each option.
    """

    least: Floats
    primary: Ints
    secondary: Ints


@dataclass(frozen=True)
class Colocations:
    """Pairs of kinds (K,) at the pools and sizes of a round, with the terms of their jobs.

    Attributes
    ----------
    primary, secondary : PairSide
        The two sides.
    alike : (K,)
        True where both sides are the same kind.
    either : (K,)
        True where both orders are the same pairs.
    job : (n,)
        Owner of each option.
    rank : (J,)
        Where the order makes no difference, the job of lower rank is the primary one.
    """

    primary: PairSide
    secondary: PairSide
    alike: Bools
    either: Bools
    job: Ints
    rank: Ints

    @property
    def primaries(self) -> Ints:
        """Options with GPUs of their own that may have a secondary job."""
        return np.unique(self.primary.option)

    @property
    def count(self) -> int:
        """Number of pairs of options; pairs of one kind count in both orders."""
        return int((np.diff(self.primary.start) * np.diff(self.secondary.start)).sum())

    def listed(self) -> tuple[Ints, Ints]:
        """List the options (primary, secondary) of every pair of positive value."""
        h, g = self._product(
            np.arange(len(self.alike)),
            self.primary.start[:-1],
            self.primary.start[1:],
            self.secondary.start[:-1],
            self.secondary.start[1:],
        )
        fits = (self.job[self.primary.option[h]] != self.job[self.secondary.option[g]]) & (
            self.primary.term[h] + self.secondary.term[g] > 0
        )
        return self._without_duplicates(h[fits], g[fits])

    def _product(self, k: Ints, h0: Ints, h1: Ints, g0: Ints, g1: Ints) -> tuple[Ints, Ints]:
        """Combine entries h0 .. h1 of primary jobs with entries g0 .. g1 of secondary jobs.

        All arguments are arrays (n,), one entry for each of the pairs of kinds k.
        """
        many = (h1 - h0) * (g1 - g0)
        at, i = ragged(np.zeros(len(k), np.int64), many)
        wide = (g1 - g0)[at]
        return h0[at] + i // np.maximum(wide, 1), g0[at] + i % np.maximum(wide, 1)

    def _without_duplicates(self, h: Ints, g: Ints) -> tuple[Ints, Ints]:
        """Return the options (primary, secondary) of pairs of entries, each pair once.

        Pairs that are the same in both orders count as one.
        """
        primary, secondary = self.primary.option[h], self.secondary.option[g]
        twice = self.either[self.primary.pair[h]] & (
            self.rank[self.job[primary]] > self.rank[self.job[secondary]]
        )
        primary, secondary = (
            np.where(twice, secondary, primary),
            np.where(twice, primary, secondary),
        )
        span = len(self.job) + 1
        key = np.unique(primary * span + secondary)
        return key // span, key % span

    def within(
        self, reduced: Floats, u: Floats, loss: float, most: int
    ) -> tuple[Ints, Ints, float]:
        """List the pairs that lose at most `loss` at prices at which no pair breaks the inequality.

        Returns
        -------
        primary, secondary : (k,)
            Options of the pairs.
        loss : float
            The loss that was used: smaller than asked for if there were more than `most` pairs.
        """
        over_h = self.primary.term + (reduced - u[self.job])[self.primary.option]
        over_g = self.secondary.term - u[self.job[self.secondary.option]]
        top_h, top_g = (
            np.maximum.reduceat(x, s.start[:-1])
            for x, s in ((over_h, self.primary), (over_g, self.secondary))
        )
        while True:
            h = np.flatnonzero(over_h + top_g[self.primary.pair] >= -loss)
            g = np.flatnonzero(over_g + top_h[self.secondary.pair] >= -loss)
            K = np.arange(len(self.alike))
            ends = [
                np.searchsorted(pair, K, side=side)
                for pair in (self.primary.pair[h], self.secondary.pair[g])
                for side in ("left", "right")
            ]
            if int(((ends[1] - ends[0]) * (ends[3] - ends[2])).sum()) <= 8 * most:
                i, j = self._product(K, *ends)
                i, j = h[i], g[j]
                near = over_h[i] + over_g[j] >= -loss
                near &= self.job[self.primary.option[i]] != self.job[self.secondary.option[j]]
                if int(near.sum()) <= most:
                    return *self._without_duplicates(i[near], j[near]), loss
            loss *= 0.5

    def price(self, reduced: Floats, u: Floats, add: bool = True) -> PricedPairs:
        """Price all pairs.

        Parameters
        ----------
        reduced : (n,)
            Value less prices of the options with GPUs of their own, -inf where one is excluded.
        u : (J,)
            Cost of each job's place in a plan.
        add : bool
            Whether to name pairs, or only how far u has to rise.
        """
        jobs, least, none = self.job, np.zeros(len(self.rank)), np.zeros(0, np.int64)
        if not len(self.alike):
            return PricedPairs(least, none, none)
        over_h = self.primary.term + (reduced - u[jobs])[self.primary.option]
        over_g = self.secondary.term - u[jobs[self.secondary.option]]
        eps = EPS * max(1e-300, float(np.abs(u).mean()))
        top_h, top_g = (
            np.maximum.reduceat(x, s.start[:-1])
            for x, s in ((over_h, self.primary), (over_g, self.secondary))
        )
        best = self._best_distinct_pairs(over_h, over_g, top_h, top_g)
        broken = np.flatnonzero(best > 0)
        if not len(broken):
            return PricedPairs(least, none, none)
        for k in broken[np.argsort(-best[broken], kind="stable")].tolist():
            self._raise(least, k, over_h, over_g)
        least *= 1 + 1e-12
        if not add:
            return PricedPairs(least, none, none)
        is_broken = best > 0
        h = np.flatnonzero(is_broken[self.primary.pair])
        g = np.flatnonzero(is_broken[self.secondary.pair])
        pays_h = over_h[h] + top_g[self.primary.pair[h]]
        pays_g = over_g[g] + top_h[self.secondary.pair[g]]
        wanted_h, wanted_g = self._select_violating_entries(
            h[pays_h > eps], pays_h[pays_h > eps], g[pays_g > eps], pays_g[pays_g > eps]
        )
        return PricedPairs(least, *self._match_entries(wanted_h, wanted_g, over_h, over_g, eps))

    def _raise(self, least: Floats, k: int, over_h: Floats, over_g: Floats) -> None:
        """Raise u by as little as one pair of kinds needs.

        For a price t of the right to a secondary job, u rises by the part of a primary job's entry
        above -t, and by the part of a secondary job's entry above t. The t of least total rise is
        used.
        """
        h = slice(*self.primary.start[k : k + 2].tolist())
        g = slice(*self.secondary.start[k : k + 2].tolist())
        job_h, job_g = self.job[self.primary.option[h]], self.job[self.secondary.option[g]]
        a, b = over_h[h] - least[job_h], over_g[g] - least[job_g]
        pays_a, pays_b = a + b.max() > 0, b + a.max() > 0
        if not pays_a.any():
            return
        a, b, job_h, job_g = a[pays_a], b[pays_b], job_h[pays_a], job_g[pays_b]
        t = np.append(b, -a)
        cost = np.maximum(0.0, a + t[:, None]).sum(axis=1) + np.maximum(0.0, b - t[:, None]).sum(
            axis=1
        )
        at = t[int(cost.argmin())]
        np.maximum.at(least, job_h, least[job_h] + np.maximum(0.0, a + at))
        np.maximum.at(least, job_g, least[job_g] + np.maximum(0.0, b - at))

    def _best_distinct_pairs(
        self, over_h: Floats, over_g: Floats, top_h: Floats, top_g: Floats
    ) -> Floats:
        """Return the value of the best pair of two different jobs for each pair of kinds, (K,)."""
        best: Floats = top_h + top_g
        for k in np.flatnonzero(self.alike & (best > 0)).tolist():
            a = over_h[self.primary.start[k] : self.primary.start[k + 1]]
            b = over_g[self.secondary.start[k] : self.secondary.start[k + 1]]
            i, j = int(a.argmax()), int(b.argmax())
            # both sides have the same options here, so one job may be best on both
            if i == j:
                best[k] = max(
                    a[i] + np.delete(b, i).max(initial=-math.inf),
                    np.delete(a, i).max(initial=-math.inf) + b[i],
                )
        return best

    def _select_violating_entries(
        self, h: Ints, pays_h: Floats, g: Ints, pays_g: Floats
    ) -> tuple[Ints, Ints]:
        """Select the entries that break the inequality most, at most KINDS for each option."""
        out = []
        for side, at, pays in ((self.primary, h, pays_h), (self.secondary, g, pays_g)):
            option = side.option[at]
            order = np.lexsort((-pays, option))
            first = np.flatnonzero(begins_run(option[order]))
            rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
            out.append(at[order[rank < KINDS]])
        return out[0], out[1]

    def _match_entries(
        self, h: Ints, g: Ints, over_h: Floats, over_g: Floats, eps: float
    ) -> tuple[Ints, Ints]:
        """Match the wanted entries of both sides by rank: the first with the first, and so on.

        The sum over a set of primary jobs and a set of secondary jobs of two kinds does not depend
        on how they are matched.
        """
        K = len(self.alike)
        start = []
        for side, at, over in ((self.primary, h, over_h), (self.secondary, g, over_g)):
            order = np.lexsort((-over[at], side.pair[at]))
            at[:] = at[order]
            start.append(np.searchsorted(side.pair[at], np.arange(K + 1)))
        rank_h = np.arange(len(h)) - start[0][self.primary.pair[h]]
        found = []
        for shift in range(-(MATCHES // 2), MATCHES - MATCHES // 2):
            k = self.primary.pair[h]
            other = start[1][k] + rank_h + shift
            inside = (other >= start[1][k]) & (other < start[1][k + 1])
            one, two = h[inside], g[other[inside]]
            gains = over_h[one] + over_g[two] > eps
            found.append((one[gains], two[gains]))
        one, two = (np.concatenate(part) for part in zip(*found, strict=True))
        apart = self.job[self.primary.option[one]] != self.job[self.secondary.option[two]]
        return self._without_duplicates(one[apart], two[apart])


def find_colocations(problem: Problem, m: OptionTable, table: RateTable) -> Colocations:
    """Find the pairs of a round; the table m has only options with GPUs of their own."""
    o, start, place, tenant, holds = _kinds(problem, m)
    first = o[start[:-1]] if len(o) else o
    u, v = ragged(
        np.searchsorted(place, place, side="left"), np.searchsorted(place, place, side="right")
    )
    same = tenant[u] == tenant[v]
    u, v = u[same], v[same]
    job, pool, gpus = m.job[first], m.pool[first], m.gpus[first]
    found = colocated_speeds(problem, job[u], job[v], pool[u], gpus[u])
    # index of the same two kinds in the other order
    back = np.searchsorted(u * len(place) + v, v * len(place) + u)
    mirrored = (found.rate_primary == found.rate_secondary[back]) & (
        found.rate_secondary == found.rate_primary[back]
    )
    either = mirrored & is_primary_interchangeable(problem) & ~holds[u] & ~holds[v]
    can_be_secondary = (
        np.maximum.reduceat(_can_be_secondary(problem, m, o).astype(np.int64), start[:-1]) > 0
        if len(o)
        else holds
    )
    use = np.flatnonzero(
        found.possible
        & can_be_secondary[v]
        & ~(either & (u > v))
        & ~((u == v) & (np.diff(start)[u] == 1))
    )
    u, v, found, either = u[use], v[use], found.take(use), either[use]
    hp, hi = ragged(start[u], start[u + 1])
    gp, gi = ragged(start[v], start[v + 1])
    primary, secondary = o[hi], o[gi]
    running = problem.jobs.state == State.RUNNING
    still = np.zeros(len(m), dtype=bool)
    pause = interval.pause_s(
        still,
        running[m.job],
        restart_s(problem, m.job, m.pool, m.gpus),
        problem.pools.startup_s[m.pool],
    )
    term_h = (
        _values_at_speed(
            problem, m, table, primary, found.rate_primary[hp], m.pause_s, m.keep, True
        )
        - m.value[primary]
    )
    term_g = _values_at_speed(
        problem, m, table, secondary, found.rate_secondary[gp], pause, still, False
    )
    term_g[~_can_be_secondary(problem, m, secondary)] = -np.inf
    K = len(u)
    return Colocations(
        PairSide(np.searchsorted(hp, np.arange(K + 1)), hp, primary, term_h),
        PairSide(np.searchsorted(gp, np.arange(K + 1)), gp, secondary, term_g),
        u == v,
        either,
        m.job,
        _ranks(problem),
    )


def _kinds(problem: Problem, m: OptionTable) -> tuple[Ints, Ints, Ints, Ints, Bools]:
    """Group the options that may be shared by kind.

    Returns
    -------
    option : (k,)
        Options, kind by kind.
    start : (C+1,)
        First option of each kind.
    place, tenant, holds : (C,)
        Pool and size, tenant (-1 = any), and whether the jobs of the kind hold these GPUs now.
    """
    jobs, pools = problem.jobs, problem.pools
    use = MeasuredSlowdowns.of(problem).known(len(problem.models))[jobs.model[m.job]] & (m.rate > 0)
    use &= (pools.memory_gb[m.pool] > 0) & (pools.sharing[m.pool] != Isolation.NONE)
    use &= is_plain(problem, m.job, m.pool)
    # of several shapes of one size, a pair uses the one that `option_at` finds
    use &= (m.nodes == 0) | m.keep
    use[1:] &= (np.diff(m.job) != 0) | (np.diff(m.pool) != 0) | (np.diff(m.gpus) != 0)
    o = np.flatnonzero(use)
    job, pool = m.job[o], m.pool[o]
    place = pool * SPAN + m.gpus[o]
    memory = np.unique(jobs.memory_gb[job], return_inverse=True)[1].reshape(-1)
    tenant = np.where(pools.sharing[pool] == Isolation.TENANT, jobs.tenant[job], -1)
    # a job that holds these GPUs now pauses less there (secondary_jobs.py): a separate kind
    holds = m.keep[o].astype(np.int64)
    counts = (pools.sharing == Isolation.BEST_EFFORT) | np.isfinite(pools.isolation)
    free = (counts[pool] & jobs.best_effort[job]).astype(np.int64)
    order = np.lexsort((free, memory, holds, tenant, jobs.model[job], place))
    kinds = np.stack([place, jobs.model[job], tenant, holds, memory, free])[:, order]
    first = np.flatnonzero(begins_run(*kinds))
    return o[order], np.append(first, len(o)), kinds[0, first], kinds[2, first], kinds[3, first] > 0


def _ranks(problem: Problem) -> Ints:
    """Return the rank of each job by time of submission, then by name, (J,)."""
    rank = np.empty(len(problem.jobs), dtype=np.int64)
    rank[np.lexsort((np.array(problem.jobs.job_id, dtype=str), problem.jobs.submitted_s))] = (
        np.arange(len(rank))
    )
    return rank


def is_primary_interchangeable(problem: Problem) -> bool:
    """Return whether it makes no difference which of two colocated jobs pays for the GPUs.

    Pauses are not compared.
    """
    tenants = problem.tenants
    limited = (
        np.isfinite(tenants.max_gpus)
        | np.isfinite(tenants.budget_per_hour)
        | (tenants.guaranteed_gpus > 0)
    )
    limited |= np.isfinite(tenants.exposure)
    counted = any(o.counts_dollars for o in parse_objectives(problem.objective))
    money = problem.money.any() or counted
    return not (limited.any() or len(problem.quotas) or money or len(problem.interactive))


def _can_be_secondary(problem: Problem, m: OptionTable, o: Ints) -> Bools:
    """Find the options whose jobs may be secondary jobs there, (k,).

    A job that is bound to what it holds may not.
    """
    return ~find_locked_jobs(problem)[m.job[o]] & is_allowed_option(
        problem, m.job[o], m.pool[o], m.gpus[o]
    )


def _values_at_speed(
    problem: Problem,
    m: OptionTable,
    table: RateTable,
    o: Ints,
    rate: Floats,
    pause: Floats,
    keep: Bools,
    pays_for_gpus: bool,
) -> Floats:
    """Return the values of the options o at other speeds, (k,)."""
    order = np.argsort(m.job[o], kind="stable")
    at = o[order]
    start = np.searchsorted(m.job[at], np.arange(len(problem.jobs) + 1))
    offer = Offer(start, m.job[at], m.pool[at], m.gpus[at], rate[order], pause[at], keep[at])
    out = np.empty(len(o))
    whole = build_context(problem, table, m.offer)
    out[order] = option_values(problem, whole.for_offer(offer, pays_for_gpus))
    return out
