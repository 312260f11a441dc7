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

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.sparse_rows import SparseRows

DENSE_ROWS = 48  # largest number of rows for which E'E is a dense matrix product
EVALUATIONS = 30  # largest number of evaluations of one search
REACH = 20.0  # first reach of a Newton step, in temperatures
# systems with more rows, of which at most this share of the entries differs from 0, are sparse
SPARSE_ROWS, SPARSE_SHARE = 300, 0.3


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

    def hessian(self, point: Point) -> Floats:
        """Return the second derivative at a point, (R, R)."""
        H = (point.x @ self._squares).reshape(self.R, self.R)
        return np.asarray(
            (H + np.triu(H, 1).T - self._outer.product(point.x)) / point.mu, dtype=np.float64
        )

    @cached_property
    def _outer(self) -> _Dense | _Split:
        return _Dense(self) if self.R <= DENSE_ROWS else _Split(self)

    @cached_property
    def _squares(self) -> SparseRows:
        """Matrix (n, R*R): w times it is the upper triangle of sum_c w_c a_c a_c'."""
        A = self.A
        width = np.diff(A.indptr)
        left, right = _pairs(A.indptr, width)
        count = width * (width + 1) // 2
        row = np.minimum(A.indices[left], A.indices[right]) * self.R + np.maximum(
            A.indices[left], A.indices[right]
        )
        indptr = np.concatenate([[0], np.cumsum(count)])
        return SparseRows(A.data[left] * A.data[right], row, indptr, (A.shape[0], self.R * self.R))


def _pairs(indptr: Ints, width: Ints) -> tuple[Ints, Ints]:
    """Return the positions (left, right) of all pairs of entries of one column, left <= right."""
    count = width * (width + 1) // 2
    total = int(count.sum())
    begin = np.cumsum(count) - count
    left = np.empty(total, dtype=np.int64)
    right = np.empty(total, dtype=np.int64)
    for d in np.unique(width):
        s, t = np.triu_indices(int(d))
        on = np.flatnonzero(width == d)
        at = begin[on][:, None] + np.arange(len(s))
        left[at], right[at] = indptr[on][:, None] + s, indptr[on][:, None] + t
    return left, right


class _Dense:
    """sum_j E_j E_j', with E the expected use of each group, as one dense matrix product."""

    def __init__(self, s: Smooth) -> None:
        self._key = np.repeat(s._group, np.diff(s.A.indptr)) * s.R + s.A.indices
        self._column = np.repeat(np.arange(len(s.v)), np.diff(s.A.indptr))
        self._coef = s.A.data
        self._shape = (len(s.size), s.R)

    def product(self, x: Floats) -> Floats:
        return _gram(_expected(self._key, self._coef * x[self._column], *self._shape))


def _expected(key: Ints, amount: Floats, J: int, R: int) -> Floats:
    """Return sums of amounts by key as a dense (J, R) matrix."""
    return np.asarray(np.bincount(key, amount, J * R), dtype=np.float64).reshape(J, R)


