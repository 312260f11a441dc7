"""A second account of the values of plans, over arrays, written apart from formulations/objectives.

Every value that the audit states in a test is held against it (conftest.py). Letters: `pause`
seconds lost, `done = rate x max(0, interval_s - pause)`, at most the work that is left, and `busy =
min(interval_s, pause + remaining_work / rate)` seconds on GPUs.

    progress    weight x min(1, done / remaining_work)
    throughput  weight x min(done, remaining_work) / base
    base        interval_s x the slowest rate at requested_gpus among the allowed types of the
                cluster's pools that have one; if none has, the slowest of the job's options at the
                size nearest to requested_gpus, the smaller of two sizes as near

In all but these two `rate` is what revocations and checkpoints leave of the speed.

    response    V x min(done, remaining_work) + weight x (interval_s - busy) / 3600
    V           the least of (weight + money x price x gpus) / (3600 rate) over the job's options
    completion  as response, with V at least B / (3600 C)
    C           work per second if all GPUs of the pools worked on jobs like it, in each pool at the
                best work per GPU
    B           weights of the jobs with options that are not before it in the order of
                remaining_work / (C x weight)
    cost        dollars that are saved against waiting: see _saving
    tardiness   168 weight x (risk after waiting - risk after this) of jobs in time: see _risks; of
                all others as completion, B among these
    utility     weight x log(1 + 9 x) / sqrt(1 + attained_gpu_s / 600)
    x           rate x (interval_s - pause) / (interval_s x rate of the job's slowest option)
    fairness    (rho of waiting)^2 / 2 - (rho of the plan)^2 / 2, rho = t / (total_work / e)
    maxmin      ((rho of waiting / w)^p - (rho of the plan / w)^p) / p, p = ln(how many jobs have
                options) / ln 1.25, at least 2; w the largest rho of waiting among these
    makespan    (t of waiting)^2 / 2 - (t of the plan)^2 / 2, t in hours, without the age; all jobs
                count alike
    t           age + seconds until the job is done if it goes on at e after this round
    e           its rate on an equal share of all GPUs, in proportion to weight x weight of the
                tenant, among jobs with options: the slowest pool of each size, straight lines
                between sizes, in proportion below the smallest, as the largest above it
    flow        completion, with weight x (1 + delay / (0.8 x mean)) and spread pauses; without the
                delay where sizes are unknown, and with the means of done and busy if what is left
                is exponential; of jobs of guessed sizes utility, in hours
    delay       age - (total_work - remaining_work) / rate of the fastest, at least 0; age without
                options
    mean        interval_s + the mean over the jobs with options of total_work / rate of the fastest
    spread      done = rate x interval_s x max(0, 1 - pause / T); with spread_pauses in all
                objectives, except where cost asks whether a deadline can be kept
    T           the least of age / (restarts + 2) and pause + remaining_work / rate, and at least
                interval_s
    a sum       factor x objective, summed up
    ranked      v1 > v2 > v3: v1 + s (v2 + s' v3), s = 0.01 U(v1) / U(w), w what s multiplies, U(v)
                = most(v) + most(-v)
    money       dollar_price + dollar_price of the tenant; deducted from every objective: money x
                dollars
    dollars     (price + price of a GB x GB) x gpus x busy / 3600, busy at least min_billing_s where
                the plan changes something; GPUs of reserved pools are paid for anyway
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from second_objectives import RISKY

from allocator.audit.context import AuditContext
from allocator.audit.pauses import restart_s
from allocator.domain.objectives import Terms, names, parse_levels
from allocator.domain.problem import Bools, Floats, Ints, Market
from allocator.performance.pipelines import due_s
from allocator.performance.profiling import LEAST, NOISE, REACH
from allocator.performance.useful import useful_share
from allocator.valuation.prices import added_prices
from formulations.objectives import BUILT_IN

Ranks = Sequence[tuple[Terms, float]]


@dataclass(frozen=True)
class Ways:
    """Jobs with what each is given, arrays (n,); a plan has one way for a job, its options have
    all. Ascending jobs.
    """

    job: Ints
    pool: Ints
    gpus: Ints
    rate: Floats
    kept: Bools
    own: Ints  # GPUs that it holds itself, and pays for

    @classmethod
    def every(cls, s: AuditContext) -> Ways:
        """All options of all jobs."""
        job, pool, gpus, rate = s.options()
        return cls(job, pool, gpus, rate, s.is_held_option, gpus)


@dataclass(frozen=True)
class Round:
    """What ways bring this round, arrays (n,): rate as the objective sees it, work done, seconds on
    GPUs, dollars, seconds lost; the share of the round in which it works, and the work really done
    in this round, which differ from the others where pauses are spread; the seconds of the round
    after the pause."""

    rate: Floats
    done: Floats
    busy: Floats
    dollars: Floats
    working: Floats
    now: Floats
    works: Floats

    @classmethod
    def of(cls, s: AuditContext, w: Ways, name: str) -> Round:
        """As the objective of that name sees it; "" is one that looks at risks."""
        problem, jobs, pools = s.problem, s.problem.jobs, s.problem.pools
        startup, left = pools.startup_s[w.pool], jobs.remaining_work[w.job]
        pause = np.where(
            w.kept,
            0.0,
            np.where(s.running[w.job], restart_s(s, w.job, w.pool, w.gpus) + startup, startup),
        )
        rate = w.rate
        if name in ("", *RISKY):
            rate = rate * useful_share(problem, w.job, w.pool, w.gpus, w.rate)
        busy = np.minimum(problem.interval_s, pause + left / rate)
        billed = np.where(w.kept, busy, np.maximum(busy, pools.min_billing_s[w.pool]))
        held = np.full(len(rate), problem.interval_s)
        now = rate * problem.interval_s * np.clip(1.0 - pause / held, 0.0, None)
        if problem.spread_pauses or name == "flow":
            stretch = _age(s)[w.job] / (jobs.restarts[w.job] + 2)
            held = np.maximum(held, np.minimum(stretch, pause + left / rate))
        working = np.clip(1.0 - pause / held, 0.0, None)
        done = np.minimum(left, rate * problem.interval_s * working)
        dollars = added_prices(problem, w.job, w.pool, w.gpus) * w.own * billed / 3600.0
        works = np.maximum(0.0, problem.interval_s - pause)
        return cls(rate, done, busy, dollars, working, np.minimum(left, now), works)


def plan_values(s: AuditContext, rate: Floats) -> Floats:
    """Return the values (J,) of the plan, 0 where it gives nothing.

    Parameters
    ----------
    rate : (J,)
        Work per second, 0 where nothing is known.
    """
    value = np.zeros(len(s.problem.jobs))
    j = np.flatnonzero(s.has_gpus & (rate > 0))
    if not len(j):
        return value
    ranks = _ranks(s)
    plan = Ways(j, s.pool[j], s.gpus[j], rate[j], s.is_kept[j], _own_gpus(s)[j])
    alone = ~s.is_colocated[j]  # two jobs on the same GPUs do not teach how fast one is
    value[j] = _values(s, plan, ranks)
    if s.problem.settings.get("profiling", {}).get("share", 0.0) > 0:
        w = Ways.every(s)
        more = extra(s, w.job, w.pool, w.gpus, w.rate, _values(s, w, ranks))
        kind = s.problem.pools.gpu_type[plan.pool]
        value[j] += [
            more.get(key, 0.0)
            for key in zip(j.tolist(), kind.tolist(), plan.gpus.tolist(), strict=True)
        ] * alone
    return value


def _own_gpus(s: AuditContext) -> Ints:
    """GPUs of each job but for those of its primary jobs, (J,)."""
    own = s.gpus.copy()
    for h, g in enumerate(s.allocation.secondary.tolist()):
        if g >= 0:
            own[g] -= s.gpus[h]
    return own


Stated = Callable[[AuditContext, Floats], tuple[Floats, float]]


def compared(audited: Stated) -> Stated:
    """Return the audit's function of values, which then fails where this account differs."""

    def values(s: AuditContext, rate: Floats) -> tuple[Floats, float]:
        value, rounding = audited(s, rate)
        if set(names(s.problem.objective)) <= set(BUILT_IN):
            own = plan_values(s, rate)
            off = float(np.abs(value - own).max(initial=0.0))
            assert off <= 1e-9 + 1e-7 * float(np.abs(own).sum()) + rounding, (
                s.problem.objective,
                value,
                own,
            )
        return value, rounding

    return values


