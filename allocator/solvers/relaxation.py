"""The linear relaxation of a round, solved again whenever bounds of its rows have changed.

A solution begins from the basis of the one before, so it takes few steps of the simplex method.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from allocator.solvers.base import SolveLimits
from allocator.solvers.highs import engine_options, pass_model
from allocator.solvers.scaling import row_scale, value_scale
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats


class Relaxation:
    """The linear relaxation of choices, kept in HiGHS."""

    def __init__(self, c: Choices) -> None:
        import highspy

        new: Any = highspy.Highs
        new.resetGlobalScheduler(True)  # as in highs.py
        self._engine = new()
        self._optimal = highspy.HighsModelStatus.kOptimal
        for name, value in engine_options(SolveLimits(), is_mip=True).items():
            self._engine.setOptionValue(name, value)
        self._scale, self._unit = value_scale(c.model, 10), row_scale(c.model)
        pass_model(highspy, self._engine, c.model, self._scale, self._unit)
        columns, none = np.arange(c.n, dtype=np.int32), np.zeros(c.n, dtype=np.uint8)
        self._engine.changeColsIntegrality(c.n, columns, none)
        self._low = self._high = np.full(c.R, np.nan)  # rows that are not equal are passed
        self._columns = np.ones(c.n, dtype=bool)

    def solve(self, c: Choices, columns: Bools, until: float) -> tuple[float, Floats]:
        """Return the value of the best solution, and prices (m,).

        The value is inf if HiGHS found none `until` then (time.monotonic). c has the same columns
        and rows as before, with other bounds. Only `columns` (n,) are used.
        """
        new = np.flatnonzero(columns != self._columns).astype(np.int32)
        upper = columns[new].astype(np.float64)
        self._engine.changeColsBounds(len(new), new, np.zeros(len(new)), upper)
        other = np.flatnonzero((c.low != self._low) | (c.high != self._high))
        rows = c.rows[other].astype(np.int32)
        low, high = c.low[other] * self._unit[rows], c.high[other] * self._unit[rows]
        self._engine.changeRowsBounds(len(rows), rows, low, high)
        self._low, self._high, self._columns = c.low, c.high, columns
        end_s = self._engine.getRunTime() + max(0.0, until - time.monotonic())
        self._engine.setOptionValue("time_limit", end_s)
        self._engine.run()
        prices = -np.array(self._engine.getSolution().row_dual) * self._unit / self._scale
        value = -self._engine.getInfo().objective_function_value / self._scale
        return value if self._engine.getModelStatus() == self._optimal else math.inf, prices
