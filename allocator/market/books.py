"""The books of a cluster and of its tenants: long-run budgets, and GPU-hours of a month (R69).

    config.toml [longrun] or [rental], tenants.csv    ->  budgets              budgets()
    Books, spending, running jobs         ->  Books                            update_books()
    Problem, Books                        ->  Problem with prices and limits   apply_books()
    GPU-hours of a month so far           ->  GPU-hours of the present month   add_gpu_hours()
    Problem, GPU-hours                    ->  Problem with gpu_hours_used      with_gpu_hours()

Budgets and books are named by tenant, those of the whole cluster "".

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
from allocator.domain.times import month_start_s
from allocator.market import longrun
from allocator.market.longrun import HOUR, BudgetAccount, LongRunBudget

WHOLE = ""  # the whole cluster
TABLE = "longrun"  # of config.toml
RENTAL_TABLE = "rental"
ACCOUNT, TENANTS = "account", "tenants"  # keys there that hold the books


Budgets = Mapping[str, LongRunBudget]
Books = Mapping[str, BudgetAccount]


def budgets(problem: Problem) -> Budgets:
    """Return the long-run budgets of a problem by name."""
    given = problem.settings.get(TABLE, {})
    rental = problem.settings.get(RENTAL_TABLE, {})
    window_s = float(given.get("window_s", longrun.WINDOW_S))
    t = problem.tenants
    none = {"average_per_hour": math.nan, "amount": math.nan, "until_s": math.inf}
    columns = [np.append(float(given.get(n, x)), getattr(t, n)).tolist() for n, x in none.items()]
    out = {
        name: LongRunBudget(average, amount, until_s, window_s)
        for name, average, amount, until_s in zip((WHOLE, *t.tenant), *columns, strict=True)
        if not (math.isnan(average) and math.isnan(amount))
    }
    if WHOLE in out or rental.get("average_per_hour") is None:
        return out
    repay_s = float(rental.get("repay_hours", longrun.WINDOW_S / HOUR)) * HOUR
    average = float(rental["average_per_hour"])
    whole = LongRunBudget(average, window_s=repay_s, is_rental=True)
    return {WHOLE: whole} | out


def update_books(books: Books, problem: Problem, spent: Mapping[str, float]) -> Books:
    """Return the books at the problem's now_s.

    `spent` is the dollars by tenant for GPUs that are not reserved since the last books. Books of
    new budgets begin now, and those of removed budgets end.
    """
    jobs = problem.jobs
    # without ageing; in the theory no job waits, and if waiting jobs counted, a price that is too
    # high would raise itself
    there = np.where(jobs.state == State.RUNNING, jobs.weight, 0.0)
    weights = np.bincount(jobs.tenant, there, minlength=len(problem.tenants)).tolist()
    present = dict(zip(problem.tenants.tenant, weights, strict=True))
    present[WHOLE] = math.fsum(weights)
    dollars = {**spent, WHOLE: math.fsum(spent.values())}
    out = {}
    for name, budget in budgets(problem).items():
        account = books.get(name) or longrun.open_account(budget, problem.now_s, present[name])
        if name in books:
            paid = dollars.get(name, 0.0)
            account = longrun.update_account(account, budget, paid, problem.now_s, present[name])
        out[name] = account
    return out


def apply_books(problem: Problem, books: Books) -> Problem:
    """Return the problem with the prices and the limits on dollars of the books.

    Prices become dollar_price. The books themselves are in the settings of the result. The price of
    a budget in [rental] is that of its plan (loop/live_rental.py).
    """
    asked = budgets(problem)
    t = problem.tenants
    if not asked:
        return problem
    reserved = reserved_dollars(problem)
    least = _unavoidable_dollars(problem)
    # those of the whole cluster come last
    prices = np.append(t.dollar_price, problem.dollar_price)
    limits = np.append(t.budget_per_hour, problem.budget_per_hour)
    least = np.append(least, least.sum())
    table = {**problem.settings.get(TABLE, {}), **to_json(books)}
    for q, name in enumerate((*t.tenant, WHOLE)):
        if name in asked and asked[name].is_rental:
            table.pop(ACCOUNT, None)  # it is in [rental]
        elif name in asked and name in books:
            terms = longrun.next_terms(books[name], asked[name], problem.interval_s)
            prices[q] = terms.mu
            limits[q] = min(limits[q], max(terms.per_hour + reserved, least[q]))
    return replace(
        problem,
        dollar_price=float(prices[-1]),
        budget_per_hour=float(limits[-1]),
        tenants=replace(t, dollar_price=prices[:-1], budget_per_hour=limits[:-1]),
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
    if not budgets(problem).keys() - {WHOLE}:
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
    own = {name: longrun.to_json(account) for name, account in books.items()}
    total = own.pop(WHOLE, None)
    return ({} if total is None else {ACCOUNT: total}) | ({TENANTS: own} if own else {})


def from_json(value: Mapping[str, Any] | None) -> Books:
    """Return the books of `to_json`."""
    value = value or {}
    total = {WHOLE: value[ACCOUNT]} if value.get(ACCOUNT) is not None else {}
    rows = total | value.get(TENANTS, {})
    return {name: longrun.from_json(account) for name, account in rows.items()}


def report(books: Books, problem: Problem) -> dict[str, dict[str, Any]]:
    """Return the state of every budget as JSON values; "" is that of the whole cluster.

    The problem has the terms of these books.
    """
    planned = {"dollar_price": problem.dollar_price, "most_per_hour": None}
    return {
        name: longrun.report(books[name], budget, problem.interval_s)
        | (planned if budget.is_rental else {})
        for name, budget in budgets(problem).items()
        if name in books
    }


@dataclass(frozen=True)
class MonthlyUse:
    """GPU-hours of the jobs of each tenant from the start of the month of at_s to at_s."""

    at_s: float = -math.inf
    gpu_hours: Mapping[str, float] = field(default_factory=dict)

    def since_s(self, now_s: float) -> float:
        """Return from when on GPU-hours are missing: at_s, or the start of the present month."""
        return max(self.at_s, month_start_s(now_s))


def limits_gpu_hours(problem: Problem) -> bool:
    """Return whether a tenant has a limit of GPU-hours."""
    return bool(np.isfinite(problem.tenants.gpu_hours_per_month).any())


def add_gpu_hours(use: MonthlyUse, now_s: float, held: Mapping[str, float]) -> MonthlyUse:
    """Return the use at now_s, with the GPU-hours by tenant held since `use.since_s(now_s)`."""
    before = use.gpu_hours if use.at_s >= month_start_s(now_s) else {}
    names = {*before, *held}
    return MonthlyUse(
        max(now_s, use.at_s), {name: before.get(name, 0.0) + held.get(name, 0.0) for name in names}
    )


def with_gpu_hours(problem: Problem, use: MonthlyUse) -> Problem:
    """Return the problem with the GPU-hours of each tenant and of the tenants below it."""
    tenants = problem.tenants
    own = np.array([use.gpu_hours.get(name, 0.0) for name in tenants.tenant])
    total = np.zeros(len(tenants))
    for line in tenants.ancestors:
        np.add.at(total, line[line >= 0], own[line >= 0])
    return replace(problem, tenants=replace(tenants, gpu_hours_used=total))


def report_months(problem: Problem) -> dict[str, dict[str, Any]]:
    """Return the limit, the use and the forecast of every tenant with a limit, as JSON values.

    runs_out_s is when the limit is reached at the mean rate of the month so far, None if that is
    after the month.
    """
    t = problem.tenants
    start_s, end_s = month_start_s(problem.now_s), month_start_s(problem.now_s, 1)
    out = {}
    for name, most, used in zip(
        t.tenant, t.gpu_hours_per_month.tolist(), t.gpu_hours_used.tolist(), strict=True
    ):
        if math.isfinite(most):
            gone_s = start_s + (problem.now_s - start_s) * most / used if used > 0 else math.inf
            out[name] = {
                "gpu_hours_per_month": most,
                "gpu_hours_used": used,
                "runs_out_s": gone_s if gone_s < end_s else None,
            }
    return out


def use_to_json(use: MonthlyUse) -> dict[str, Any]:
    """Return the use as JSON values."""
    return {"at_s": use.at_s, "gpu_hours": dict(use.gpu_hours)}


def use_from_json(value: Mapping[str, Any] | None) -> MonthlyUse:
    """Return the use of `use_to_json`."""
    return MonthlyUse(**value) if value else MonthlyUse()