def useful_options(s: AuditContext, chosen: Ints | None = None) -> tuple[Ints, Ints, Ints, Floats]:
    """Return job, pool, gpus, and the rate that revocations and checkpoints leave, each (n,).

    All objectives but progress and throughput measure jobs by this rate.
    """
    job, pool, gpus, rate = s.options(chosen)
    return job, pool, gpus, rate * useful_share(s.problem, job, pool, gpus, rate)


def _values(s: AuditContext, w: Ways, ranks: Ranks) -> Floats:
    """(n,) value of the ways in the problem's objective, money deducted."""
    value = np.zeros(len(w.job))
    for terms, factor in ranks:
        value += factor * _sum(s, w, terms)
    plain = all(name not in RISKY for terms, _ in ranks for name, _ in terms)
    return np.asarray(
        value - _money(s, w.job) * Round.of(s, w, "progress" if plain else "").dollars
    )


def _ranks(s: AuditContext) -> Ranks:
    """The sums of the objective, and what a unit of each counts for: one and those after it, in
    hundredths of the one before."""
    sums, out = parse_levels(s.problem.objective), [1.0]
    if len(sums) == 1:
        return [(sums[0], 1.0)]
    every = Ways.every(s)
    last = _sum(s, every, sums[-1])
    for terms in reversed(sums[:-1]):
        own = _sum(s, every, terms)
        part = 0.01 * (_most(s, every, own) + _most(s, every, -own))
        reach = _most(s, every, last) + _most(s, every, -last)
        factor = part / reach if part > 0 and reach > 0 else 1.0
        last = own + factor * last
        out = [1.0, *(factor * f for f in out)]
    return list(zip(sums, out, strict=True))


