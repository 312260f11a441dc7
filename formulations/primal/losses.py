"""What columns lose at prices: which of them a plan above a value may use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.bounds.lagrangian import Dual, group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints


@dataclass(frozen=True)
class Losses:
    """What columns lose against the best one of their group at the prices.

    A plan has at most the value of the bound less the sum of what its columns lose.

    Attributes
    ----------
    bound : float
        L of the prices (formulations/bounds/lagrangian.py).
    column, nothing : (n,), (J,)
        Loss of every column, and of leaving each group without one; inf where that is impossible.
    """

    bound: float
    column: Floats
    nothing: Floats

    @staticmethod
    def of(c: Choices, dual: Dual) -> Losses:
        """Return the losses at the prices of a dual."""
        reduced = c.value - c.matrix @ project_prices(c, dual.prices)
        loss = np.maximum(np.repeat(dual.reduced, np.diff(c.start)) - reduced, 0.0)
        return Losses(dual.bound, loss, np.where(c.mandatory, np.inf, dual.reduced))

    def leaves(self, value: float) -> tuple[Bools, Bools]:
        """Return which columns, (n,), and nothings, (J,), a plan above a value may use."""
        return self.column <= self.bound - value, self.nothing <= self.bound - value

    def changes(self, c: Choices, plan: Ints, value: float) -> tuple[Bools, Bools]:
        """Return the columns (n,) of a plan (J,) and of all above a value, and who can change.

        These are groups, (J,).
        """
        near, nothing = self.leaves(value)
        near[plan[plan >= 0]] = True
        nothing |= plan < 0
        return near, np.bincount(c.group[near], minlength=c.J) + nothing > 1

    def least(self, count: int, plan: Ints) -> tuple[Bools, Bools]:
        """Return a plan (J,), the best columns of all groups, and `count` others of least loss."""
        loss = np.append(self.column, self.nothing)
        count += len(self.nothing)
        most = np.inf if count >= len(loss) else float(np.partition(loss, count)[count])
        near, nothing = self.column < most, self.nothing < most
        near[plan[plan >= 0]] = True
        return near, nothing | (plan < 0)

    def of_plan(self, plan: Ints) -> Floats:
        """Return the loss of what a plan gives each group, a column or nothing, (J,)."""
        return np.where(plan >= 0, np.append(self.column, 0.0)[plan], self.nothing)

    def of_change(self, c: Choices, plan: Ints) -> Floats:
        """Return by how much the cheapest change of each group adds to its loss, (J,)."""
        held = np.zeros(c.n, dtype=bool)
        held[plan[plan >= 0]] = True
        other = -group_max(c, -np.where(held, np.inf, self.column), -np.inf)
        return np.where(plan >= 0, np.minimum(other, self.nothing), other) - self.of_plan(plan)
