"""Changes of a choice, many at once: the effect of switching groups on the rows and the value.

A move sends group j to column c, or to nothing (column -1, only for groups that need not run).

Of a large model only few columns take part: those that the prices nearly chose. Moves of single
groups and of pairs inspect every column repeatedly, but at good prices only near ties need to be
inspected (the core of a knapsack: Kellerer, Pferschy and Pisinger 2004, section 5.4). All other
groups keep their columns, and their use is subtracted from the bounds. What columns lose at the
prices (`Losses`) says which of them a plan above a value may use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.lagrangian import Dual, group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, LinearModel, SparseRows


@dataclass(frozen=True)
class Moves:
    """k moves.

    Attributes
    ----------
    group, column : (k,)
        The group that moves, and its new column.
    gain : (k,)
        Gain of value.
    loss : (k,)
        Reduced value that is given up at the prices.
    delta : (k, R)
        Sparse change of the activities.
    """

    group: Ints
    column: Ints
    gain: Floats
    loss: Floats
    delta: SparseRows

    def __len__(self) -> int:
        return len(self.group)

    def take(self, which: Ints) -> Moves:
        """Return some of the moves, in the given order."""
        return Moves(
            self.group[which],
            self.column[which],
            self.gain[which],
            self.loss[which],
            self.delta[which],
        )

    def entries(self, i: int) -> tuple[Ints, Floats]:
        """Return rows and amounts of one move."""
        a = self.delta.indptr[i]
        b = self.delta.indptr[i + 1]
        return self.delta.indices[a:b], self.delta.data[a:b]


class Board:
    """A choice (J,) that changes, its activities use (R,), and how far it breaks the rows.

    Violations are measured in units of the rows' mean coefficient, so that dollars and GPUs add up.
    """

    def __init__(self, choices: Choices, choice: Ints, p: Floats) -> None:
        self.choices = choices
        self.choice = choice.copy()
        self.p = p
        self.reduced = choices.value - choices.matrix @ p
        self.unit = choices.unit
        self.use = choices.use_of(self.choice)

    def refresh(self) -> None:
        """Recompute the activities, because sums of many moves drift."""
        self.use = self.choices.use_of(self.choice)

    def excess(self) -> Floats:
        """Return how far each row is broken, (R,), in units; 0 where it holds."""
        c = self.choices
        return np.maximum(np.maximum(self.use - c.high, c.low - self.use), 0.0) / self.unit

    def rent(self) -> Floats:
        """Return the price of the units of each row, (R,), that the choice leaves unused or misses.

        It has a meaning only if the choice keeps the rows.
        """
        c = self.choices
        p = self.p
        edge = np.where(p > 0, c.high, np.where(p < 0, c.low, self.use))
        return p * (edge - self.use)

    def moves(self, columns: Ints, leave: Ints) -> Moves:
        """Return the moves of groups to their `columns`, and of the groups `leave` to nothing."""
        c = self.choices
        group = np.concatenate([c.group[columns], leave])
        column = np.concatenate([columns, np.full(len(leave), -1)])
        now = self.choice[group]
        values = np.append(c.value, 0.0)
        reduced = np.append(self.reduced, 0.0)
        delta = self._lines(column) - self._lines(now)
        return Moves(
            group, column, values[column] - values[now], reduced[now] - reduced[column], delta
        )

    def violation_relief(self, moves: Moves) -> tuple[Floats, Floats]:
        """Return how much each move lowers the sum of violations, and its cost, (k,) each.

        The relief is negative where a move adds violations. The cost is the value lost beyond what
        the prices allow for the violation removed. A large job that ties at the prices has no loss,
        but it frees more than is needed, and that costs.
        """
        c = self.choices
        d = moves.delta
        row = d.indices
        new = self.use[row] + d.data
        after = np.maximum(np.maximum(new - c.high[row], c.low[row] - new), 0.0) / self.unit[row]
        change = self.excess()[row] - after
        owner = np.repeat(np.arange(len(moves)), np.diff(d.indptr))
        allowed = np.bincount(owner, change * (self.unit * np.abs(self.p))[row], len(moves))
        return (
            np.asarray(np.bincount(owner, change, len(moves)), dtype=np.float64),
            -moves.gain - allowed,
        )

    def relief_of(self, moves: Moves, i: int) -> float:
        """Return the relief of one move on the present board."""
        c = self.choices
        row, amount = moves.entries(i)
        old = self.use[row]
        unit = self.unit[row]
        high = c.high[row]
        low = c.low[row]
        new = old + amount
        before = np.maximum(np.maximum(old - high, low - old), 0.0)
        after = np.maximum(np.maximum(new - high, low - new), 0.0)
        return float(((before - after) / unit).sum())

    def apply(self, moves: Moves, i: int) -> None:
        """Make one move; its delta must have been computed for the group's present column."""
        row, amount = moves.entries(i)
        self.use[row] += amount
        self.choice[moves.group[i]] = moves.column[i]

    def _lines(self, column: Ints) -> SparseRows:
        """Return rows of the matrix, empty ones for column -1."""
        c = self.choices
        width = np.append(np.diff(c.matrix.indptr), 0)[column]
        end = np.cumsum(width)
        at = np.arange(end[-1] if len(end) else 0) + np.repeat(
            c.matrix.indptr[column] - end + width, width
        )
        return SparseRows(
            c.matrix.data[at],
            c.matrix.indices[at],
            np.append(0, end),
            (len(column), c.R),
        )


