"""The core: the few groups whose choice is in doubt at the present prices, as a small LP or MIP.

HiGHS solves it. All other groups keep their best column, and their use is subtracted from the
bounds of the coupling rows. Rows of the core: the R coupling rows, then one row per core group.
Columns: two penalty columns per coupling row (too much, too little), so that the LP always has a
solution, then columns of the groups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

INF = math.inf
MANY = 300  # with more new columns, a hot start is slower than a cold one


class RestrictedMaster:
    """A restricted model; values are scaled by 1/value_scale, the mean of the best values.

    Attributes
    ----------
    free : (J,)
        True where the group is in the core.
    fixed : (J,)
        Column of the other groups, -1 = nothing.
    columns : (k,)
        Model columns in the order of the LP.
    """

    def __init__(
        self, choices: Choices, free: Bools, fixed: Ints, columns: Ints, value_scale: float
    ) -> None:
        import highspy

        self._hp: Any = highspy
        self.choices = choices
        self.free = free.copy()
        self.value_scale = value_scale
        self.fixed = np.where(free, -1, fixed)
        self.groups = np.flatnonzero(free)
        self.row = np.full(choices.J, -1, dtype=np.int64)
        self.row[self.groups] = np.arange(len(self.groups))
        self.columns = columns
        self.has = np.zeros(choices.n, dtype=bool)
        self.has[columns] = True
        self._base: float | None = None
        self.penalties = 2 * choices.R
        self._new_columns = 0
        self.engine = self._new()
        self.kinds = self._hp.HighsModelStatus
        self.feasible_status = self._hp.kSolutionStatusFeasible

    @property
    def base(self) -> float:
        """Value of the fixed groups."""
        if self._base is None:
            self._base = self.choices.value_of(self.fixed)
        return self._base

    def bounds(self) -> tuple[Floats, Floats]:
        """Return what the coupling rows leave to the core, (R,) each, with their tolerance."""
        use = self.choices.use_of(self.fixed)
        return self.choices.low - use, self.choices.high - use

    def load(self, integer: bool, penalty: Floats | None) -> None:
        """Pass the model to HiGHS.

        penalty (R,) is the cost of breaking a row by one; None means that the rows must hold.
        """
        c = self.choices
        R = self.choices.R
        low, high = self.bounds()
        index, value, start = self._entries(self.columns)
        P = self.penalties
        fine = np.zeros(P) if penalty is None else np.repeat(penalty / self.value_scale, 2)
        cost = np.concatenate([fine, -c.value[self.columns] / self.value_scale])
        upper = np.concatenate(
            [np.zeros(P) if penalty is None else np.full(P, INF), np.ones(len(self.columns))]
        )
        row = np.repeat(np.arange(R), 2)
        self.engine.passModel(
            len(cost),
            R + len(self.groups),
            P + len(index),
            int(self._hp.MatrixFormat.kColwise),
            int(self._hp.ObjSense.kMinimize),
            0.0,
            cost,
            np.zeros(len(cost)),
            upper,
            np.concatenate([low, np.where(c.mandatory[self.groups], 1.0, -INF)]),
            np.concatenate([high, np.ones(len(self.groups))]),
            np.concatenate([np.arange(P), P + start]).astype(np.int32),
            np.concatenate([row, index]).astype(np.int32),
            np.concatenate([np.tile([-1.0, 1.0], R), value]),
            np.concatenate([np.zeros(P), np.full(len(self.columns), 1 if integer else 0)]).astype(
                np.int32
            ),
        )

    def _new(self) -> Any:
        engine = self._hp.Highs()
        for name, value in {
            "output_flag": False,
            "threads": 1,
            "presolve": "off",
            "solver": "simplex",
        }.items():
            engine.setOptionValue(name, value)
        return engine

    def _entries(self, columns: Ints) -> tuple[Ints, Floats, Ints]:
        """Return the LP entries of some columns: rows, coefficients, and starts (k+1,).

        The entry of the group's row is the last one of each column.
        """
        a = self.choices.matrix
        R = self.choices.R
        part = a[columns]
        start = part.indptr.astype(np.int64) + np.arange(len(columns) + 1)
        index = np.empty(start[-1], dtype=np.int64)
        value = np.ones(start[-1])
        last = start[1:] - 1
        inner = np.ones(start[-1], dtype=bool)
        inner[last] = False
        index[inner], value[inner] = part.indices, part.data
        index[last] = R + self.row[self.choices.group[columns]]
        return index, value, start

    def add(self, columns: Ints, groups: Ints | None = None) -> None:
        """Add columns to the LP.

        Fixed groups that own one of them, and fixed groups of `groups`, become free. The column
        that they had is added as well.
        """
        c = self.choices
        owners = np.unique(
            c.group[columns] if groups is None else np.concatenate([c.group[columns], groups])
        )
        new = owners[~self.free[owners]]
        if len(new):
            had = self.fixed[new]
            columns = np.concatenate([columns, had[had >= 0]])
            self._release(new)
        columns = np.unique(columns)
        columns = columns[~self.has[columns]]
        index, value, start = self._entries(columns)
        k = len(columns)
        if k:
            self.engine.addCols(
                k,
                -c.value[columns] / self.value_scale,
                np.zeros(k),
                np.ones(k),
                len(index),
                start[:-1].astype(np.int32),
                index.astype(np.int32),
                value,
            )
        self.columns = np.concatenate([self.columns, columns])
        self.has[columns] = True
        self._new_columns += k

    def _release(self, groups: Ints) -> None:
        """Free some fixed groups: add their rows, and return their use to the coupling rows."""
        c = self.choices
        self.row[groups] = len(self.groups) + np.arange(len(groups))
        self.groups = np.concatenate([self.groups, groups])
        self.free[groups] = True
        self.fixed[groups] = -1
        self._base = None
        n = len(groups)
        self.engine.addRows(
            n,
            np.where(c.mandatory[groups], 1.0, -INF),
            np.ones(n),
            0,
            np.zeros(n, dtype=np.int32),
            np.zeros(0, dtype=np.int32),
            np.zeros(0),
        )
        low, high = self.bounds()
        self.engine.changeRowsBounds(c.R, np.arange(c.R, dtype=np.int32), low, high)

    def run(self, after_columns: bool) -> bool:
        """Solve the LP from its present basis; return whether it succeeded.

        The primal simplex is used after new columns, the dual simplex after new bounds. After many
        new columns the LP is solved from scratch, which is five times faster.
        """
        many = after_columns and self._new_columns > MANY
        if many:
            self.engine.clearSolver()
        self._new_columns = 0
        self.engine.setOptionValue("simplex_strategy", 4 if after_columns and not many else 1)
        self.engine.run()
        return bool(self.engine.getModelStatus() == self.kinds.kOptimal)

    def solution(self) -> tuple[Floats, Floats, Floats]:
        """Return x (k,) of the columns, prices p (R,) of the coupling rows, and dual values u (J,).

        u is the dual value of each group of the core, and 0 for other groups.
        """
        found = self.engine.getSolution()
        y = -np.array(found.row_dual) * self.value_scale
        u = np.zeros(self.choices.J)
        u[self.groups] = y[self.choices.R :]
        return np.array(found.col_value)[self.penalties :], y[: self.choices.R], u

    def objective(self) -> float:
        """Return the value of the LP solution with fixed groups, less the penalties."""
        return float(-self.engine.getInfo().objective_function_value * self.value_scale + self.base)

    def broken(self) -> float:
        """Return the sum of the penalty columns."""
        return float(np.array(self.engine.getSolution().col_value)[: self.penalties].sum())

    def set_penalty(self, penalty: Floats | None) -> None:
        """Change the cost of breaking rows; None forbids it."""
        P = self.penalties
        at = np.arange(P, dtype=np.int32)
        if penalty is None:
            self.engine.changeColsBounds(P, at, np.zeros(P), np.zeros(P))
        else:
            self.engine.changeColsCost(P, at, np.repeat(penalty / self.value_scale, 2))

    def bound_columns(self, at: Ints, low: Floats, high: Floats) -> None:
        """Change the bounds of columns, given by their positions in `columns`."""
        self.engine.changeColsBounds(len(at), (self.penalties + at).astype(np.int32), low, high)
