"""What every option is worth: the objective of the round, minus the money it costs where money has a price.

    value = objective(work done) - (dollar_price + dollar_price of the tenant) x dollars of the interval

Formulas: formulations/README.md. A further objective is a function here and a name in domain/columns.OBJECTIVES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Market, Problem
from allocator.options.ragged import ragged
from allocator.options.types import allowed_types
from allocator.performance.table import RateTable
from allocator.performance.useful import useful
from formulations import fallback, objectives


@dataclass(frozen=True)
class Offer:
    """Options before they have a worth: fields as in Menu, shapes (n,), start (J+1,)."""

    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    rate: Floats
    pause_s: Floats
    keep: Bools


@dataclass(frozen=True)
class Scene:
    """What objectives look at; arrays (n,)."""

    problem: Problem
    table: RateTable
    offer: Offer

    @cached_property
    def weight(self) -> Floats:
        return self.problem.weight[self.offer.job]

    @cached_property
    def remaining(self) -> Floats:
        return self.problem.jobs.remaining_work[self.offer.job]

    @cached_property
    def rate(self) -> Floats:
        """Work per second; what revocations leave of it where the objective looks at risk."""
        o = self.offer
        if self.problem.objective not in LOOK_AT_RISK:
            return o.rate
        return o.rate * useful(self.problem, o.job, o.pool, o.gpus)

    @cached_property
    def done(self) -> Floats:
        """Work of the interval, not limited by what remains."""
        return objectives.work_done(self.rate, self.offer.pause_s, self.problem.interval_s)

    @cached_property
    def busy_s(self) -> Floats:
        return objectives.busy_s(self.offer.pause_s, self.rate, self.remaining, self.problem.interval_s)

    @cached_property
    def money(self) -> Floats:
        """Worth of a dollar."""
        return self.problem.money[self.offer.job]

    @cached_property
    def cost_per_hour(self) -> Floats:
        """Dollars that are not paid anyway."""
        return self.offer.gpus * self.problem.pools.marginal_price[self.offer.pool]

    @cached_property
    def dollars(self) -> Floats:
        """Added to the bill of the interval."""
        return objectives.dollars(self.offer.keep, self.cost_per_hour, self.busy_s,
                                  self.problem.pools.min_billing_s[self.offer.pool])


def worth(problem: Problem, table: RateTable, offer: Offer) -> Floats:
    """(n,) values of the options."""
    scene = Scene(problem, table, offer)
    value = OBJECTIVES[problem.objective](scene)
    return value - scene.money * scene.dollars if scene.money.any() else value


def _progress(s: Scene) -> Floats:
    return objectives.progress(s.weight, s.done, s.remaining)


def _throughput(s: Scene) -> Floats:
    base = _requested_work(s.problem, s.table, s.offer)[s.offer.job]
    return objectives.throughput(s.weight, s.done, s.remaining, base)


def _response(s: Scene) -> Floats:
    each = objectives.work_worth(s.weight, s.money, s.cost_per_hour, s.rate)
    least = np.full(len(s.problem.jobs), np.inf)
    np.minimum.at(least, s.offer.job, each)
    return objectives.response(s.weight, np.minimum(s.done, s.remaining), s.busy_s, least[s.offer.job],
                               s.problem.interval_s)


def _cost(s: Scene) -> Floats:
    """Dollars saved against waiting: what is done now need not be bought later; see formulations/fallback.py."""
    p, o = s.problem, s.offer
    J, n, hour = len(p.jobs), len(o.job), objectives.HOUR
    done, left = np.minimum(s.done, s.remaining), p.jobs.remaining_work
    span, late = p.interval_s / hour, _late_price(s)
    market = p.pools.market[o.pool]
    firm = fallback.first_kind(o.start, market == Market.ON_DEMAND, market == Market.RESERVED)
    # questions: one for every option, then one for every job that waits
    owner = np.append(o.job, np.arange(J))
    query, f = ragged(o.start[owner], o.start[owner + 1])
    query, f = query[firm[f]], f[firm[f]]
    runs = query < n
    pause = p.pools.startup_s[o.pool[f]] + np.where(runs, p.jobs.restart_s[o.job[f]], 0.0)
    work = np.append(s.remaining - done, left)
    worst = np.append(np.where(market == Market.SPOT, s.remaining, s.remaining - done), left)
    due_h = (p.jobs.deadline_s - p.now_s - p.interval_s) / hour
    cost = fallback.cost_to_go(query, work, worst, np.where(np.isnan(due_h), np.inf, due_h)[owner],
                               s.cost_per_hour[f], s.rate[f] * hour, np.where(query == f, 0.0, pause) / hour,
                               late[owner])
    value = cost[n + o.job] - cost[:n] - s.dollars
    ahead = late[o.job] * fallback.ahead(done, _requested_work(p, s.table, o)[o.job] / span, span)
    idle = np.where(s.cost_per_hour > 0, 0.0, EARLY)            # GPUs that cost nothing may as well work
    return value + ahead * np.where(np.isnan(p.jobs.deadline_s[o.job]), 1.0, idle)


def _late_price(s: Scene) -> Floats:
    """(J,) dollars per hour of lateness: LATE times what the job's dearest option costs, times its weight."""
    dearest = np.ones(len(s.problem.jobs))
    np.maximum.at(dearest, s.offer.job, s.cost_per_hour)
    return LATE * s.problem.weight * dearest


LATE = 10.0             # an hour late is as bad as ten hours of the job's dearest option: no saving is worth it
EARLY = 1e-3            # of that: what an hour of work before its time is worth on GPUs that cost nothing
LOOK_AT_RISK = ("response", "cost")     # the contract's own objectives know nothing of revocations

OBJECTIVES: Mapping[str, Callable[[Scene], Floats]] = {
    "progress": _progress, "throughput": _throughput, "response": _response, "cost": _cost}


def _requested_work(problem: Problem, table: RateTable, offer: Offer) -> Floats:
    """(J,) work of one interval at requested_gpus on the slowest allowed type of the cluster that has a rate there.

    Where no type has one: the slowest option at the size nearest to requested_gpus, the smaller of two as near.
    """
    jobs, job, gpus, rate = problem.jobs, offer.job, offer.gpus, offer.rate
    slowest = np.full(len(jobs), np.inf)
    types = allowed_types(problem)
    for t in np.unique(problem.pools.gpu_type):
        r, _ = table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus)
        slowest = np.where(types[:, t] & (r > 0), np.fmin(slowest, r), slowest)
    missing = ~np.isfinite(slowest)
    if missing[job].any():
        distance = np.abs(gpus - jobs.requested_gpus[job])
        order = np.lexsort((rate, gpus, distance, job))
        first = order[offer.start[:-1][np.diff(offer.start) > 0]]
        first = first[missing[job[first]]]
        slowest[job[first]] = rate[first]
    return slowest * problem.interval_s