def _sum(s: AuditContext, w: Ways, terms: Terms) -> Floats:
    """(n,) value of the ways in a weighted sum of objectives, without the money."""
    value = np.zeros(len(w.job))
    for name, factor in terms:
        value += factor * _single(s, w, name)
    return value


def _single(s: AuditContext, w: Ways, name: str) -> Floats:
    """(n,) value of the ways in one objective."""
    problem, j, r = s.problem, w.job, Round.of(s, w, name)
    counts_delay = name == "flow" and problem.guessed is None
    done, weights = r.done, delay_weights(s) if counts_delay else problem.weight
    left, weight, some = problem.jobs.remaining_work[j], weights[j], np.unique(j)
    place = np.searchsorted(some, j)
    if name == "progress":
        return np.asarray(weight * (r.done / left))
    if name == "throughput":
        return np.asarray(weight * r.done / (_base_rate(s, some)[place] * problem.interval_s))
    if name == "cost":
        return _saving(s, w, r)
    if name in ("utility", "fairness", "maxmin", "makespan"):
        return (
            utility(s, j, r.rate * r.working)
            if name == "utility"
            else shared(s, name, j, r.done, r.busy)
        )
    hours = weight * (problem.interval_s - r.busy) / 3600.0
    if name != "tardiness":
        if is_unsure(s, name):
            done = _expected(left, r.rate * problem.interval_s * r.working)
            hours = weight * (r.works - _expected(left, r.rate * r.works) / r.rate) / 3600.0
        value = np.asarray(_work_price(s, some, name, weights)[place] * done + hours)
        guessed = _guessed(s)
        if name == "flow" and guessed[some].any():
            concave = _hours_of_utility(s, weights) * utility(s, j, r.rate * r.working)
            value = np.where(guessed[j], concave, value)
        return value
    every = Ways.every(s)
    in_time = np.zeros(len(problem.jobs), dtype=bool)
    in_time[every.job[_risks(s, every)[1] < 1 - 1e-9]] = True
    waited, risk = _risks(s, w)
    return np.where(
        in_time[j],
        168.0 * weight * (waited - risk),
        _work_price(s, some, name, weights, ~in_time)[place] * done + hours,
    )


