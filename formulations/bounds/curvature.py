"""Second derivatives of the smooth dual: sums over columns and groups, and their equations.

A group touches the rows of one tenant and a few rows that many groups touch. So the matrix is
nearly empty where there are many tenants, and is then solved as a sparse one.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import starts
from formulations.model.sparse_rows import SparseRows

DENSE = 300  # so many equations are solved as a dense matrix


class Curvature:
    """Sums over columns and groups as matrices of the rows.

    Parameters
    ----------
    A : (n, R)
        Use of the rows by column.
    group : (n,)
        Group of each column, of J.
    """

    def __init__(self, A: SparseRows, group: Ints, J: int) -> None:
        self._A, R = A, A.shape[1]
        # the entries of the sums of groups, and the one that each entry of A adds to
        key, self._place = np.unique(group[A.row] * R + A.indices, return_inverse=True)
        owner, row = np.divmod(key, R)
        self._left, self._right = _pairs(starts(owner, J))
        left, right = _pairs(A.indptr)
        self._squares, self._column = A.data[left] * A.data[right], A.row[left]
        rows = np.append(A.indices[left], row[self._left])
        self._at = rows * R + np.append(A.indices[right], row[self._right])

    def spread(self, x: Floats) -> Floats:
        """Return sum_c x_c a_c a_c' - sum_j e_j e_j', (R, R); e_j: sum of x_c a_c in group j."""
        A, R = self._A, self._A.shape[1]
        e = np.bincount(self._place, A.data * x[A.row])
        amount = np.append(self._squares * x[self._column], -e[self._left] * e[self._right])
        half = np.bincount(self._at, amount, R * R).reshape(R, R).astype(np.float64)
        half.flat[:: R + 1] *= 0.5
        return half + half.T


def solve_free(H: Floats, rhs: Floats, free: Bools) -> Floats:
    """Return d (R,) that solves H d = rhs for the rows `free`, 0 on all other rows."""
    d = np.zeros(len(rhs))
    on = np.flatnonzero(free)
    S = H[np.ix_(on, on)]
    if len(on) > DENSE:
        from scipy import sparse
        from scipy.sparse.linalg import splu

        factors = splu(
            sparse.csc_matrix(S), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
        )
        d[on] = factors.solve(rhs[on])
        return d
    try:
        d[on] = np.linalg.solve(S, rhs[on])
    except np.linalg.LinAlgError:  # of many solutions the smallest one
        d[on] = np.linalg.lstsq(S, rhs[on], rcond=None)[0]
    return d


def _pairs(indptr: Ints) -> tuple[Ints, Ints]:
    """Return the positions (left, right) of all pairs of entries of one row, left <= right."""
    width = np.diff(indptr)
    left = np.repeat(np.arange(indptr[-1]), np.repeat(indptr[1:], width) - np.arange(indptr[-1]))
    first = np.flatnonzero(np.diff(left, prepend=-1))
    return left, left + np.arange(len(left)) - first[left]
