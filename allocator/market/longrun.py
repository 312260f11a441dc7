"""Long-run budgets: average dollars per hour, or an amount until a date.

Spending is not limited at every moment: hours of little spending save for hours that need much. The
savings or the overdraft are the virtual queue of the budget. It sets a price and a limit for the
next round:

    balance  B = income - spent                             dollars; -B is the virtual queue Z
    credit   C = BETA b L                                   dollars
    price    mu = (N / b) exp(-B / (THETA C))               weighted hours per dollar
    limit    spend at most b + (B + C) / max(interval, L / CORRECTION_SHARE)    dollars per hour

The letters are:

- b: the income per hour.
- L: the hours left until the share CLOSE of the window, or of the time to the date, is over. It is
  at least the share LEAST of the window. So the books are balanced before the window ends.
- N: the weight of the running jobs, averaged over time. By Little's law the mean response time is N
  per unit of arrivals. N / b is the scale of the price in the theory of fixed widths (widths
  k = a / ((1 - a) mu) of power laws k^a cost N a / (1 - a) / mu dollars per hour; Li et al., EPEW
  2024).

No constant has to be tuned to a cluster: each of them is a share of the window, or a limit of the
exponent of the price, FLATTEST to STEEPEST. The exponential is the multiplicative-weights form of
the price: its logarithm follows the balance. Drift plus penalty, mu = Z / V (Neely 2010, chapter
4), was mostly slower (docs/results.md).

The permitted overdraft shrinks with the time that is left to pay it back. So the books balance at
the end of every window, whatever the load is. Money that no job can use is not spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

HOUR = 3600.0
WINDOW_S = 14 * 24 * HOUR  # default window of an average
CLOSE, LEAST = 0.95, 0.01  # the books balance early: later savings could no longer be spent
BETA = 0.5  # share of the income by which spending is reduced to pay an overdraft back
THETA = 0.3  # a debt of this share of the credit raises the price by the factor e
# the limit uses up balance and credit within the time left divided by this number
CORRECTION_SHARE = 24.0
# bounds of the exponent: at higher prices a round does not earn the start-up of a job
STEEPEST = 1.5
FLATTEST = -9.0
MEMORY = 0.5  # share of the window over which the weight of the running jobs is averaged
# share of the window over which the present rate of spending is averaged
RECENT = 1 / 14


@dataclass(frozen=True)
class LongRunBudget:
    """A budget: an average over windows, or an amount until a date.

    Exactly one of average_per_hour (dollars, over windows of window_s) and amount (dollars until
    until_s) is a number, the other nan. until_s is inf for an average; window_s is not used for an
    amount. Where `is_rental`, widths are planned for it (loop/live_rental.py) in place of the price
    and the limit of this module.
    """

    average_per_hour: float = math.nan
    amount: float = math.nan
    until_s: float = math.inf
    window_s: float = WINDOW_S
    is_rental: bool = False

    @property
    def has_end(self) -> bool:
        """Whether the budget is an amount until a date."""
        return math.isfinite(self.until_s)


@dataclass(frozen=True)
class BudgetAccount:
    """The books of a budget at at_s; dollars since opened_s.

    Attributes
    ----------
    income, spent : float
        Dollars so far.
    present : float
        Weight of the jobs running since at_s.
    load : float
        Its average (N).
    rate : float
        Recent spending, dollars per hour.
    until_s : float
        The date the account was opened for, inf = none.
    """

    opened_s: float
    at_s: float
    income: float = 0.0
    spent: float = 0.0
    present: float = 0.0
    load: float = 0.0
    rate: float = 0.0
    until_s: float = math.inf

    @property
    def balance(self) -> float:
        """Dollars saved, negative: overdrawn."""
        return self.income - self.spent


@dataclass(frozen=True)
class RoundTerms:
    """Terms of the next round: the price mu, and the most that it may spend, dollars per hour."""

    mu: float
    per_hour: float


def open_account(budget: LongRunBudget, now_s: float, present: float) -> BudgetAccount:
    """Return empty books; `present` is the weight of the running jobs."""
    return BudgetAccount(now_s, now_s, present=present, load=present, until_s=budget.until_s)


def update_account(
    account: BudgetAccount, budget: LongRunBudget, spent: float, now_s: float, present: float
) -> BudgetAccount:
    """Return the books at now_s, after `spent` more dollars.

    If the clock goes back, no time passes for the books. A budget of another kind, or an amount for
    a later date after its old date, begins new books where the old ones end.
    """
    changed = budget.has_end != math.isfinite(account.until_s)
    if changed or account.until_s <= account.at_s < budget.until_s:
        account = BudgetAccount(
            account.at_s, account.at_s, present=account.present, load=account.load
        )
    now_s = max(now_s, account.at_s)
    hours = (now_s - account.at_s) / HOUR
    memory_h = MEMORY * _window_s(account, budget) / HOUR
    age_h = (now_s - account.opened_s) / HOUR
    load = _mean(account.load, account.present, hours, min(memory_h, age_h))
    recent_h = RECENT * _window_s(account, budget) / HOUR
    rate = (
        _mean(account.rate, spent / hours, hours, min(recent_h, age_h))
        if hours > 0
        else account.rate
    )
    return replace(
        account,
        at_s=now_s,
        income=account.income + _earned(account, budget, now_s),
        spent=account.spent + spent,
        present=present,
        load=load,
        rate=rate,
        until_s=budget.until_s,
    )


def next_terms(account: BudgetAccount, budget: LongRunBudget, interval_s: float) -> RoundTerms:
    """Return the terms of the next round of interval_s."""
    if budget.has_end and account.at_s >= budget.until_s:
        # after the date nothing may be spent
        return RoundTerms(0.0, 0.0)
    income = income_per_hour(account, budget)
    window_h = _window_s(account, budget) / HOUR
    left_h = max(left_s(account, budget) / HOUR - (1.0 - CLOSE) * window_h, LEAST * window_h)
    credit = BETA * income * left_h
    interval_h = interval_s / HOUR
    ahead_h = max(interval_h, left_h / CORRECTION_SHARE)
    most = max(0.0, income + (account.balance + credit) / ahead_h)
    if budget.has_end:
        most = min(most, max(0.0, remaining(account, budget)) / interval_h)
    if not (income > 0 and credit > 0):
        return RoundTerms(0.0, most)
    return RoundTerms(price(account.load / income, -account.balance / (THETA * credit)), most)


def price(scale: float, debt: float) -> float:
    """Return mu from its scale N / b and the debt -B / (THETA C)."""
    return scale * math.exp(min(STEEPEST, max(FLATTEST, debt)))


def income_per_hour(account: BudgetAccount, budget: LongRunBudget) -> float:
    """Return b, the income per hour from now on.

    For an amount it is the rest of the income, evenly until the date.
    """
    if not budget.has_end:
        return budget.average_per_hour
    left_h = left_s(account, budget) / HOUR
    return max(0.0, budget.amount - account.income) / left_h if left_h > 0 else 0.0


def left_s(account: BudgetAccount, budget: LongRunBudget) -> float:
    """Return L in seconds: until the date, or to the end of the present window of an average.

    It is above 0 for an average.
    """
    if budget.has_end:
        return max(0.0, budget.until_s - account.at_s)
    return budget.window_s - (account.at_s - account.opened_s) % budget.window_s


def remaining(account: BudgetAccount, budget: LongRunBudget) -> float:
    """Return the dollars of the amount, or of the present window, that are not spent yet.

    The result is negative if the budget is overdrawn.
    """
    if budget.has_end:
        return budget.amount - account.spent
    return account.balance + budget.average_per_hour * left_s(account, budget) / HOUR


def runs_out_s(account: BudgetAccount, budget: LongRunBudget) -> float:
    """Return when the remaining dollars are gone at the recent rate of spending.

    It is inf if they last until the date or the end of the window.
    """
    left = max(0.0, remaining(account, budget))
    most = left_s(account, budget)
    if account.rate * most / HOUR <= left or most <= 0:
        return math.inf
    return account.at_s + left / account.rate * HOUR


def _earned(account: BudgetAccount, budget: LongRunBudget, now_s: float) -> float:
    """Return the income between the books and now_s."""
    if not budget.has_end:
        return budget.average_per_hour * (now_s - account.at_s) / HOUR
    if now_s >= budget.until_s:
        return budget.amount - account.income
    return (
        (budget.amount - account.income) * (now_s - account.at_s) / (budget.until_s - account.at_s)
    )


def _window_s(account: BudgetAccount, budget: LongRunBudget) -> float:
    return max(0.0, budget.until_s - account.opened_s) if budget.has_end else budget.window_s


def _mean(old: float, new: float, hours: float, memory_h: float) -> float:
    """Return the average after `hours` of the value `new`, with exponential forgetting."""
    if hours <= 0:
        return old
    return old + (new - old) * (1.0 - math.exp(-hours / memory_h) if memory_h > hours else 1.0)


Json = Mapping[str, float | None]


def to_json(account: BudgetAccount) -> dict[str, float | None]:
    """Return an account as JSON and TOML values, which read back as the same floats.

    An endless date is left out.
    """
    return {name: value for name, value in asdict(account).items() if math.isfinite(value)}


def from_json(value: Json) -> BudgetAccount:
    """Return the account of `to_json`."""
    return BudgetAccount(
        **{f.name: float(v) for f in fields(BudgetAccount) if (v := value.get(f.name)) is not None}
    )


def report(account: BudgetAccount, budget: LongRunBudget, interval_s: float) -> dict[str, Any]:
    """Return the books as JSON values for users, None where there is no number."""
    gone = runs_out_s(account, budget)
    hours = (account.at_s - account.opened_s) / HOUR
    asks = next_terms(account, budget, interval_s)
    return {
        "average_per_hour": None if budget.has_end else budget.average_per_hour,
        "amount": budget.amount if budget.has_end else None,
        "until_s": budget.until_s if budget.has_end else None,
        "opened_s": account.opened_s,
        "at_s": account.at_s,
        "income": account.income,
        "spent": account.spent,
        "balance": account.balance,
        "remaining": remaining(account, budget),
        "spent_per_hour": account.spent / hours if hours > 0 else None,
        "recent_per_hour": account.rate,
        "runs_out_s": gone if math.isfinite(gone) else None,
        "dollar_price": asks.mu,
        "most_per_hour": asks.per_hour,
    }
