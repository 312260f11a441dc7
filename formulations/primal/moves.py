"""Changes of a choice, many at once: the effect of switching groups on the rows and the value.

A move sends group j to column c, or to nothing (column -1, only for groups that need not run).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.sparse_rows import SparseRows


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