def _expected(mean: Floats, work: Floats) -> Floats:
    """Work done, if what is left is exponential and this is the most that can be done."""
    return np.asarray(mean * (1.0 - np.exp(-work / mean)))


def _guessed(s: AuditContext) -> Bools:
    """Jobs of which nothing is known but their own work, none where losses say more of some."""
    known = s.problem.guessed is None or any(x > 0 for x in s.problem.jobs.loss_work.tolist())
    return np.zeros(len(s.problem.jobs), dtype=bool) if known else np.asarray(s.problem.guessed)


def _hours_of_utility(s: AuditContext, weights: Floats) -> float:
    """Hours of `flow` for a unit of `utility`: an interval of all guessed jobs on their slowest."""
    problem, jobs = s.problem, s.problem.jobs
    guessed = _guessed(s)
    owner, _, _, speed = useful_options(s)
    chosen = np.array([i for i in np.unique(owner).tolist() if guessed[i]], dtype=np.int64)
    slowest = np.array([speed[owner == i].min() for i in chosen.tolist()])
    work = np.minimum(slowest * problem.interval_s, jobs.remaining_work[chosen])
    hours = _work_price(s, chosen, "flow", weights) * work
    return float(hours.sum() / utility(s, chosen, slowest).sum())


def _risks(s: AuditContext, w: Ways) -> tuple[Floats, Floats]:
    """(n,) risk of missing the deadline after a round of waiting, and after this one: (R / (s h))
    ** 2, at most 1.

    R: work left; s: work per second at the fastest of the job's options; h: seconds from the end of
    the round to the deadline, less restart_s. Done in this round: 0 or 1, as it is in time or late.
    No deadline: 1.
    """
    problem, jobs, r = s.problem, s.problem.jobs, Round.of(s, w, "tardiness")
    owner, _, _, rate = useful_options(s)
    fastest = np.zeros(len(jobs))
    np.maximum.at(fastest, owner, rate)
    until = due_s(problem)[w.job] - problem.now_s
    hours, left = until - problem.interval_s - jobs.restart_s[w.job], jobs.remaining_work[w.job]

    def risk(work: Floats) -> Floats:
        out = np.ones(len(work))
        able = (hours > 0) & (fastest[w.job] > 0)
        out[able] = np.minimum(1.0, work[able] / fastest[w.job][able] / hours[able]) ** 2
        return out

    after = np.where(
        left - r.done <= 1e-9 * left, np.where(r.busy > until, 1.0, 0.0), risk(left - r.done)
    )
    return np.where(np.isnan(until), 1.0, risk(left)), np.where(np.isnan(until), 1.0, after)


def _most(s: AuditContext, w: Ways, value: Floats) -> float:
    """The least over prices p >= 0 of a GPU of p x GPUs + sum over the jobs of the most that an
    option leaves, value - p x its GPUs, or 0: convex in p, so the search goes on in two thirds of
    where the least can be."""
    total, first = float(s.problem.pools.gpus.sum()), np.flatnonzero(np.diff(w.job, prepend=-1))

    def over(p: float) -> float:
        return p * total + float(
            np.maximum(0.0, np.maximum.reduceat(value - p * w.gpus, first)).sum()
        )

    low, high = 0.0, float((value / w.gpus).max(initial=0.0))
    for _ in range(90):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if over(left) <= over(right) else (left, high)
    return min(over(0.0), over(low), over(high))