ROUNDING = 1e-9  # relative, of the value of a plan


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

    def restrict(
        self, c: Choices, plan: Ints, most: float = math.inf
    ) -> tuple[LinearModel, Ints, bool]:
        """Return the model of the groups that can change in better plans.

        All other groups keep what they have in the plan (J,): one more column, the last, is 1.

        Parameters
        ----------
        most : float
            Of more columns, the groups nearest to a change have theirs.

        Returns
        -------
        LinearModel, ndarray of int and bool
            The model, its columns but the last among those of `c`, (k,), and whether it has all
            better plans.
        """
        value = c.value_of(plan)
        near, changes = self.changes(c, plan, value - ROUNDING * abs(value))
        own = np.bincount(c.group[near], minlength=c.J) * changes
        order = np.argsort(self.of_change(c, plan), kind="stable")
        is_few = own[order].cumsum() <= most
        changes[order[~is_few]] = False
        columns = np.flatnonzero(near & changes[c.group])
        kept = c.to_x(np.where(changes, -1, plan))
        use, few = c.model.activity(kept), c.model.take(columns)
        rows = np.flatnonzero(use)
        model = replace(
            few,
            value=np.append(few.value, c.value @ kept),
            col_lower=np.append(few.col_lower, 1.0),
            col_upper=np.append(few.col_upper, 1.0),
            integer=np.append(few.integer, True),
            start=np.append(few.start, few.start[-1] + len(rows)),
            index=np.append(few.index, rows),
            coef=np.append(few.coef, use[rows]),
        )
        return model, columns, bool(is_few.all())


NEAR, NEAR_PER_ROW = 2_000, 30  # columns of a core: a constant, and for each row


@dataclass(frozen=True)
class Focus:
    """A small model with the same rows as a whole model.

    `groups` (G,) and `columns` (k,) are those of the whole model, and `base` (J,) is a choice of
    the whole model.
    """

    view: Choices
    prices: Floats
    groups: Ints
    columns: Ints
    base: Ints

    def narrow(self, choice: Ints) -> Ints:
        """Translate a choice of the whole (J,) that keeps to these columns to the view (G,)."""
        own = choice[self.groups]
        return np.where(own >= 0, np.searchsorted(self.columns, own), -1)

    def widen(self, own: Ints) -> Ints:
        """Translate a choice of the view (G,) to the whole (J,)."""
        choice = self.base.copy()
        choice[self.groups] = np.append(self.columns, -1)[own]
        return choice


def focus_on_near_ties(
    choices: Choices, prices: Floats, most_loss: float = math.inf
) -> NearTies | None:
    """Return the near ties at model prices (m,), None if they are most of the columns.

    No column loses more than `most_loss`, and groups that lose at most so much may take nothing.
    """
    want = NEAR + NEAR_PER_ROW * choices.R + choices.n // 100
    return None if choices.n < 2 * want else NearTies(choices, prices, want, most_loss)


class NearTies:
    """The columns of a model that lose least at some prices.

    There are about `want` of them, and about `want` / 8 columns of the most valuable groups,
    because these decide how well all others can be packed. No column loses more than `most_loss`,
    and then every group that loses at most so much may take nothing.
    """

    def __init__(
        self, choices: Choices, prices: Floats, want: int, most_loss: float = math.inf
    ) -> None:
        self.choices = choices
        self.p = project_prices(choices, prices)
        reduced = choices.value - choices.matrix @ self.p
        best = group_max(choices, reduced, 0.0)
        best = np.where(choices.mandatory, best, np.maximum(best, 0.0))
        loss = np.repeat(best, np.diff(choices.start)) - reduced
        nothing = np.where(choices.mandatory, np.inf, best)
        other = np.concatenate([loss[loss > 0], nothing[nothing > 0]])
        limit = np.partition(other, want - 1)[want - 1] if want <= len(other) else np.inf
        self._near: Bools = loss <= min(limit, most_loss)
        valuable = choices.columns_of(_valuable(choices, want // 8))
        self._near[valuable[loss[valuable] <= most_loss]] = True
        count = np.bincount(choices.group[self._near], minlength=choices.J)
        limit = limit if most_loss == math.inf else most_loss
        self._bound_to_take: Bools = nothing > limit
        self._free: Bools = count + (nothing <= limit) > 1

    def around(self, choice: Ints) -> Focus:
        """Return the view of these columns and those of a choice (J,).

        Groups with no other column keep what they have in the choice.
        """
        c = self.choices
        near = self._near.copy()
        free = self._free.copy()
        # a group whose column is not a near tie may leave it
        away = np.where(choice >= 0, np.append(~near, False)[choice], self._bound_to_take)
        near[choice[away & (choice >= 0)]] = True
        free |= away
        own = near & free[c.group]
        columns = np.flatnonzero(own)
        groups = np.flatnonzero(free)
        fixed = np.where(free, -1, choice)
        use = c.use_of(fixed)
        view = Choices.of_columns(
            c.value[columns],
            (np.cumsum(free) - 1)[c.group[columns]],
            c.mandatory[groups],
            c.low - use,
            c.high - use,
            c.matrix[columns],
        )
        return Focus(view, self.p, groups, columns, choice)


def _valuable(choices: Choices, most: int) -> Ints:
    """Return the most valuable groups, which own about `most` columns."""
    size = np.diff(choices.start)
    order = np.argsort(-group_max(choices, choices.value, 0.0), kind="stable")
    return order[: int(np.searchsorted(np.cumsum(size[order]), most))]
