"""What an objective looks at: the options with their speeds, the work and the money of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TypeVar

import numpy as np

from allocator.domain.columns import OBJECTIVES
from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.types import allowed_types
from allocator.performance.table import RateTable
from allocator.performance.useful import useful
from formulations import objectives

T = TypeVar("T")
# not the contract's own
LOOK_AT_RISK = tuple(n for n in OBJECTIVES if n not in ("progress", "throughput"))


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
    """What an objective looks at; arrays (n,).

    ordinary: None where the offer is all options in which jobs hold their own GPUs; else the scene
    of these, by which what concerns a job as a whole is measured (`of_jobs`). pays: whether GPUs of
    the offer are paid for.
    """

    problem: Problem
    table: RateTable
    offer: Offer
    objective: str  # one name
    ordinary: Scene | None = None
    pays: bool = True

    @property
    def whole(self) -> Scene:
        """The scene of all ordinary options."""
        return self if self.ordinary is None else self.ordinary

    @cached_property
    def fastest(self) -> Floats:
        """(J,) work per second at the job's fastest ordinary option, 0 without options."""
        if self.ordinary is not None:
            return self.ordinary.fastest
        out = np.zeros(len(self.problem.jobs))
        np.maximum.at(out, self.offer.job, self.rate)
        return out

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
        if self.objective not in LOOK_AT_RISK:
            return o.rate
        return o.rate * useful(self.problem, o.job, o.pool, o.gpus, o.rate)

    @cached_property
    def done(self) -> Floats:
        """Work of the interval, not limited by what remains."""
        return objectives.work_done(self.rate, self.offer.pause_s, self.problem.interval_s)

    @cached_property
    def busy_s(self) -> Floats:
        return objectives.busy_s(
            self.offer.pause_s, self.rate, self.remaining, self.problem.interval_s
        )

    @cached_property
    def money(self) -> Floats:
        """Worth of a dollar."""
        return self.problem.money[self.offer.job]

    @cached_property
    def cost_per_hour(self) -> Floats:
        """Dollars that are not paid anyway."""
        return self.offer.gpus * self.problem.pools.marginal_price[self.offer.pool] * self.pays

    @cached_property
    def dollars(self) -> Floats:
        """Added to the bill of the interval."""
        return objectives.dollars(
            self.offer.keep,
            self.cost_per_hour,
            self.busy_s,
            self.problem.pools.min_billing_s[self.offer.pool],
        )


def of_jobs(measure: Callable[[Scene], T]) -> Callable[[Scene], T]:
    """For what is said of jobs as a whole: measured by their ordinary options, whatever else is
    offered.
    """

    @wraps(measure)
    def by_ordinary(s: Scene) -> T:
        return measure(s.whole)

    return by_ordinary


@of_jobs
def requested_work(s: Scene) -> Floats:
    """(J,) work of one interval at requested_gpus on the slowest allowed type of the cluster that
    has a rate there.

    Where no type has one: the slowest option at the size nearest to requested_gpus, the smaller of
    two as near.
    """
    problem, o = s.problem, s.offer
    jobs, slowest = problem.jobs, np.full(len(problem.jobs), np.inf)
    types = allowed_types(problem)
    for t in np.unique(problem.pools.gpu_type):
        # nan, unknown, wins
        room = problem.pools.memory_gb[problem.pools.gpu_type == t].max()
        r, _ = s.table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus, room)
        slowest = np.where(types[:, t] & (r > 0), np.fmin(slowest, r), slowest)
    missing = ~np.isfinite(slowest)
    if missing[o.job].any():
        distance = np.abs(o.gpus - jobs.requested_gpus[o.job])
        order = np.lexsort((o.rate, o.gpus, distance, o.job))
        first = order[o.start[:-1][np.diff(o.start) > 0]]
        first = first[missing[o.job[first]]]
        slowest[o.job[first]] = o.rate[first]
    return slowest * problem.interval_s