def _saving(s: AuditContext, w: Ways, r: Round) -> Floats:
    """Of each way: cost of finishing after a round of waiting - dollars - cost of finishing after
    this plan.

    The cost of finishing work R in h hours is M(R, h) + L x hours too late at best; the latter only
    with a deadline. M: cheapest mix of options, L per hour too late, L/200 back per hour to spare,
    spot GPUs slower by their availability. Too late at best: on the sure options (on-demand pools;
    without any reserved ones; else all), with pauses and restart_s to spare; work that spot GPUs
    did, and what they did since a checkpoint, counts as not done. L: 10 x weight x dollars per hour
    of the dearest option, at least 10 x weight. h without a deadline: what the work takes at the
    requested size. GPUs that cost nothing: a thousandth of L x hours of requested speed on top.
    """
    problem, jobs, pools = s.problem, s.problem.jobs, s.problem.pools
    chosen, place = np.unique(w.job, return_inverse=True)
    owner, pool, gpus, rate = useful_options(s, chosen)
    rate = rate * 3600.0
    price = added_prices(problem, owner, pool, gpus) * gpus
    market, round_h = pools.market[pool], problem.interval_s / 3600.0
    asked = _base_rate(s, chosen) * 3600.0
    out, dues = np.zeros(len(w.job)), due_s(problem)
    paid = added_prices(problem, w.job, w.pool, w.gpus)
    first, last = (
        np.searchsorted(owner, chosen, side="left"),
        np.searchsorted(owner, chosen, side="right"),
    )
    for i, (j, c) in enumerate(zip(w.job.tolist(), place.reshape(-1).tolist(), strict=True)):
        mine = np.arange(first[c], last[c])
        if not len(mine):
            # no option: the plan is at fault anyway
            continue
        late, left = (
            10.0 * problem.weight[j] * max(1.0, float(price[mine].max())),
            float(jobs.remaining_work[j]),
        )
        dated = not np.isnan(dues[j])
        due = ((dues[j] - problem.now_s) / 3600.0 if dated else left / asked[c]) - round_h
        after = due + round_h - r.busy[i] / 3600.0
        mix = partial(
            _mix,
            price[mine] / rate[mine],
            1.0 / (rate[mine] * pools.availability[pool[mine]]),
            late,
        )
        out[i] = mix(left, due) - r.dollars[i] - mix(left - r.done[i], after)
        if dated:
            sure = next(
                f
                for m in (Market.ON_DEMAND, Market.RESERVED, None)
                if len(f := mine[(market[mine] == m) | (m is None)])
            )
            start, again = pools.startup_s[pool[sure]] / 3600.0, jobs.restart_s[j] / 3600.0
            stays = (pool[sure] == w.pool[i]) & (gpus[sure] == w.gpus[i])
            worst = left - r.now[i]
            if pools.market[w.pool[i]] == Market.SPOT:
                every = jobs.checkpoint_every_s[j]
                worst = min(
                    left + r.rate[i] * (problem.interval_s if np.isnan(every) else every),
                    jobs.total_work[j],
                )
            out[i] += late * (
                _over(left, rate[sure], start, due - again)
                - _over(worst, rate[sure], np.where(stays, 0.0, start + again), after - again)
            )
        if not w.own[i] or paid[i] == 0:
            out[i] += 0.001 * late * min(round_h, r.done[i] / asked[c])
    return out


def _mix(cost: Floats, takes: Floats, late: float, work: float, hours: float) -> float:
    """Least cost over single options and pairs of options that end exactly in time. cost, takes
    (k,): per work.
    """
    alone = takes * work - hours
    least = float(
        (cost * work + late * np.maximum(0.0, alone) - 0.005 * late * np.maximum(0.0, -alone)).min()
    )
    for slow, fast in itertools.product(
        np.flatnonzero(alone > 0).tolist(), np.flatnonzero(alone <= 0).tolist()
    ):
        share = (hours / work - takes[fast]) / (takes[slow] - takes[fast])
        least = min(least, work * float(share * cost[slow] + (1 - share) * cost[fast]))
    return least


def _over(work: float, rate: Floats, pause: Floats, hours: float) -> float:
    return max(0.0, float((pause + work / rate).min() if work > 0 else 0.0) - hours)


