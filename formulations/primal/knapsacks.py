"""Better plans where every column uses one row: rows are knapsacks, and groups have prices.

    L(u) = sum_j u_j + sum_r max { sum_c (v_c - u_j) x_c : sum_c a_c x_c <= high_r, x binary }

is at least the value of every plan (c of row r, j the group of c; u_j >= 0 where a group may hold
nothing) and never above the bound of prices for rows (Geoffrion, "Lagrangean relaxation for integer
programming", 1974). A column that most knapsacks take in late steps of the prices belongs to good
plans. So a dive holds some of these columns, improves the prices of the other groups, and so on. It
ends without a plan when the bound tells that no better one is left. Then drawn rows are emptied and
filled by a dive again, as long as this finds better plans.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from formulations.branching.branch_and_bound import UNITS, kernel
from formulations.branching.knapsack_loops import PATIENCE, Items
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, starts

HELD = 1 / 16  # share of the open groups whose columns are held at once
STEPS = 2 * PATIENCE  # of the prices, before columns are held
FIRST = 25  # times as many steps of all prices before the first dive
EPS = 1e-9


@dataclass(frozen=True)
class Knapsacks:
    """The columns by row, and prices of the groups.

    Attributes
    ----------
    items : Items
        The columns, row by row, with what they use in whole units.
    column, row : (n,)
        Their numbers in the model, and their rows.
    room : (R,)
        The limit of every row, in the same units.
    price : (J,)
        Prices of all groups, near the best ones after `find_prices`.
    """

    c: Choices
    items: Items
    column: Ints
    row: Ints
    room: Ints
    price: Floats

    @staticmethod
    def of(c: Choices, price: Floats) -> Knapsacks | None:
        """Return the columns by row; None if one uses no row, several rows, or no whole units."""
        use = c.matrix.data / UNITS[0]
        is_single = (np.diff(c.matrix.indptr) == 1).all() and (c.low <= 0).all() and c.R > 1
        if not c.n or not is_single or (use != np.rint(use)).any() or (use <= 0).any():
            return None
        unit = int(np.gcd.reduce(use.astype(np.int64)))
        row = c.matrix.indices.astype(np.int64)
        order = np.argsort(row, kind="stable")
        weight = use[order].astype(np.int64) // unit
        items = Items(starts(row[order], c.R), c.group[order], c.value[order], weight, ~c.mandatory)
        most = np.minimum(c.high / UNITS[0], np.bincount(row, use, c.R))
        room = np.floor(most / unit + EPS).astype(np.int64)
        return Knapsacks(c, items, order, row[order], room, price.copy())

    def find_prices(self, goal: float, until: float) -> float:
        """Lower the bound of the prices of all groups until it is `goal`, or for a time; return it.

        The best prices stay in `price`, from which dives begin.
        """
        rows, every = np.arange(self.c.R), np.ones(self.c.J, dtype=bool)
        bound, share = np.inf, np.zeros(self.c.n)
        for _ in range(FIRST):
            if goal < bound and time.monotonic() < until:
                bound = self._improve(rows, self.room, every, self.price, share, goal)
        return bound

    def dive(self, rows: Ints, plan: Ints, enough: float, until: float) -> Ints | None:
        """Empty some rows and fill them anew; return a plan of a value above `enough`, or None.

        A dive holds the columns that late knapsacks take most often, and goes on with the others.
        It has none if the bound is not above `enough`, or a group that must hold one finds no room.
        """
        items, plan, price, room = self.items, plan.copy(), self.price.copy(), self.room.copy()
        at, share = np.flatnonzero(np.isin(self.row, rows)), np.zeros(self.c.n)
        open_ = plan < 0
        open_[items.group[at[np.isin(self.column[at], plan)]]] = True
        plan[open_] = -1
        value = self.c.value_of(plan)
        while open_.any():
            bound = value + self._improve(rows, room, open_, price, share, enough - value)
            if bound <= enough or time.monotonic() >= until:
                return None
            at = at[open_[items.group[at]] & (items.weight[at] <= room[self.row[at]])]
            idle = np.flatnonzero(open_ & items.idle)
            group = np.append(items.group[at], idle)
            nothing = 1 - np.bincount(items.group[at], share[at], self.c.J)[idle]
            order = np.argsort(-np.append(share[at], nothing), kind="stable")
            order = order[np.sort(np.unique(group[order], return_index=True)[1])]
            if not len(order):
                return None  # a group has to hold something, and nothing fits
            for k in order[: max(1, int(HELD * np.count_nonzero(open_)))].tolist():
                if k >= len(at):
                    open_[group[k]] = False
                elif items.weight[at[k]] <= room[self.row[at[k]]]:
                    open_[group[k]], plan[group[k]] = False, self.column[at[k]]
                    room[self.row[at[k]]] -= items.weight[at[k]]
                    value += items.value[at[k]]
        return plan

    def _improve(
        self, rows: Ints, room: Ints, open_: Bools, price: Floats, share: Floats, goal: float
    ) -> float:
        """Lower the bound of the prices of open groups; return it, above all errors of rounding."""
        improve = kernel(True, "improve_prices")
        bound = improve(self.items, rows, room, open_, price, share, goal, STEPS)
        return float(bound + 1e-12 * (np.abs(price).sum() + self.c.total_value))
