"""Widths on a budget that follow the queue: [rental] of config.toml with `average_per_hour`.

Every `every_s` seconds the jobs submitted in the last `hours` become classes, one per model, with
the speeds as they are believed now (market/history.py). The plan of whole GPUs for the budget
(formulations/rental) gives dollar_price and wider_share, which the policy `rental` carries out and
the objective `response` follows. What the books say was spent too much or too little corrects the
budget of the plan (formulations/rental/repayment.py). Until two jobs were submitted, the price of
config.toml counts. A budget that keeps no widths stable gives the price NARROWEST, at which every
job has its least cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from allocator.domain.problem import Floats, Ints, Problem
from allocator.domain.schema.columns import RENTAL
from allocator.domain.size_rule import sizes_by_rule
from allocator.errors import InvalidInput
from allocator.market.books import ACCOUNT, RENTAL_TABLE as TABLE, WHOLE, budgets
from allocator.market.classes import RentablePools, RentalClasses
from allocator.market.history import HOUR, History, Sizes, estimate_classes, powers_of_two
from allocator.market.longrun import BudgetAccount, to_json
from allocator.market.rent import wider_share
from allocator.performance.table import RateTable
from formulations.rental.repayment import correct_budget, find_horizon_h, find_lag_h
from formulations.rental.widths import BudgetTooSmall, plan, restrict_to_whole_gpus

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

    def apply(
        self, problem: Problem, read_history: ReadHistory, account: BudgetAccount | None
    ) -> Problem:
        """Return the problem with the terms of the budget, planned anew if that is due.

        `account` has what was spent so far. It is in the settings of the result.
        """
        budget = budgets(problem).get(WHOLE)
        if budget is None or not budget.is_rental or account is None:
            return problem
        settings = {c.name: c.default for c in RENTAL} | dict(problem.settings[TABLE])
        if not 0 <= problem.now_s - self.planned_s < settings["every_s"]:
            past = read_history(problem.now_s - settings["hours"] * HOUR)
            repayment = Repayment(
                account.balance, settings["repay_hours"], settings["every_s"] / HOUR
            )
            self.terms = plan_terms(problem, past, budget.average_per_hour, repayment) or self.terms
            self.planned_s = problem.now_s
        table = {**problem.settings[TABLE], ACCOUNT: to_json(account)}
        price = problem.dollar_price
        if self.terms is not None:
            price, table["wider_share"] = self.terms
        return replace(problem, dollar_price=price, settings={**problem.settings, TABLE: table})


class Repayment(NamedTuple):
    """Dollars that are left over (below 0: overspent), and hours: to repay, and between plans."""

    balance: float = 0.0
    repay_h: float = math.inf
    every_h: float = 0.0


NOTHING_OWED = Repayment()


def plan_terms(
    problem: Problem,
    past: History,
    average_per_hour: float,
    repayment: Repayment = NOTHING_OWED,
) -> RentalTerms | None:
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
    except InvalidInput:
        return None
    model = restrict_to_whole_gpus(classes.model(dollars=True))
    terms = RentalTerms(NARROWEST, 0.0)
    lag_h = 0.0
    for _ in range(2):  # the first plan tells how long jobs take
        horizon_h = find_horizon_h(repayment.repay_h, lag_h, repayment.every_h)
        budget = correct_budget(average_per_hour, repayment.balance, horizon_h)
        try:
            rental_plan = plan(model, budget)
        except BudgetTooSmall:
            return RentalTerms(NARROWEST, 0.0)
        terms = RentalTerms(rental_plan.mu, wider_share(rental_plan))
        lag_h = find_lag_h(rental_plan)
    return terms


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
