"""The Lagrangian dual made smooth: each group's maximum becomes a log-sum-exp of temperature mu.

    f_mu(p) = b'p + mu sum_j log( [1 unless must] + sum_{c of j} exp((v_c - a_c'p) / mu) ),   p >= 0

As mu -> 0, f_mu falls to the dual. Its gradient and Hessian are those of a logit choice model. A
few Newton steps in the prices replace thousands of subgradient steps. The smoothing is that of
Nesterov 2005, "Smooth minimization of non-smooth functions". All rows here are `<=` rows in scaled
units.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from formulations.bounds.curvature import Curvature, plus_diagonal, solve
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.sparse_rows import SparseRows

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
            d = d + solve(H, -(g + H @ d if d.any() else g), free)
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