def _money(s: AuditContext, job: Ints) -> Floats:
    return np.asarray(
        s.problem.dollar_price + s.problem.tenants.dollar_price[s.problem.jobs.tenant[job]]
    )


def _work_price(
    s: AuditContext, chosen: Ints, name: str, weight: Floats, among: Bools | None = None
) -> Floats:
    """V of each chosen job, (len(chosen),), in `response` or, with B among those jobs (J,),
    `completion`. weight: (J,)."""
    job, pool, gpus, rate = useful_options(s, chosen)
    least = np.full(len(s.problem.jobs), np.inf)
    dollars = added_prices(s.problem, job, pool, gpus) * gpus
    np.minimum.at(least, job, (weight[job] + _money(s, job) * dollars) / (rate * 3600.0))
    # no option: the plan is at fault anyway
    least = np.where(np.isfinite(least[chosen]), least[chosen], 0.0)
    return (
        least
        if name == "response"
        else np.maximum(least, _queue_price(s, weight, among, is_unsure(s, name))[chosen])
    )


def is_unsure(s: AuditContext, name: str) -> bool:
    """Whether half of all weights count as behind each job: `flow` where sizes are unknown."""
    return name == "flow" and s.problem.guessed is not None


def _queue_price(s: AuditContext, weight: Floats, among: Bools | None, unsure: bool) -> Floats:
    """B / (3600 C) of every job, (J,), 0 without options and where it is not `among` (None: all)
    those that wait; with half of all weights more in B if the order is unsure.
    """
    pools, J = s.problem.pools, len(s.problem.jobs)
    job, pool, gpus, rate = useful_options(s)
    best = np.zeros((len(pools), J))
    np.maximum.at(best, (pool, job), rate / gpus)
    whole = (best * pools.gpus[:, None]).sum(axis=0)
    out = np.zeros(J)
    served = np.flatnonzero((whole > 0) & (True if among is None else among))
    key = np.round(
        np.log(s.problem.jobs.remaining_work[served] / whole[served] / weight[served]), 9
    )
    distinct, place = np.unique(key, return_inverse=True)
    behind = np.cumsum(np.bincount(place.reshape(-1), weight[served], len(distinct))[::-1])[::-1]
    more = 0.5 * weight[served].sum() if unsure else 0.0
    out[served] = (behind[place.reshape(-1)] + more) / whole[served] / 3600.0
    return out


def _base_rate(s: AuditContext, chosen: Ints) -> Floats:
    """Rate of each chosen job as requested, on the slowest type; see the top of this file. Shape
    (len(chosen),).
    """
    jobs = s.problem.jobs
    slowest = np.full(len(jobs), np.inf)
    for t in np.unique(s.problem.pools.gpu_type):
        j = chosen[s.types[chosen, t]]
        memory_gb = s.problem.pools.memory_gb[s.problem.pools.gpu_type == t].max()
        rate, _ = s.table.rate(jobs.model[j], np.full(len(j), t), jobs.requested_gpus[j], memory_gb)
        slowest[j] = np.minimum(slowest[j], np.where(rate > 0, rate, np.inf))
    without = chosen[np.isinf(slowest[chosen])]
    if len(without):
        job, _, gpus, rate = s.options(without)
        order = np.lexsort((rate, gpus, np.abs(gpus - jobs.requested_gpus[job]), job))
        first = order[np.append(True, np.diff(job[order]) > 0)[: len(order)]]
        slowest[job[first]] = rate[first]
    return slowest[chosen]


def delay_weights(s: AuditContext) -> Floats:
    """(J,) weights by delay."""
    jobs = s.problem.jobs
    job, _, _, rate = useful_options(s)
    per_unit = np.full(len(jobs), np.inf)  # seconds, of each job that has options
    np.minimum.at(per_unit, job, 1.0 / rate)
    able = np.isfinite(per_unit)
    mean = s.problem.interval_s + (jobs.total_work * per_unit)[able].sum() / max(1, int(able.sum()))
    worked = (jobs.total_work - jobs.remaining_work) * np.where(able, per_unit, 0.0)
    return np.asarray(s.problem.weight * (1.0 + np.clip(_age(s) - worked, 0.0, None) / mean / 0.8))


