"""A round at a series of budgets, with a plan and a proof at each, until the curve is known.

The first solves are without a budget (or at the largest), at the least legal spending, and at
budgets that were asked for. Further solves go where the area between plans and proofs is largest
(formulations/bounds/budget_curve.py). Each starts from the prices of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.memory import Memory
from allocator.policies.mip import mip
from allocator.policies.pairs import bound_at_prices
from allocator.solvers.base import SolveLimits, Solver
from formulations.bounds.budget_curve import (
    EDGE,
    SolvedBudgets,
    largest_budget_below,
    open_intervals,
)
from formulations.model.choices import choices
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
    """The answer for one budget.

    The plan `plan` has the value `value` and the spending `spent`. No plan of the budget has a
    larger value than `bound`. `memory` holds prices of the rows, and `dual` is the Lagrangian bound
    at these prices.
    """

    plan: P
    value: float
    spent: float
    bound: float
    dual: float
    price: float
    memory: Memory


class BudgetCase(Protocol[P]):
    """A family of rounds that differ only in their budget."""

    def solve(self, budget: float, memory: Memory | None) -> BudgetAnswer[P]:
        """Return the best plan of the budget; raises Infeasible and NoPlanInTime."""

    def compile(self, budget: float, prunes: bool) -> CompiledRound:
        """Return the round with the budget."""


@dataclass(frozen=True)
class Frontier(Generic[P]):
    """All answers in the order of solving, the same as arrays, and the least spending.

    Attributes
    ----------
    best : (m,)
        Answers on the frontier, by spending.
    budget, price : (m,)
        Largest solved budget that buys nothing better, and the price of a dollar there.
    """

    answers: tuple[BudgetAnswer[P], ...]
    solves: SolvedBudgets
    least: float
    best: Ints
    budget: Floats
    price: Floats

    @property
    def plans(self) -> list[P]:
        """The plans on the frontier."""
        return [self.answers[k].plan for k in self.best.tolist()]

    @property
    def spent(self) -> Floats:
        """What they spend, (m,)."""
        return self.solves.spent[self.best]

    @property
    def value(self) -> Floats:
        """Their values, (m,)."""
        return self.solves.value[self.best]

    @property
    def bound(self) -> Floats:
        """No plan of the budget has a larger value, (m,)."""
        return self.solves.upper(self.budget)

    @property
    def open_share(self) -> float:
        """Return the area between plans and proofs as a share of the area below the proofs."""
        return _open_share(self.solves)


class BudgetSweep(Generic[P]):
    """Solves a case at one budget after another and keeps the answers."""

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
        self._answers: list[BudgetAnswer[P]] = []
        self._rows: list[tuple[float, float, float, float, float, float]] = []
        self._memory: Memory | None = None
        first = case.solve(top, None)
        self._limit = first.spent if math.isinf(top) else top
        self._round = case.compile(self._limit, True)
        self._choices = choices(self._round.model)
        self._record(top, first)
        self.least = min(first.spent, _least_spending(case.compile(top, False), effort))
        if self.least < first.spent:
            self.solve_at(self.least)

    @property
    def solves(self) -> SolvedBudgets:
        """The solves so far, as arrays."""
        return SolvedBudgets(*np.array(self._rows).T)

    @property
    def answers(self) -> tuple[BudgetAnswer[P], ...]:
        """The answers so far, in the order of solving."""
        return tuple(self._answers)

    @property
    def full(self) -> bool:
        """Whether the largest number of plans has been reached."""
        return len(self._answers) >= self._effort.points

    def solve_at(self, budget: float) -> BudgetAnswer[P]:
        """Solve at the budget, starting from the prices of the previous solve."""
        answer = self._case.solve(budget, self._memory)
        self._record(budget, answer)
        return answer

    def _record(self, budget: float, answer: BudgetAnswer[P]) -> None:
        price, level = 0.0, answer.dual
        if math.isfinite(budget):
            # the Lagrangian bound at budget 0 with the options of the largest budget is one for all
            # budgets up to that
            prices = answer.memory.row_prices(self._choices.model)[0]
            bound = bound_at_prices(self._round, self._choices, prices)
            price, level = answer.price, bound - answer.price * self._limit
        self._answers.append(answer)
        self._rows.append((budget, answer.spent, answer.value, answer.bound, level, price))
        self._memory = answer.memory
        self._tell(len(self._answers))

    def refine(self, wanted: Sequence[float] = ()) -> Frontier[P]:
        """Solve at the budgets `wanted` inside the range, then where the open area is largest."""
        for budget in wanted:
            if self.least < budget < self._limit and not self.full:
                self.solve_at(budget)
        while not self.full and _open_share(solves := self.solves) > self._effort.limits.gap:
            self.solve_at(max(open_intervals(solves), key=lambda piece: piece.area).next)
        return Frontier(self.answers, self.solves, self.least, *self.solves.reach)

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
                return self._answers[best], min(low, high)
            # Prices give a good first guess; then the interval is halved. When it is short, any
            # other plan inside it is searched.
            if not (solves.budget == low).any():
                self.solve_at(low)
            elif high - unclear <= CLOSE * high and solves.budget[-1] == unclear:
                self.solve_at(high - EDGE * max(1.0, high))
            else:
                self.solve_at((unclear + high) / 2)


def _open_share(solves: SolvedBudgets) -> float:
    best = solves.best
    s = solves.spent[best]
    v = solves.value[best]
    width = float(s[-1] - s[0])
    whole = float(np.diff(s) @ (v[-1] - v[:-1])) if width > 0 else 0.0
    return sum(p.area for p in open_intervals(solves)) / whole if whole > 0 else 0.0


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


def build_answer(
    plan: P, task: Task, proposal: Proposal, value: float, bound: float
) -> BudgetAnswer[P]:
    """Build the answer from a decision."""
    model = task.round.model
    dual = task.dual
    price = float(dual.prices[model.rows_of(BUDGET)].sum())
    return BudgetAnswer(
        plan,
        value,
        dollars_of(task.round.instance.cost, proposal.choice),
        max(value, bound),
        task.bound,
        max(0.0, price),
        Memory.of(task.round.problem.objective, model, dual.prices),
    )
