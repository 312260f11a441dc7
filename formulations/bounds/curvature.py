"""The second derivative of the smooth dual: a matrix in which few numbers are not 0.

A group touches the rows of one tenant and rows that many groups touch (pools, a budget, a limit on
changes), so two rows of different tenants have nothing to do with each other. Where there are many
rows, the equations are solved by a sparse factorisation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.sparse_rows import SparseRows, ragged, starts

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


def solve(H: Any, rhs: Floats, free: Bools) -> Floats:
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