def _age(s: AuditContext) -> Floats:
    return np.maximum(0.0, s.problem.now_s - s.problem.jobs.submitted_s)


def utility(s: AuditContext, job: Ints, rate: Floats) -> Floats:
    """(n,) value of work per second, pauses included, of the jobs (n,). The work left plays no
    part."""
    problem, jobs = s.problem, s.problem.jobs
    owner, _, _, speed = useful_options(s, np.unique(job))
    slowest = np.full(len(jobs), np.inf)
    np.minimum.at(slowest, owner, speed)
    x = rate / slowest[job]
    lessened = np.sqrt(1.0 + jobs.attained_gpu_s[job] / 600.0)
    return np.asarray(problem.weight[job] * np.log(1.0 + 9.0 * x) / lessened)


def shared(s: AuditContext, name: str, job: Ints, done: Floats, busy: Floats) -> Floats:
    """(n,) value in `fairness`, `maxmin` or `makespan` of what is given to the jobs (n,), 0 where
    they have no option; work done, seconds on GPUs."""
    problem = s.problem
    equal = equal_rate(s, job, np.ones(len(problem.jobs)) if name == "makespan" else None)
    able = np.isfinite(equal)  # a plan for others is at fault anyway
    equal = np.where(able, equal, 1.0)
    waiting = _ratio(s, name, job, equal)
    sooner = (problem.interval_s - busy + done / equal) / _unit(s, name, job, equal)
    planned = np.maximum(0.0, waiting - sooner)  # both may be huge: their difference is known
    if name == "maxmin":
        having = np.unique(s.options()[0])
        most = _ratio(s, name, having, equal_rate(s, having)).max(initial=0.0) or 1.0
        p = max(2.0, math.log(max(1, len(having))) / math.log(1.25))
        with np.errstate(divide="ignore"):
            fallen = -np.expm1(p * np.log1p(-np.minimum(1.0, sooner / waiting)))
        gained = (waiting / most) ** p * fallen / p
    else:
        gained = sooner * (waiting + planned) / 2
    return np.where(able, gained, 0.0)


def _ratio(s: AuditContext, name: str, job: Ints, equal: Floats) -> Floats:
    """(n,) rho, in makespan hours, of jobs that wait for a round and go on at `equal`."""
    problem, jobs = s.problem, s.problem.jobs
    age = 0.0 if name == "makespan" else np.maximum(0.0, problem.now_s - jobs.submitted_s[job])
    seconds = age + problem.interval_s + jobs.remaining_work[job] / equal
    return np.asarray(seconds / _unit(s, name, job, equal))


def _unit(s: AuditContext, name: str, job: Ints, equal: Floats) -> Floats:
    """(n,) seconds of a unit of rho: those that the whole job takes at `equal`; in makespan
    hours.
    """
    whole = s.problem.jobs.total_work[job] / equal
    return np.full(len(job), 3600.0) if name == "makespan" else whole


def equal_rate(s: AuditContext, job: Ints, claim: Floats | None = None) -> Floats:
    """(n,) e of the jobs (n,), inf where one has no options. claim (J,): None = weight x weight
    of the tenant.
    """
    problem = s.problem
    owner, _, gpus, rate = useful_options(s)
    claim = problem.weight * problem.tenants.weight[problem.jobs.tenant] if claim is None else claim
    everybody, cluster = float(claim[np.unique(owner)].sum()), float(problem.pools.gpus.sum())
    equal = np.full(len(job), np.inf)
    first, last = (
        np.searchsorted(owner, job, side="left"),
        np.searchsorted(owner, job, side="right"),
    )
    for i in np.flatnonzero(last > first).tolist():
        mine = slice(int(first[i]), int(last[i]))
        equal[i] = _on(cluster * float(claim[job[i]]) / everybody, gpus[mine], rate[mine])
    return equal