def _gram(E: Floats) -> Floats:
    """Return E'E in slices.

    The slices are so small that the matrix library starts no threads, because these cost more time
    than they save.
    """
    J, R = E.shape
    k = max(1, 200_000 // max(1, R * R))
    whole = J - J % k
    out = E[whole:].T @ E[whole:]
    if whole:
        slices = E[:whole].reshape(-1, k, R)
        out = out + (slices.transpose(0, 2, 1) @ slices).sum(axis=0)
    return np.asarray(out, dtype=np.float64)


class _Split:
    """The same sum where most rows concern few groups, such as rows of tenants.

    Rows of many groups are dense, all other rows sparse.
    """

    def __init__(self, s: Smooth) -> None:
        A = s.A
        J = len(s.size)
        width = np.diff(A.indptr)
        group = np.repeat(s._group, width)
        touched = np.bincount(A.indices, minlength=s.R)
        wide = touched > max(1, len(s.v)) / 12
        self._wide = np.flatnonzero(wide)
        self._narrow = np.flatnonzero(~wide)
        number = np.where(wide, np.cumsum(wide) - 1, np.cumsum(~wide) - 1)
        is_wide = wide[A.indices]
        column = np.repeat(np.arange(len(s.v)), width)
        local = number[A.indices]
        self._wk = (group * len(self._wide) + local)[is_wide]
        self._wc = column[is_wide]
        self._wa = A.data[is_wide]
        key = (group * len(self._narrow) + local)[~is_wide]
        seen, self._nk = np.unique(key, return_inverse=True)
        self._nc = column[~is_wide]
        self._na = A.data[~is_wide]
        q = max(1, len(self._narrow))
        self._indices = (seen % q).astype(np.int32)
        self._indptr = np.searchsorted(seen // q, np.arange(J + 1)).astype(np.int32)
        self._J = J
        self._R = s.R

    def product(self, x: Floats) -> Floats:
        from scipy import sparse

        w = len(self._wide)
        q = len(self._narrow)
        W = _expected(self._wk, self._wa * x[self._wc], self._J, w)
        N = sparse.csr_matrix(
            (
                np.bincount(self._nk, self._na * x[self._nc], len(self._indices)),
                self._indices,
                self._indptr,
            ),
            shape=(self._J, q),
        )
        out = np.empty((self._R, self._R))
        cross = N.T @ W
        out[np.ix_(self._wide, self._wide)] = _gram(W)
        out[np.ix_(self._narrow, self._wide)] = cross
        out[np.ix_(self._wide, self._narrow)] = cross.T
        out[np.ix_(self._narrow, self._narrow)] = (N.T @ N).toarray()
        return out


def newton(
    s: Smooth,
    p: Floats,
    mu: float,
    tol: float,
    deadline: float,
    cap: float | Floats = 1e4,
    shape: Smooth | None = None,
    low: float | Floats = 0.0,
) -> tuple[Floats, int]:
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
    shape : Smooth, optional
        A sample of the groups whose Hessian is used, so that steps take less time with many groups.
    low : float or (R,)
        Smallest price, at least 0.

    Returns
    -------
    p : (R,)
        Prices.
    used : int
        Number of evaluations.
    """
    at = s.at(p, mu)
    used = 1
    reach = np.full(s.R, REACH * mu)
    H = _curvature(s, shape, at, p)
    while used < EVALUATIONS and time.monotonic() < deadline:
        step = box_step(
            at.g, H + np.diag(np.abs(at.g) / (reach * (1.0 + p)) + 1e-12), low - p, cap - p
        )
        expected = at.g + H @ step
        promise = -0.5 * float((at.g + expected) @ step)
        if not promise > tol * max(abs(at.f), 1e-12):
            break
        new = s.at(p + step, mu)
        used = used + 1
        # rows whose slope differs from that of the quadratic model, weighted by their step
        wrong = np.abs((new.g - expected) * step)
        guilty = wrong > 0.1 * wrong.max(initial=0.0)
        share = (at.f - new.f) / promise
        if share < 0.5:
            reach[guilty] = np.minimum(reach[guilty], np.abs(step[guilty]) + 1e-12) / (
                2.0 if share > 0.1 else 5.0
            )
        if share > 0.1:
            reach[~guilty | (share > 0.7)] *= 3.0
            p = p + step
            at = new
            H = _curvature(s, shape, at, p)
        elif np.abs(step).max() < 1e-10:
            break
    return p, used


def _curvature(s: Smooth, shape: Smooth | None, at: Point, p: Floats) -> Floats:
    """Return the Hessian, or the scaled Hessian of a sample of the groups."""
    if shape is None:
        return s.hessian(at)
    return shape.hessian(shape.at(p, at.mu)) * (len(s.size) / len(shape.size))


def box_step(g: Floats, H: Floats, low: Floats, high: Floats) -> Floats:
    """Return the d that minimises g'd + d'Hd/2 over low <= d <= high, by active sets."""
    down = (low >= 0) & (g >= 0)
    up = (high <= 0) & (g <= 0)
    d = np.zeros(len(g))
    for _ in range(60):
        d = np.where(down, low, np.where(up, high, 0.0))
        free = ~(down | up)
        if free.any():
            d[free] = _solve(H[np.ix_(free, free)], -(g + H[:, ~free] @ d[~free])[free])
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


def _solve(H: Floats, rhs: Floats) -> Any:
    """Solve H d = rhs; of many solutions the smallest one.

    Rows of different tenants share no job. So a large H is sparse, and is factored as such.
    """
    if len(rhs) > SPARSE_ROWS and np.count_nonzero(H) < SPARSE_SHARE * H.size:
        d = _solve_sparse(H, rhs)
        if d is not None:
            return d
    try:
        return np.linalg.solve(H, rhs)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(H, rhs, rcond=None)[0]


def _solve_sparse(H: Floats, rhs: Floats) -> Floats | None:
    """Solve H d = rhs by a sparse factorisation of the symmetric H; None if H is singular."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    try:
        factors = splu(
            csc_array(H),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None
    d = factors.solve(rhs)
    return np.asarray(d, dtype=np.float64) if np.isfinite(d).all() else None
