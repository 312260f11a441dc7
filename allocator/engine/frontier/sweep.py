"""A round at a series of budgets, with a plan and a proof at each, until the curve is known.

The first solves are without a budget (or at the largest), at the least legal spending, and at
budgets that were asked for. Further solves go where the area between plans and proofs is largest
(formulations/bounds/budget_curve.py). Each starts from the prices of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Memory, Proposal, Task
from allocator.policies.mip import mip
from allocator.policies.pairs import bound_at_prices
from allocator.solvers.base import SolveLimits, Solver
from formulations.bounds.budget_curve import (
    EDGE,
    SolvedBudgets,
    largest_budget_below,
    open_intervals,
)
from formulations.model.linear import BUDGET, Floats, Ints

CLOSE = 0.02  # share of the dollars: in a shorter interval, any other plan is searched

P = TypeVar("P")
Tell = Callable[[int], None]


@dataclass(frozen=True)
class Effort:
    """Limits of the sweep.

    `limits` hold for each plan, `solver` is None if it is chosen by size and structure, and
    `points` is the largest number of plans.
    """

    limits: SolveLimits
    solver: Solver | None
    points: int


@dataclass(frozen=True)
class BudgetAnswer(Generic[P]):
    """The answer for one budget: a plan with its value, and how it was found.

    No plan of the budget has a larger value than `bound`.
    """

    plan: P
    value: float
    bound: float
    task: Task
    proposal: Proposal

    @property
    def spent(self) -> float:
        """What the plan spends."""
        return dollars_of(self.task.round.instance.cost, self.proposal.choice)


class BudgetCase(Protocol[P]):
    """A family of rounds that differ only in their budget."""

    def solve(self, budget: float, memory: Memory | None) -> BudgetAnswer[P]:
        """Return the best plan of the budget; raises Infeasible and NoPlanInTime."""

    def compile(self, budget: float, prunes: bool) -> CompiledRound:
        """Return the round with the budget."""


class Points(NamedTuple):
    """Plans that no other one beats, by spending, (m,) each.

    `budget` is the largest solved one that buys nothing better, `bound` the value that no plan of
    it exceeds, and `price` that of a dollar there.
    """

    budget: Floats
    spent: Floats
    value: Floats
    bound: Floats
    price: Floats


class Frontier(Generic[P]):
    """Solves a case at one budget after another and keeps the answers.

    Attributes
    ----------
    answers : list of BudgetAnswer
        In the order of solving.
    least : float
        The least spending.
    """

    def __init__(
        self, case: BudgetCase[P], effort: Effort, top: float = math.inf, tell: Tell | None = None
    ) -> None:
        """Solve at the budget `top` and find the least spending.

        `tell` is called with the number of solves done. Raises Infeasible where no plan keeps the
        rules.
        """
        self._case = case
        self._effort = effort
        self._tell = tell or (lambda _: None)
        self.answers: list[BudgetAnswer[P]] = []
        self._rows: list[tuple[float, float, float, float, float, float]] = []
        first = case.solve(top, None)
        self._limit = first.spent if math.isinf(top) else top
        self._round = case.compile(self._limit, True)
        self._choices = self._round.choices
        self._record(top, first)
        self.least = min(first.spent, _least_spending(case.compile(top, False), effort))
        if self.least < first.spent:
            self.solve_at(self.least)

    @property
    def solves(self) -> SolvedBudgets:
        """The solves so far, as arrays."""
        return SolvedBudgets(*np.array(self._rows).T)

    @property
    def plans(self) -> list[P]:
        """The plans on the frontier, by spending."""
        return [self.answers[k].plan for k in self.solves.best.tolist()]

    @property
    def points(self) -> Points:
        """The numbers of the plans on the frontier."""
        solves = self.solves
        best, budget, price = solves.reach
        spent, value = solves.spent[best], solves.value[best]
        return Points(budget, spent, value, solves.upper(budget), price)

    @property
    def open_share(self) -> float:
        """The area between plans and proofs as a share of the area below the proofs."""
        solves = self.solves
        s, v = solves.spent[solves.best], solves.value[solves.best]
        whole = float(np.diff(s) @ (v[-1] - v[:-1])) if s[-1] > s[0] else 0.0
        return sum(p.area for p in open_intervals(solves)) / whole if whole > 0 else 0.0

    @property
    def full(self) -> bool:
        """Whether the largest number of plans has been reached."""
        return len(self.answers) >= self._effort.points

    def solve_at(self, budget: float) -> None:
        """Solve at the budget, starting from the prices of the previous solve."""
        self._record(budget, self._case.solve(budget, self._memory))

    def _record(self, budget: float, answer: BudgetAnswer[P]) -> None:
        task, model = answer.task, answer.task.round.model
        self._memory = Memory.of(task.round.problem.objective, model, task.dual.prices)
        price, level = 0.0, task.bound
        if math.isfinite(budget):
            # the Lagrangian bound at budget 0 with the options of the largest budget is one for all
            # budgets up to that
            prices = self._memory.row_prices(self._choices.model)[0]
            price = max(0.0, float(task.dual.prices[model.rows_of(BUDGET)].sum()))
            level = bound_at_prices(self._round, self._choices, prices) - price * self._limit
        self.answers.append(answer)
        self._rows.append((budget, answer.spent, answer.value, answer.bound, level, price))
        self._tell(len(self.answers))

    def refine(self, wanted: Sequence[float] = ()) -> Frontier[P]:
        """Solve at the budgets `wanted` inside the range, then where the open area is largest."""
        for budget in wanted:
            if self.least < budget < self._limit and not self.full:
                self.solve_at(budget)
        while not self.full and self.open_share > self._effort.limits.gap:
            self.solve_at(max(open_intervals(self.solves), key=lambda piece: piece.area).next)
        return self

    def find_cheapest(self, target: float) -> tuple[BudgetAnswer[P], float]:
        """Find the cheapest plan of value `target`, and the dollars below which there is none.

        The two differ by at most the gap, unless the number of plans reached its limit. A plan of
        that value must be known.
        """
        wanted = target - 1e-9 * max(1.0, abs(target))
        while True:
            solves = self.solves
            good = np.flatnonzero(solves.value >= wanted)
            best = int(good[np.lexsort((-solves.value[good], solves.spent[good]))[0]])
            high = float(solves.spent[best])
            low = max(self.least, largest_budget_below(solves, wanted))
            below = solves.budget[(solves.value < wanted) & (solves.budget < high)]
            unclear = max(low, float(below.max(initial=0.0)))
            near = max(2 * EDGE, self._effort.limits.gap) * max(1.0, high)
            if self.full or high - low <= near or high - unclear <= near:
                return self.answers[best], min(low, high)
            # Prices give a good first guess; then the interval is halved. When it is short, any
            # other plan inside it is searched.
            if not (solves.budget == low).any():
                self.solve_at(low)
            elif high - unclear <= CLOSE * high and solves.budget[-1] == unclear:
                self.solve_at(high - EDGE * max(1.0, high))
            else:
                self.solve_at((unclear + high) / 2)


def _least_spending(whole: CompiledRound, effort: Effort) -> float:
    """Return the least spending of any plan of a round with all its options."""
    cost = whole.instance.cost
    cheap = replace(whole, instance=replace(whole.instance, value=-cost))
    task = Task(cheap, replace(effort.limits, gap=0.0), effort.solver, math.inf)
    nothing = np.full(len(whole.problem.jobs), -1)
    return 0.0 if task.choices.feasible(nothing) else dollars_of(cost, mip(task).choice)


def dollars_of(cost: Floats, choice: Ints) -> float:
    """Return the dollars of a choice."""
    return float(cost[choice[choice >= 0]].sum())
