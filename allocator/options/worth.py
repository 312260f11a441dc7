"""What every option is worth: the objective of the round, minus the money it costs where money has a price.

    value = objective(work done) - (dollar_price + dollar_price of the tenant) x dollars of the interval

Formulas: formulations/README.md. A further objective is a function here and a name in domain/columns.OBJECTIVES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.types import allowed_types
from allocator.performance.table import RateTable
from formulations import objectives


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
    def done(self) -> Floats:
        """Work of the interval, not limited by what remains."""
        return objectives.work_done(self.offer.rate, self.offer.pause_s, self.problem.interval_s)

    @cached_property
    def busy_s(self) -> Floats:
        o = self.offer
        return objectives.busy_s(o.pause_s, o.rate, self.remaining, self.problem.interval_s)

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
    each = objectives.work_worth(s.weight, s.money, s.cost_per_hour, s.offer.rate)
    least = np.full(len(s.problem.jobs), np.inf)
    np.minimum.at(least, s.offer.job, each)
    return objectives.response(s.weight, np.minimum(s.done, s.remaining), s.busy_s, least[s.offer.job],
                               s.problem.interval_s)


OBJECTIVES: Mapping[str, Callable[[Scene], Floats]] = {
    "progress": _progress, "throughput": _throughput, "response": _response}


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