def _on(share: float, gpus: Ints, rate: Floats) -> float:
    """Rate of a job with these options on `share` GPUs."""
    sizes = np.unique(gpus)
    slowest = [float(rate[gpus == k].min()) for k in sizes.tolist()]
    return float(np.interp(share, sizes, slowest)) * min(1.0, share / float(sizes[0]))


def extra(
    s: AuditContext, job: Ints, pool: Ints, gpus: Ints, rate: Floats, value: Floats
) -> dict[tuple[int, int, int], float]:
    """{(job, GPU type, GPUs): value on top}, from all options (n,) and their values without it."""
    problem, asked = s.problem, s.problem.settings.get("profiling", {})
    gpus_left = asked.get("share", 0.0) * float(problem.pools.gpus.sum())
    if gpus_left < 1.0:
        return {}
    rounds, rates = asked.get("rounds", 6.0), problem.rates
    best = {j: max(0.0, float(value[job == j].max())) for j in np.unique(job).tolist()}
    found: list[tuple[float, int, int, int, int, float]] = []
    for m, t, parameters in zip(
        problem.curves.model.tolist(),
        problem.curves.gpu_type.tolist(),
        problem.curves.parameters,
        strict=True,
    ):
        own = (problem.jobs.model[job] == m) & (problem.pools.gpu_type[pool] == t)
        error = parameters.get("error", 0.0)
        if not error > 0 or not own.any():
            continue
        seen = sorted(set(rates.gpus[(rates.model == m) & (rates.gpu_type == t)].tolist()))
        speeds: dict[int, float] = {}
        for k, r in zip(gpus[own].tolist(), rate[own].tolist(), strict=True):
            # memory of pools may allow different ones
            speeds[k] = max(r, speeds.get(k, 0.0))
        y = {k: 0.5 * math.log(k) - math.log(r) for k, r in sorted(speeds.items())}
        per_gpu = {
            k: round(_gain(y, k, 0.0 if k in seen else error * _left(k, seen, error)) / k, 12)
            for k in y
        }
        size = max(y, key=lambda k: (per_gpu[k], -k))
        gain = _gain(y, size, 0.0 if size in seen else error * _left(size, seen, error))
        if gain > LEAST:
            here = np.flatnonzero(own & (gpus == size))
            who = min(
                here.tolist(), key=lambda o: (round(best[int(job[o])] - float(value[o]), 12), o)
            )
            gained = rounds * gain * sum(best[j] for j in sorted(set(job[own].tolist())))
            found.append((-round(gained / size, 12), len(found), int(job[who]), t, size, gained))
    out = {}
    for _, _, j, t, size, gained in sorted(found):
        if size <= gpus_left:
            gpus_left -= size
            out[j, t, size] = gained
    return out


def _gain(y: dict[int, float], k: int, deviation: float) -> float:
    """E max(0, least of the others or of what k itself is believed to be - y_k) for normal y_k."""
    ranked = sorted(y, key=lambda size: (y[size], size))
    if len(ranked) < 2 or deviation <= 0:
        return 0.0
    z = (y[k] - y[ranked[0]] if k != ranked[0] else y[ranked[1]] - y[k]) / deviation
    return deviation * (
        math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * math.erfc(z / math.sqrt(2)) / 2
    )


def _left(k: int, seen: list[int], error: float) -> float:
    """Deviation at k that the sizes seen leave, as a share of the error: the conditional variance
    of a normal variable is a ratio of determinants."""
    sizes = [*seen, k]
    cover = [
        [
            math.exp(-abs(math.log2(a) - math.log2(b)) / REACH)
            + ((NOISE / error) ** 2 if a == b and a != k else 0.0)
            for a in sizes
        ]
        for b in sizes
    ]
    whole, part = (
        np.linalg.slogdet(np.array(cover))[1],
        np.linalg.slogdet(np.array(cover)[:-1, :-1])[1],
    )
    return math.sqrt(min(1.0, math.exp(float(whole - part))))
