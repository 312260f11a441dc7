"""The Lagrangian dual made smooth: each group's maximum becomes a log-sum-exp of temperature mu.

    f_mu(p) = b'p + mu sum_j log( [1 unless must] + sum_{c of j} exp((v_c - a_c'p) / mu) ),   p >= 0

As mu -> 0, f_mu falls to the dual. Its gradient and Hessian are those of a logit choice model. A
few Newton steps in the prices replace thousands of subgradient steps. The smoothing is that of
Nesterov 2005, "Smooth minimization of non-smooth functions". All rows here are `<=` rows in scaled
units (`ScaledRows`).

In its second derivative few numbers are not 0. A group touches the rows of one tenant and rows that
many groups touch (pools, a budget, a limit on changes), so two rows of different tenants have
nothing to do with each other. Where there are many rows, the equations are solved by a sparse
factorisation.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, SparseRows, ragged, starts

STEPS = 29  # of one search, at most
CAP = 1e4  # largest price, in mean values per mean use
REACH = 20.0  # first reach of a Newton step, in temperatures


@dataclass(frozen=True)
class Point:
    """The smooth dual at one point.

    `f` is its value and `g` (R,) its gradient at the temperature `mu`. `x` (n,) is the probability
    of each column.
    """

    f: float
    g: Floats
    x: Floats
    mu: float


class Smooth:
    """The smooth dual of some non-empty groups.

    Parameters
    ----------
    v : (n,)
        Values of the columns.
    A : (n, R)
        Use of the rows by column.
    size : (J,)
        Columns of each group.
    free : (J,)
        True where the group may take nothing.
    b : (R,)
        Upper bounds of the rows.
    """

    def __init__(self, v: Floats, A: SparseRows, size: Ints, free: Bools, b: Floats) -> None:
        self.v = v
        self.A = A
        self.b = b
        self.size = size
        self.free = free
        self._first = np.cumsum(size) - size
        self._group = np.repeat(np.arange(len(size)), size)

    @property
    def R(self) -> int:
        """Number of rows."""
        return len(self.b)

    def reduced(self, p: Floats) -> Floats:
        """Return v - A p, (n,)."""
        return np.asarray(self.v - self.A @ p, dtype=np.float64)

    def exact(self, p: Floats) -> float:
        """Return the dual itself (mu = 0), without a margin for rounding."""
        best = np.maximum.reduceat(self.reduced(p), self._first)
        return float(self.b @ p + np.where(self.free, np.maximum(best, 0.0), best).sum())

    def at(self, p: Floats, mu: float) -> Point:
        """Return value, gradient and probabilities at temperature mu."""
        x = self.reduced(p)
        top = np.maximum.reduceat(x, self._first)
        top = np.where(self.free, np.maximum(top, 0.0), top)
        x -= np.repeat(top, self.size)
        x *= 1.0 / mu
        np.maximum(x, -80.0, out=x)
        np.exp(x, out=x)
        z = np.add.reduceat(x, self._first) + np.where(
            self.free, np.exp(np.clip(-top / mu, -80.0, 0.0)), 0.0
        )
        x *= np.repeat(1.0 / z, self.size)
        f = float(self.b @ p + top.sum() + mu * np.log(z).sum())
        return Point(f, self.b - x @ self.A, x, mu)

    def hessian(self, point: Point) -> Any:
        """Return the second derivative at a point, (R, R)."""
        return self._curvature.spread(point.x) * (1.0 / point.mu)

    @cached_property
    def _curvature(self) -> Curvature:
        return Curvature(self.A, self._group, len(self.size))


def newton(
    s: Smooth,
    p: Floats,
    mu: float,
    tol: float,
    deadline: float,
    cap: float | Floats = CAP,
    low: float | Floats = 0.0,
) -> Floats:
    """Minimise f_mu over low <= p <= cap by damped Newton steps from p.

    The damping |g_i| / reach limits the steps of saturated rows, where H vanishes. The reach adapts
    row by row.

    Parameters
    ----------
    tol : float
        Stop when a step promises less than tol x |f|.
    deadline : float
        Latest end (time.monotonic).
    cap : float or (R,)
        Largest price. It stands for a penalty on breaking a row; without it the dual of an
        infeasible model has no minimum.
    low : float or (R,)
        Smallest price, at least 0.

    Returns
    -------
    (R,)
        Prices.
    """
    at = s.at(p, mu)
    reach = np.full(s.R, REACH * mu)
    H = s.hessian(at)
    for _ in range(STEPS):
        if time.monotonic() >= deadline:
            break
        damped = plus_diagonal(H, np.abs(at.g) / (reach * (1.0 + p)) + 1e-12)
        step = box_step(at.g, damped, low - p, cap - p)
        expected = at.g + H @ step
        promise = -0.5 * float((at.g + expected) @ step)
        if not promise > tol * max(abs(at.f), 1e-12):
            break
        new = s.at(p + step, mu)
        # rows where the quadratic model errs by more than half of what it promises
        wrong = np.abs((new.g - expected) * step)
        guilty = wrong > 0.25 * np.abs((at.g + expected) * step) + 1e-9 * promise
        share = (at.f - new.f) / promise
        if share < 0.5:
            reach[guilty] = np.minimum(reach[guilty], np.abs(step[guilty]) + 1e-12) / (
                2.0 if share > 0.1 else 5.0
            )
        if share > 0.1:
            reach[~guilty] *= 3.0
            p = p + step
            at = new
            H = s.hessian(at)
        elif np.abs(step).max() < 1e-10:
            break
    return p


def box_step(g: Floats, H: Any, low: Floats, high: Floats) -> Floats:
    """Return the d that minimises g'd + d'Hd/2 over low <= d <= high, by active sets."""
    down = (low >= 0) & (g >= 0)
    up = (high <= 0) & (g <= 0)
    d = np.zeros(len(g))
    for _ in range(60):
        d = np.where(down, low, np.where(up, high, 0.0))
        free = ~(down | up)
        if free.any():
            d = d + solve_newton_equations(H, -(g + H @ d if d.any() else g), free)
        under = free & (d < low)
        over = free & (d > high)
        if under.any() or over.any():
            down = down | under
            up = up | over
            continue
        slope = g + H @ d
        tiny = 1e-10 * (1.0 + np.abs(g))
        back = (down & (slope < -tiny)) | (up & (slope > tiny))
        if not back.any():
            break
        down = down & ~back
        up = up & ~back
    return np.clip(d, low, high)


DENSE = 150  # up to so many rows a dense matrix costs less


class Curvature:
    """Sums over columns and groups.

    Parameters
    ----------
    A : (n, R)
        Use of the rows by column.
    group : (n,)
        Group of each column, of J.
    """

    def __init__(self, A: SparseRows, group: Ints, J: int) -> None:
        self.A, self.R = A, A.shape[1]
        touched, self._sum = np.unique(group[A.row] * self.R + A.indices, return_inverse=True)
        owner, row = np.divmod(touched, self.R)
        self._left, self._right = _pairs(starts(owner, J))
        # two rows that a column uses are also two rows of its group, so each pair has a number
        cells, self._cell = np.unique(
            row[self._left] * self.R + row[self._right], return_inverse=True
        )
        left, right = _pairs(A.indptr)
        pairs = A.indices[left].astype(np.int64), A.indices[right]
        width = np.diff(A.indptr)
        self._squares = SparseRows(
            A.data[left] * A.data[right],
            np.searchsorted(cells, np.minimum(*pairs) * self.R + np.maximum(*pairs)),
            np.append(0, np.cumsum(width * (width + 1) // 2)),
            (A.shape[0], len(cells)),
        )
        row, column = np.divmod(cells, self.R)
        mirrored = np.flatnonzero(row < column)
        row, column = np.append(row, column[mirrored]), np.append(column, row[mirrored])
        order = np.argsort(column, kind="stable")
        self._place = np.append(np.arange(len(row) - len(mirrored)), mirrored)[order]
        self._row, self._column = row[order], column[order]

    def spread(self, x: Floats) -> Any:
        """Return sum_c x_c a_c a_c' - sum_j e_j e_j', with e_j the sum of x_c a_c in group j.

        It is a matrix (R, R), of numpy, or of scipy if it is large.
        """
        e = np.bincount(self._sum, self.A.data * x[self.A.row])
        amount = x @ self._squares
        amount -= np.bincount(self._cell, e[self._left] * e[self._right], len(amount))
        amount = amount[self._place]
        if self.R > DENSE:
            from scipy import sparse

            start = starts(self._column, self.R)
            return sparse.csc_array((amount, self._row, start), shape=(self.R, self.R))
        dense = np.zeros((self.R, self.R))
        dense[self._row, self._column] = amount
        return dense


def plus_diagonal(H: Any, more: Floats) -> Any:
    """Return a matrix of Curvature with numbers (R,) added to its diagonal."""
    if isinstance(H, np.ndarray):
        return H + np.diag(more)
    from scipy import sparse

    return H + sparse.diags_array(more, format="csc")


def solve_newton_equations(H: Any, rhs: Floats, free: Bools) -> Floats:
    """Return d (R,) that solves the equations of the rows `free`, 0 on all other rows.

    Of many solutions it is the smallest one.
    """
    d = np.zeros(len(rhs))
    own, right = H[free][:, free], rhs[free]
    try:
        if isinstance(own, np.ndarray):
            d[free] = np.linalg.solve(own, right)
        else:
            from scipy.sparse.linalg import splu

            d[free] = splu(own).solve(right)
    except (np.linalg.LinAlgError, RuntimeError):  # singular
        d[free] = np.linalg.lstsq(own if isinstance(own, np.ndarray) else own.toarray(), right)[0]
    return d


def _pairs(start: Ints) -> tuple[Ints, Ints]:
    """Return all pairs (left, right), left <= right, of entries that begin at start[i] .. [i+1]."""
    end = np.repeat(start[1:], np.diff(start))
    return ragged(np.arange(len(end)), end)


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
