"""All pairs of jobs that the rules of a round allow on the same GPUs, priced without listing them.

Two jobs may share a pool and size that is an option of both if the pool allows it, their slowdowns
are known, and both fit the memory of a GPU (performance/colocated_speed.py). One of the two, the
primary job, pays for the GPUs. The other, the secondary job, may not be bound to GPUs of its own.
The value of a pair is a sum of one term for each job. A term depends on the other job only through
its kind: its model, its memory, whether it has a guarantee, and its tenant where the pool isolates
tenants. Kinds that no speed tells apart count as one.

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

import heapq
import math
from dataclasses import dataclass

import numpy as np

from allocator.domain.objectives import parse_objectives
from allocator.domain.problem import Bools, Floats, Ints, Isolation, Problem, State
from allocator.options.option_table import (
    OptionTable,
    find_locked_jobs,
    is_allowed_option,
)
from allocator.performance.colocated_speed import SPAN, ColocatedSpeeds, can_pair, colocated_speeds
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.lost_time import number_rows, restart_s
from allocator.valuation import build_context, option_values
from formulations.model.linear import ragged, starts
from formulations.objectives import context
from formulations.objectives.context import Offer

HALVINGS = 40  # of a loss within which there are too many pairs


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
    right : (K,)
        Price of the right to a secondary job of the pairs of kinds that caused it, nan for others.
    """

    least: Floats
    right: Floats


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

    def _over(self, reduced: Floats, u: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return by how much entries exceed the u of their job, and the most of each pair of kinds.

        Entries (e,) of primary jobs, of secondary jobs, and the most (K,) of either.
        """
        over_h = self.primary.term + (reduced - u[self.job])[self.primary.option]
        over_g = self.secondary.term - u[self.job[self.secondary.option]]
        top_h, top_g = (
            np.maximum.reduceat(over, side.start[:-1])
            for over, side in ((over_h, self.primary), (over_g, self.secondary))
        )
        return over_h, over_g, top_h, top_g

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
        over_h, over_g, top_h, top_g = self._over(reduced, u)
        K = np.arange(len(self.alike))
        for _ in range(HALVINGS):
            h = np.flatnonzero(over_h + top_g[self.primary.pair] >= -loss)
            g = np.flatnonzero(over_g + top_h[self.secondary.pair] >= -loss)
            ends = [
                np.searchsorted(pair, K, side=side)
                for pair in (self.primary.pair[h], self.secondary.pair[g])
                for side in ("left", "right")
            ]
            if int(((ends[1] - ends[0]) * (ends[3] - ends[2])).sum()) <= 8 * most:
                break
            loss *= 0.5
        i, j = self._product(K, *ends)
        i, j = h[i], g[j]
        lost = -over_h[i] - over_g[j]
        near = lost <= loss
        near &= self.job[self.primary.option[i]] != self.job[self.secondary.option[j]]
        i, j, lost = i[near], j[near], lost[near]
        if len(lost) > most:
            order = np.argpartition(lost, most)
            loss = max(0.0, float(lost[order[most]]))
            i, j = i[order[:most]], j[order[:most]]
        return *self._without_duplicates(i, j), loss

    def match(self, reduced: Floats, u: Floats) -> tuple[Ints, Ints]:
        """Match jobs by descending gain, each at most once, and return the options of the pairs.

        The gain is the reduced value of the pair less the u of both jobs. Parameters are those of
        `price`.
        """
        over_h, over_g, top_h, top_g = self._over(reduced, u)
        sides = []
        for side, over, other in (
            (self.primary, over_h, top_g),
            (self.secondary, over_g, top_h),
        ):
            at = np.flatnonzero(over + other[side.pair] > 0)
            at = at[np.lexsort((-over[at], side.pair[at]))]
            begin = np.searchsorted(side.pair[at], np.arange(len(self.alike) + 1)).tolist()
            sides.append((begin, over[at].tolist(), side.option[at].tolist()))
        (begin_h, gain_h, option_h), (begin_g, gain_g, option_g) = sides
        job, free = self.job.tolist(), [True] * len(self.rank)
        heap = [(-math.inf, k, *at) for k, at in enumerate(zip(begin_h, begin_g, strict=True))]
        matched = []
        while heap:
            loss, k, h, g = heapq.heappop(heap)
            if k + 1 == len(begin_h):
                continue
            while h < begin_h[k + 1] and not free[job[option_h[h]]]:
                h += 1
            while (
                h < begin_h[k + 1]
                and g < begin_g[k + 1]
                and (not free[job[option_g[g]]] or job[option_g[g]] == job[option_h[h]])
            ):
                g += 1
            if h == begin_h[k + 1] or g == begin_g[k + 1] or gain_h[h] + gain_g[g] <= 0:
                continue
            if -gain_h[h] - gain_g[g] <= loss:
                free[job[option_h[h]]] = free[job[option_g[g]]] = False
                matched.append((option_h[h], option_g[g]))
            heapq.heappush(heap, (-gain_h[h] - gain_g[g], k, h, g))
        primary, secondary = np.array(matched, np.int64).reshape(-1, 2).T
        return primary, secondary

    def price(self, reduced: Floats, u: Floats) -> PricedPairs:
        """Price all pairs.

        Parameters
        ----------
        reduced : (n,)
            Value less prices of the options with GPUs of their own, -inf where one is excluded.
        u : (J,)
            Cost of each job's place in a plan.
        """
        least, right = np.zeros(len(self.rank)), np.full(len(self.alike), np.nan)
        if not len(self.alike):
            return PricedPairs(least, right)
        over_h, over_g, top_h, top_g = self._over(reduced, u)
        best = self._best_distinct_pairs(over_h, over_g, top_h, top_g)
        broken = np.flatnonzero(best > 0)
        for k in broken[np.argsort(-best[broken], kind="stable")].tolist():
            right[k] = self._raise(least, k, over_h, over_g)
        return PricedPairs(least * (1 + 1e-12), right)

    def at_rights(self, reduced: Floats, u: Floats, right: Floats) -> Floats:
        """Return by how much each job's u has to rise at prices t of some pairs of kinds, (J,).

        A job is primary or secondary in such a pair where that is best for it. `right` (K,) is nan
        for pairs of kinds whose price is not known; other parameters are those of `price`.
        """
        out = np.zeros(len(self.rank))
        for side, sign in ((self.primary, 1.0), (self.secondary, -1.0)):
            e = ragged(*(side.start[np.flatnonzero(~np.isnan(right)) + i] for i in (0, 1)))[1]
            gain = side.term[e] + sign * right[side.pair[e]] - u[self.job[side.option[e]]]
            if side is self.primary:
                gain += reduced[side.option[e]]
            np.maximum.at(out, self.job[side.option[e]], gain)
        return out

    def _raise(self, least: Floats, k: int, over_h: Floats, over_g: Floats) -> float:
        """Raise u by as little as one pair of kinds needs, and return its price t, nan if none.

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
            return math.nan
        a, b, job_h, job_g = a[pays_a], b[pays_b], job_h[pays_a], job_g[pays_b]
        t = np.append(b, -a)
        cost = np.maximum(0.0, a + t[:, None]).sum(axis=1) + np.maximum(0.0, b - t[:, None]).sum(
            axis=1
        )
        at = float(t[int(cost.argmin())])
        np.maximum.at(least, job_h, least[job_h] + np.maximum(0.0, a + at))
        np.maximum.at(least, job_g, least[job_g] + np.maximum(0.0, b - at))
        return at

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


def find_colocations(problem: Problem, m: OptionTable) -> Colocations:
    """Find the pairs of a round; the table m has only options with GPUs of their own."""
    o, start, u, v, speeds = _find_kinds(problem, m)
    # index of the same two kinds in the other order
    back = np.searchsorted(u * len(start) + v, v * len(start) + u)
    mirrored = speeds.mirrors(speeds.take(back))
    holds, can_be_secondary = (
        np.logical_or.reduceat(of_option, start[:-1]) if len(o) else of_option
        for of_option in (m.keep[o], _can_be_secondary(problem, m, o))
    )
    # a job that holds these GPUs now pauses less there (secondary_jobs.py)
    either = mirrored & is_primary_interchangeable(problem) & ~holds[u] & ~holds[v]
    use = np.flatnonzero(
        speeds.possible
        & can_be_secondary[v]
        & ~(either & (u > v))
        & ~((u == v) & (np.diff(start)[u] == 1))
    )
    u, v, speeds, either = u[use], v[use], speeds.take(use), either[use]
    running = problem.jobs.state == State.RUNNING
    still = np.zeros(len(m), bool)
    pause = context.pause_s(
        still,
        running[m.job],
        restart_s(problem, m.job, m.pool, m.gpus),
        problem.pools.startup_s[m.pool],
    )
    whole = build_context(problem, m.offer)

    def value_side(kind: Ints, rate: Floats, pause: Floats, keep: Bools, pays: bool) -> PairSide:
        # the jobs of a kind have the same terms next to all kinds that slow them down alike
        owner = number_rows(kind, rate)
        first = np.unique(owner, return_index=True)[1]
        each, at = ragged(start[kind[first]], start[kind[first] + 1])
        a = o[at]
        offer = Offer(m.job[a], m.pool[a], m.gpus[a], rate[first][each], pause[a], keep[a])
        term = option_values(problem, whole.for_offer(offer, pays))
        begin = np.searchsorted(each, owner)
        pair, entry = ragged(begin, begin + np.diff(start)[kind])
        return PairSide(starts(pair, len(kind)), pair, o[at][entry], term[entry])

    primary = value_side(u, speeds.rate_primary, m.pause_s, m.keep, True)
    secondary = value_side(v, speeds.rate_secondary, pause, still, False)
    primary.term[:] -= m.value[primary.option]
    secondary.term[~_can_be_secondary(problem, m, secondary.option)] = -np.inf
    return Colocations(primary, secondary, u == v, either, m.job, _ranks(problem))


def _find_kinds(problem: Problem, m: OptionTable) -> tuple[Ints, Ints, Ints, Ints, ColocatedSpeeds]:
    """Group the options that may be shared by kind.

    Jobs of different memory or models whose speeds do not differ next to any job are one kind.

    Returns
    -------
    option : (k,)
        Options, kind by kind.
    start : (C+1,)
        First option of each kind.
    primary, secondary : (P,)
        All ordered pairs of kinds of one pool and size, by the first kind, then by the second.
    speeds : ColocatedSpeeds
        Their speeds, (P,).
    """
    jobs, pools = problem.jobs, problem.pools
    use = MeasuredSlowdowns.of(problem).known(len(problem.models))[jobs.model[m.job]] & (m.rate > 0)
    use &= (pools.memory_gb[m.pool] > 0) & (pools.sharing[m.pool] != Isolation.NONE)
    use &= can_pair(problem, m.job, m.pool)
    # of several shapes of one size, a pair uses the one that `OptionTable.at` finds
    use &= (m.nodes == 0) | m.keep
    use[1:] &= (np.diff(m.job) != 0) | (np.diff(m.pool) != 0) | (np.diff(m.gpus) != 0)
    o = np.flatnonzero(use)
    job, pool = m.job[o], m.pool[o]
    tenant = np.where(pools.sharing[pool] == Isolation.TENANT, jobs.tenant[job], -1)
    counts = (pools.sharing == Isolation.BEST_EFFORT) | np.isfinite(pools.isolation)
    place = number_rows(pool, m.gpus[o], tenant)
    memory = np.nan_to_num(jobs.memory_gb[job], nan=-1.0)
    # where the memory of a model was measured, that of the job does not matter (colocated_speed.py)
    rates, types = problem.rates, len(problem.gpu_types)
    is_measured = (rates.memory_gb > 0) & (rates.rate > 0) & (rates.nodes == 0)
    known = ((rates.model * types + rates.gpu_type) * SPAN + rates.gpus)[is_measured]
    here = (jobs.model[job] * types + pools.gpu_type[pool]) * SPAN + m.gpus[o]
    memory[np.isin(here, known)] = -1.0
    kind = number_rows(place, jobs.model[job], memory, counts[pool] & jobs.best_effort[job])
    first = np.unique(kind, return_index=True)[1]
    place, job, pool, gpus = place[first], job[first], pool[first], m.gpus[o[first]]
    u, v = ragged(
        np.searchsorted(place, place, side="left"), np.searchsorted(place, place, side="right")
    )
    speeds = colocated_speeds(problem, job[u], job[v], pool[u], gpus[u])
    merged = _merge_kinds(np.bincount(place), speeds)
    kind = merged[kind]
    order = np.argsort(kind, kind="stable")
    is_first = np.zeros(len(merged), bool)
    is_first[np.unique(merged, return_index=True)[1]] = True
    pairs = np.flatnonzero(is_first[u] & is_first[v])
    pairs = pairs[np.lexsort((merged[v[pairs]], merged[u[pairs]]))]
    return (
        o[order],
        starts(kind[order], int(is_first.sum())),
        merged[u[pairs]],
        merged[v[pairs]],
        speeds.take(pairs),
    )


def _merge_kinds(many: Ints, speeds: ColocatedSpeeds) -> Ints:
    """Return numbers of kinds (C,) that are the same where all speeds are.

    There are many[q] kinds at place q; `speeds` has all pairs of kinds of each place.
    """
    number, seen, at = [np.zeros(0, np.int64)], 0, 0
    for c in many.tolist():
        both = [
            x[at : at + c * c].reshape(c, c) for x in (speeds.rate_primary, speeds.rate_secondary)
        ]
        same = np.unique(np.hstack([*both, *(x.T for x in both)]), axis=0, return_inverse=True)[1]
        number.append(seen + same.reshape(-1))
        seen, at = int(number[-1].max()) + 1, at + c * c
    return np.concatenate(number)


def _ranks(problem: Problem) -> Ints:
    """Return the rank of each job by time of submission, then by name, (J,)."""
    rank = np.empty(len(problem.jobs), np.int64)
    rank[np.lexsort((np.array(problem.jobs.job_id, str), problem.jobs.submitted_s))] = np.arange(
        len(rank)
    )
    return rank


def is_primary_interchangeable(problem: Problem) -> bool:
    """Return whether it makes no difference which of two colocated jobs pays for the GPUs.

    Pauses are not compared.
    """
    tenants = problem.tenants
    limited = tenants.is_limited | (tenants.guaranteed_gpus > 0)
    counted = any(o.counts_dollars for o in parse_objectives(problem.objective))
    money = problem.money.any() or counted
    # one of the two may need more memory, which counts for the budget
    money |= problem.pools.prices_memory and np.isfinite(problem.budget_per_hour)
    kept = len(problem.interactive) + len(problem.kept) + len(problem.reservations)
    return not (limited.any() or len(problem.quotas) or money or kept)


def _can_be_secondary(problem: Problem, m: OptionTable, o: Ints) -> Bools:
    """Find the options whose jobs may be secondary jobs there, (k,).

    A job that is bound to what it holds may not.
    """
    return ~find_locked_jobs(problem)[m.job[o]] & is_allowed_option(
        problem, m.job[o], m.pool[o], m.gpus[o]
    )
