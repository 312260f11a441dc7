"""The long-run budgets of a cluster and of its tenants, with their books.

    config.toml [longrun] or [rental], tenants.csv    ->  Budgets
    Books, spending, running jobs         ->  Books                            update_books()
    Problem, Books                        ->  Problem with prices and limits   apply_books()

Books count dollars for GPUs that are not reserved, because reserved ones are paid for in any case.
Limits of a round count all GPUs, so the cost of the reserved ones is added. Limits stay above
unavoidable spending: jobs that may not be changed, and guaranteed GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Floats, Market, Problem, State
from allocator.domain.snapshot import Snapshot
from allocator.market import longrun
from allocator.market.longrun import HOUR, BudgetAccount, LongRunBudget

TABLE = "longrun"  # of config.toml
RENTAL_TABLE = "rental"
ACCOUNT, TENANTS = "account", "tenants"  # keys there that hold the books


@dataclass(frozen=True)
class Budgets:
    """The budget of the whole cluster (`total`) and those of tenants by name."""

    total: LongRunBudget | None = None
    tenants: Mapping[str, LongRunBudget] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.total is not None or bool(self.tenants)


@dataclass(frozen=True)
class Books:
    """The account of each budget."""

    total: BudgetAccount | None = None
    tenants: Mapping[str, BudgetAccount] = field(default_factory=dict)


def budgets(problem: Problem) -> Budgets:
    """Return the long-run budgets that a problem names."""
    given = problem.settings.get(TABLE, {})
    rental = problem.settings.get(RENTAL_TABLE, {})
    window_s = float(given.get("window_s", longrun.WINDOW_S))
    t = problem.tenants
    rows = zip(
        t.tenant, t.average_per_hour.tolist(), t.amount.tolist(), t.until_s.tolist(), strict=True
    )
    own = {
        name: LongRunBudget(average, amount, until_s, window_s)
        for name, average, amount, until_s in rows
        if not math.isnan(average) or not math.isnan(amount)
    }
    whole = LongRunBudget(
        float(given.get("average_per_hour", math.nan)),
        float(given.get("amount", math.nan)),
        float(given.get("until_s", math.inf)),
        window_s,
    )
    if not (math.isnan(whole.average_per_hour) and math.isnan(whole.amount)):
        return Budgets(whole, own)
    if rental.get("average_per_hour") is None:
        return Budgets(None, own)
    repay_s = float(rental.get("repay_hours", longrun.WINDOW_S / HOUR)) * HOUR
    return Budgets(
        LongRunBudget(float(rental["average_per_hour"]), window_s=repay_s, is_rental=True), own
    )


def weights(problem: Problem) -> Floats:
    """Return the weight of the running jobs by tenant, (Q,), without ageing.

    In the theory no job waits. If waiting jobs counted, a price that is too high would raise
    itself.
    """
    jobs = problem.jobs
    there = np.where(jobs.state == State.RUNNING, jobs.weight, 0.0)
    return np.asarray(
        np.bincount(jobs.tenant, there, minlength=len(problem.tenants)), dtype=np.float64
    )


def update_books(books: Books, problem: Problem, spent: Mapping[str, float]) -> Books:
    """Return the books at the problem's now_s.

    `spent` is the dollars by tenant for GPUs that are not reserved since the last books. Books of
    new budgets begin now, and those of removed budgets end.
    """
    asked = budgets(problem)
    present = dict(zip(problem.tenants.tenant, weights(problem).tolist(), strict=True))
    return Books(
        (
            None
            if asked.total is None
            else _update_one(
                books.total,
                asked.total,
                math.fsum(spent.values()),
                problem.now_s,
                math.fsum(present.values()),
            )
        ),
        {
            name: _update_one(
                books.tenants.get(name), budget, spent.get(name, 0.0), problem.now_s, present[name]
            )
            for name, budget in asked.tenants.items()
        },
    )


def _update_one(
    account: BudgetAccount | None, budget: LongRunBudget, spent: float, now_s: float, present: float
) -> BudgetAccount:
    if account is None:
        return longrun.open_account(budget, now_s, present)
    return longrun.update_account(account, budget, spent, now_s, present)


def apply_books(problem: Problem, books: Books) -> Problem:
    """Return the problem with the prices and the limits on dollars of the books.

    Prices become dollar_price. The books themselves are in the settings of the result. The price of
    a budget in [rental] is that of its plan (loop/live_rental.py).
    """
    asked = budgets(problem)
    t = problem.tenants
    if not asked:
        return problem
    price = problem.dollar_price
    limit = problem.budget_per_hour
    prices = t.dollar_price.copy()
    limits = t.budget_per_hour.copy()
    reserved = reserved_dollars(problem)
    least = _unavoidable_dollars(problem)
    table = {**problem.settings.get(TABLE, {}), **to_json(books)}
    if asked.total is not None and asked.total.is_rental:
        table.pop(ACCOUNT, None)  # it is in [rental]
    elif asked.total is not None and books.total is not None:
        next_terms = longrun.next_terms(books.total, asked.total, problem.interval_s)
        price = next_terms.mu
        limit = min(limit, max(next_terms.per_hour + reserved, least.sum()))
    for q, name in enumerate(t.tenant):
        if name in asked.tenants and name in books.tenants:
            next_terms = longrun.next_terms(
                books.tenants[name], asked.tenants[name], problem.interval_s
            )
            prices[q] = next_terms.mu
            limits[q] = min(limits[q], max(next_terms.per_hour + reserved, least[q]))
    return replace(
        problem,
        dollar_price=float(price),
        budget_per_hour=float(limit),
        tenants=replace(t, dollar_price=prices, budget_per_hour=limits),
        settings={**problem.settings, TABLE: table},
    )


RENTED = "for GPUs that are not reserved"
"""What a long-run budget counts, in words. A budget of rounds counts all GPUs."""


def reserved_dollars(problem: Problem) -> float:
    """Return the dollars per hour of all reserved GPUs, used or not."""
    pools = problem.pools
    return float((pools.gpus * pools.price_per_gpu_hour)[pools.market == Market.RESERVED].sum())


def _unavoidable_dollars(problem: Problem) -> Floats:
    """Return the dollars per hour that every round spends, (Q,).

    They are those of running jobs that may not be paused (all of them where changes are limited),
    and of guaranteed GPUs at the highest price. Where memory has a price, each counts with the most
    that a job may need.
    """
    jobs = problem.jobs
    pools = problem.pools
    t = problem.tenants
    stays: Bools = (jobs.state == State.RUNNING) & (~jobs.preemptible | (problem.max_changes >= 0))
    cost = (
        np.where(stays, jobs.gpus * problem.dearest_prices[jobs.pool], 0.0)
        if len(pools)
        else np.zeros(len(jobs))
    )
    dearest = float(problem.dearest_prices.max(initial=0.0))
    return np.bincount(jobs.tenant, cost, minlength=len(t)) + t.guaranteed_gpus * dearest


def snapshot_with_terms(snapshot: Snapshot, problem: Problem) -> Snapshot:
    """Return the snapshot with the prices and limits of `apply_books`.

    It gives the same decision.
    """
    config = {
        **snapshot.config,
        "dollar_price": problem.dollar_price,
        **{name: table for name in (TABLE, RENTAL_TABLE) if (table := problem.settings.get(name))},
    }
    if math.isfinite(problem.budget_per_hour):
        config["budget_per_hour"] = problem.budget_per_hour
    snapshot_with_terms = replace(snapshot, config=config)
    if not budgets(problem).tenants:
        return snapshot_with_terms
    tenants = problem.tenants
    rows = len(snapshot.tables["tenants.csv"])  # the tenants of the file come first, in their order
    limit = tenants.budget_per_hour[:rows]
    return snapshot_with_terms.with_columns(
        "tenants.csv",
        dollar_price=tenants.dollar_price[:rows],
        budget_per_hour=np.where(np.isinf(limit), np.nan, limit),
    )


def to_json(books: Books) -> dict[str, Any]:
    """Return books as JSON and TOML values, without absent parts."""
    out: dict[str, Any] = {} if books.total is None else {ACCOUNT: longrun.to_json(books.total)}
    if books.tenants:
        out[TENANTS] = {name: longrun.to_json(account) for name, account in books.tenants.items()}
    return out


def from_json(value: Mapping[str, Any] | None) -> Books:
    """Return the books of `to_json`."""
    if not value:
        return Books()
    total = value.get(ACCOUNT)
    return Books(
        None if total is None else longrun.from_json(total),
        {name: longrun.from_json(account) for name, account in value.get(TENANTS, {}).items()},
    )


def report(books: Books, problem: Problem) -> dict[str, dict[str, Any]]:
    """Return the state of every budget as JSON values; "" is that of the whole cluster.

    The problem has the terms of these books.
    """
    asked = budgets(problem)
    planned = {"dollar_price": problem.dollar_price, "most_per_hour": None}
    pairs = [
        ("", asked.total, books.total),
        *((n, b, books.tenants.get(n)) for n, b in asked.tenants.items()),
    ]
    return {
        name: longrun.report(account, budget, problem.interval_s)
        | (planned if budget.is_rental else {})
        for name, budget, account in pairs
        if budget is not None and account is not None
    }
