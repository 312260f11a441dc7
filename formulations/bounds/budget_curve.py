"""Value against budget, from below by plans and from above by proofs; and the next budget to solve.

A solve k at budget b_k gives three things: a plan (spent s_k <= b_k, value v_k), a bound B_k on
every plan of that budget, and a line. The Lagrangian bound is linear in the right-hand side of the
budget row, so the price p_k of that row is its slope.

    V(b) = max { v_k : s_k <= b }                                      best known plan
    U(b) = min( min_k (level_k + p_k b),  min { B_k : b_k >= b } )     no plan has a larger value

V <= best value <= U, and both rise with b. The epsilon-constraint method (Haimes, Lasdon and Wismer
1971) lists all plans that no other plan dominates: it asks again and again for a plan that costs
less than the best one. Here the next budget is the one that is sure to reduce the area between U
and V most. The edge of a step is solved only where a solve in its middle found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.bounds.hull import front
from formulations.model.linear import Floats, Ints

EDGE = 1e-7  # relative: closer budgets count as equal; rows are kept to 1e-9
GRID = 33  # points of an interval at which U is evaluated


@dataclass(frozen=True)
class SolvedBudgets:
    """n solved budgets in the order of solving, arrays (n,).

    budget is inf where there was no limit; level and price mean U <= level + price b.
    """

    budget: Floats
    spent: Floats
    value: Floats
    bound: Floats
    level: Floats
    price: Floats

    @property
    def best(self) -> Ints:
        """Solves whose plans no other plan beats in both spending and value, by ascending spending.

        Of equal plans the first counts.
        """
        return front(np.zeros(len(self.spent), dtype=np.int64), self.spent, -self.value)

    @property
    def reach(self) -> tuple[Ints, Floats, Floats]:
        """`best`, the largest solved budget for which each is still best, and the price there.

        The price of a dollar is the slope of the lowest line.
        """
        best = self.best
        after = np.append(self.spent[best][1:], np.inf)
        at = best.copy()
        for i, k in enumerate(best.tolist()):
            inside = np.flatnonzero((self.budget >= self.spent[k]) & (self.budget < after[i]))
            at[i] = inside[np.argmax(self.budget[inside])] if len(inside) else k
        budget = np.where(np.isinf(self.budget[at]), self.spent[best], self.budget[at])
        return best, budget, self.price[self._lines(budget).argmin(axis=0)]

    def _lines(self, b: Floats) -> Floats:
        """Return the line of every solve at budgets (m,), shape (n, m)."""
        return self.level[:, None] + self.price[:, None] * b

    def lower(self, b: Floats) -> Floats:
        """Return V at budgets (m,), -inf where no plan is known."""
        best = self.best
        return np.append(-np.inf, self.value[best])[
            np.searchsorted(self.spent[best], b, side="right")
        ]

    def upper(self, b: Floats) -> Floats:
        """Return U at budgets (m,), at least V."""
        lines = self._lines(b).min(axis=0)
        order = np.argsort(self.budget)
        least = np.minimum.accumulate(np.append(np.inf, self.bound[order][::-1]))[::-1]
        steps = least[np.searchsorted(self.budget[order], b, side="left")]
        return np.asarray(np.maximum(np.minimum(lines, steps), self.lower(b)))


@dataclass(frozen=True)
class BudgetInterval:
    """Budgets between `left` and `right` for which the best value is not known.

    `right` is the spending of the next better plan. `area` lies between U and V, and `next` is the
    budget to solve.
    """

    left: float
    right: float
    area: float
    next: float


def open_intervals(solves: SolvedBudgets) -> list[BudgetInterval]:
    """Return the intervals in which the best value is not known, by budget."""
    best = solves.best
    intervals = []
    for low, high in zip(best[:-1].tolist(), best[1:].tolist(), strict=True):
        v = solves.value[low]
        right = float(solves.spent[high])
        edge = right - EDGE * max(1.0, right)
        inside = np.flatnonzero(
            (solves.budget >= solves.spent[low]) & (solves.budget <= edge + EDGE * EDGE)
        )
        last = int(inside[np.argmax(solves.budget[inside])]) if len(inside) else -1
        left = float(solves.budget[last]) if last >= 0 else float(solves.spent[low])
        if edge <= left + EDGE * max(1.0, left):
            continue
        b = np.linspace(left, edge, GRID)
        open_ = solves.upper(b) - v
        width = np.diff(b)
        under = np.append(0.0, np.cumsum(width * (open_[1:] + open_[:-1]) / 2))
        if under[-1] <= 0:
            continue
        sure = np.minimum(under, (edge - b) * open_)[1:-1]
        empty = last > max(low, high)  # the last solve here found nothing new
        at = edge if empty else float(b[1 + int(np.argmax(sure))])
        intervals.append(BudgetInterval(left, right, float(under[-1]), at))
    return intervals


def largest_budget_below(solves: SolvedBudgets, target: float) -> float:
    """Return the largest budget below which no plan has the value `target`: where U reaches it."""
    short = solves.budget[solves.bound < target]
    rising = solves.price > 0
    lines = (target - solves.level[rising]) / solves.price[rising]
    return float(max(0.0, short.max(initial=0.0), lines.max(initial=0.0)))
