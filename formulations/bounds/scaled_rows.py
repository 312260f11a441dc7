"""The coupling rows of choices as `<=` rows in natural units, and smooth duals over them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.bounds.smoothing import Smooth
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.sparse_rows import SparseRows

SAMPLE_SLACK = 0.02  # by how much the rows of a sample are wider, relative


@dataclass(frozen=True)
class ScaledRows:
    """Coupling rows as `<=` rows in natural units.

    Row r stands for sign_r x coupling row at_r / unit_r <= b_r. Values are divided by
    `value_scale`, the mean of the groups' largest values.
    """

    at: Ints
    sign: Floats
    unit: Floats
    b: Floats
    value_scale: float
    R: int

    @staticmethod
    def of(choices: Choices) -> ScaledRows | None:
        """Return the rows, or None if no row couples groups or no column has a value."""
        value_scale = 0.0
        if len(choices.filled):
            size = np.abs(choices.value)
            value_scale = float(np.maximum.reduceat(size, choices.start[choices.filled]).mean())
        up = np.flatnonzero(np.isfinite(choices.high))
        down = np.flatnonzero(np.isfinite(choices.low))
        at = np.concatenate([up, down])
        sign = np.concatenate([np.ones(len(up)), -np.ones(len(down))])
        if not len(at) or not 0 < value_scale < math.inf:
            return None
        unit = choices.unit[at]
        b = np.concatenate([choices.high[up], -choices.low[down]]) / unit
        return ScaledRows(at, sign, unit, b, value_scale, choices.R)

    def smooth(self, choices: Choices, groups: Ints | None) -> Smooth:
        """Return the smooth dual of some non-empty groups, None = all.

        The groups get their share of the right-hand side.
        """
        own = choices.filled if groups is None else groups
        share = len(own) / len(choices.filled)
        columns = choices.columns_of(own)
        A = self.scale(choices, choices.matrix if groups is None else choices.matrix[columns])
        b = self.b * share
        # a sample of a feasible model may break its rows by chance, so they are relaxed a little
        if groups is not None:
            b = b + SAMPLE_SLACK * np.abs(b)
        return Smooth(
            choices.value[columns] / self.value_scale,
            A,
            np.diff(choices.start)[own],
            ~choices.mandatory[own],
            b,
        )

    def smooth_near(self, choices: Choices, p: Floats, reach: Floats) -> tuple[Smooth, float]:
        """Return the smooth dual of what may be best at prices between p - reach and p + reach.

        Also return the value of the groups that have only one such column. It is left out, and so
        is their use of the rows.
        """
        c = choices
        reduced = c.value - c.matrix @ self.join(p)
        width: Floats = np.zeros(self.R)
        np.add.at(width, self.at, reach / self.unit * self.value_scale)
        change = (c.matrix if (c.matrix.data >= 0).all() else abs(c.matrix)) @ width
        sure = np.zeros(c.J)
        sure[c.filled] = np.maximum.reduceat(reduced - change, c.start[c.filled])
        may_wait = ~c.mandatory & (sure <= 0.0)
        sure = np.where(c.mandatory, sure, np.maximum(sure, 0.0))
        columns = np.flatnonzero(reduced + change >= np.repeat(sure, np.diff(c.start)))
        count = np.bincount(c.group[columns], minlength=c.J)
        is_open = (count > 0) & (count + may_wait > 1)
        own = is_open[c.group[columns]]
        taken = columns[~own]
        use = c.matrix.sum_of(taken)[self.at]
        smooth = Smooth(
            c.value[columns[own]] / self.value_scale,
            self.scale(c, c.matrix[columns[own]]),
            count[is_open],
            may_wait[is_open],
            self.b - self.sign * use / self.unit,
        )
        return smooth, float(c.value[taken].sum()) / self.value_scale

    def scale(self, choices: Choices, matrix: SparseRows) -> SparseRows:
        """Return columns (k, R) of the choices in the scaled rows."""
        if len(self.at) != choices.R or (self.at != np.arange(choices.R)).any():
            matrix = matrix.take_columns(self.at)
        scaled = np.take(self.sign / self.unit, matrix.indices)
        scaled *= matrix.data
        return SparseRows(scaled, matrix.indices, matrix.indptr, matrix.shape)

    def join(self, p: Floats) -> Floats:
        """Turn prices of the scaled rows into prices of the coupling rows (R,)."""
        net = np.bincount(self.at, self.sign * p / self.unit * self.value_scale, minlength=self.R)
        return np.asarray(net, dtype=np.float64)

    def split(self, prices: Floats) -> Floats:
        """Reverse `join`."""
        return np.maximum(self.sign * prices[self.at] * self.unit / self.value_scale, 0.0)
