"""Widths on a budget that follow the queue: [rental] of config.toml with `average_per_hour`.

Every `every_s` seconds the jobs submitted in the last `hours` become classes, one per model, with
the speeds as they are believed now (market/history.py). The plan of whole GPUs for the budget
(formulations/rental) gives dollar_price and wider_share, which the policy `rental` carries out and
the objective `response` follows. Until two jobs were submitted, the price of config.toml counts. A
budget that keeps no widths stable gives the price NARROWEST, at which every job has its least cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from allocator.domain.problem import Floats, Ints, Problem
from allocator.domain.schema.columns import RENTAL
from allocator.domain.size_rule import sizes_by_rule
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput
from allocator.market.classes import RentablePools, RentalClasses
from allocator.market.history import HOUR, History, Sizes, estimate_classes, powers_of_two
from allocator.market.rent import wider_share
from allocator.performance.table import RateTable
from formulations.rental.widths import BudgetTooSmall, plan, restrict_to_whole_gpus

TABLE = "rental"  # of config.toml
NARROWEST = 1e6  # weighted hours per dollar
ReadHistory = Callable[[float], History]  # since when, seconds -> the jobs submitted since then


class RentalTerms(NamedTuple):
    """The terms of a rental plan: the price of a dollar, and `wider_share` of [rental]."""

    dollar_price: float
    wider_share: float


@dataclass
class LiveRental:
    """The terms of the last plan, and the time at which it was made."""

    planned_s: float = -math.inf
    terms: RentalTerms | None = None

    def apply(self, problem: Problem, read_history: ReadHistory) -> Problem:
        """Return the problem with the terms of the budget, planned anew if that is due."""
        asked = {c.name: c.default for c in RENTAL} | dict(problem.settings.get(TABLE, {}))
        if asked["average_per_hour"] is None:
            return problem
        if not 0 <= problem.now_s - self.planned_s < asked["every_s"]:
            past = read_history(problem.now_s - asked["hours"] * HOUR)
            self.terms = plan_terms(problem, past, asked["average_per_hour"]) or self.terms
            self.planned_s = problem.now_s
        if self.terms is None:
            return problem
        table = {**problem.settings.get(TABLE, {}), "wider_share": self.terms.wider_share}
        return replace(
            problem,
            dollar_price=self.terms.dollar_price,
            settings={**problem.settings, TABLE: table},
        )


def add_terms(snapshot: Snapshot, problem: Problem) -> Snapshot:
    """Return the snapshot with the terms of a problem; it gives the same decision."""
    config = {"dollar_price": problem.dollar_price, TABLE: dict(problem.settings[TABLE])}
    return replace(snapshot, config={**snapshot.config, **config})


def plan_terms(problem: Problem, past: History, average_per_hour: float) -> RentalTerms | None:
    """Return the terms of a budget in dollars per hour, None while too little is known."""
    p = problem.pools
    types = tuple(problem.gpu_types[t] for t in p.gpu_type.tolist())
    # reserved GPUs are paid for in any case
    pools = RentablePools(p.pool, types, p.marginal_price, p.gpus.astype(float))

    def sizes(gpu_type: int, most: int) -> Ints:
        pool = pools.cheapest(problem.gpu_types[gpu_type])
        return sizes_by_rule(int(p.gpus_per_node[pool]), most)

    try:
        classes, _ = estimate(problem, past, None, pools, sizes)
        found = plan(restrict_to_whole_gpus(classes.model(dollars=True)), average_per_hour)
    except InvalidInput:
        return None
    except BudgetTooSmall:
        return RentalTerms(NARROWEST, 0.0)
    return RentalTerms(found.mu, wider_share(found))


def estimate(
    problem: Problem,
    past: History,
    hours: float | None,
    pools: RentablePools,
    sizes: Sizes = powers_of_two,
) -> tuple[RentalClasses, tuple[str, ...]]:
    """Estimate classes with the speeds of a problem; see `estimate_classes`."""
    table = RateTable.of(problem)

    def rate(model: Ints, gpu_type: Ints, gpus: Ints) -> Floats:
        return table.rate(model, gpu_type, gpus)[0]

    return estimate_classes(past, problem.models, problem.gpu_types, rate, hours, pools, sizes)
