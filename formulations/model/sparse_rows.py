"""A sparse matrix by row, with the few operations that choices need, and ranges and runs.

Products are numpy sums at first, because scipy takes longer to load than a small decision takes.
They are scipy's, which is three times as fast, once it is loaded; it is loaded when the products so
far have lost the time that this takes, or when those of a large matrix will. Both add in the order
of the entries, so the results are equal to the last bit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from formulations.model.linear import Bools, Floats, Ints

if TYPE_CHECKING:
    from scipy import sparse


def ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return (i, integer) for all integers of the ranges begin[i] .. end[i], (total,) each.

    end[i] is not part of the range.
    """
    length = end - begin
    owner = np.repeat(np.arange(len(begin)), length)
    integer = np.repeat(begin - np.cumsum(length) + length, length)
    integer += np.arange(len(owner))
    return owner, integer


def starts(owner: Ints, count: int) -> Ints:
    """Return where each of `count` owners begins in an ascending array of owners, (count+1,)."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def begins_run(*columns: np.ndarray[Any, Any]) -> Bools:
    """Find the rows that differ from the row before in any of the columns (n,), and the first one.

    Examples
    --------
    >>> begins_run(np.array([3, 3, 5, 3])).tolist()
    [True, False, True, True]
    """
    differs = [column[1:] != column[:-1] for column in columns]
    out = np.ones(len(columns[0]), dtype=np.bool_)
    out[1:] = np.any(differs, axis=0)
    return out


LOADING = 90_000_000  # entries whose products cost numpy as much extra time as scipy takes to load
PRODUCTS = 25  # at least so many has a large matrix in a decision


class _Products:
    """Who multiplies in this process: numpy or scipy."""

    entries = 0  # multiplied by numpy so far

    @classmethod
    def are_of_scipy(cls, entries: int) -> bool:
        """Return whether scipy makes the next product, one of so many entries."""
        if "scipy.sparse" in sys.modules:
            return True
        cls.entries += entries
        return max(cls.entries, PRODUCTS * entries) > LOADING


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix (n, R): row i has the entries indptr[i] .. indptr[i+1].

    Attributes
    ----------
    data, indices : (z,)
        Number and column of each entry.
    indptr : (n+1,)
        Where the entries of each row begin.
    shape : (n, R)

    Examples
    --------
    >>> import numpy as np
    >>> from formulations.model.sparse_rows import SparseRows
    >>> a = SparseRows(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 1, 2]), (2, 2))
    >>> a @ np.array([3.0, 4.0]), np.array([3.0, 4.0]) @ a
    (array([3., 8.]), array([3., 8.]))
    """

    data: Floats
    indices: Ints
    indptr: Ints
    shape: tuple[int, int]

    __array_ufunc__ = None  # x @ self is __rmatmul__

    @cached_property
    def row(self) -> Ints:
        """Row of each entry, (z,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def in_scipy(self) -> sparse.csr_matrix:
        """The same matrix in scipy's form."""
        from scipy import sparse

        return sparse.csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)

    def __matmul__(self, x: Floats | Ints) -> Floats:
        if _Products.are_of_scipy(len(self.data)):
            return np.asarray(self.in_scipy @ x, dtype=np.float64)
        return _sums(self.row, self.data * np.take(x, self.indices), self.shape[0])

    def __rmatmul__(self, x: Floats) -> Floats:
        if _Products.are_of_scipy(len(self.data)):
            return np.asarray(x @ self.in_scipy, dtype=np.float64)
        return _sums(self.indices, self.data * np.take(x, self.row), self.shape[1])

    def __getitem__(self, rows: Ints) -> SparseRows:
        """Return some rows, in the given order."""
        at = ragged(self.indptr[rows], self.indptr[rows + 1])[1]
        width = np.diff(self.indptr)[rows]
        return SparseRows(
            self.data[at],
            self.indices[at],
            np.append(0, np.cumsum(width)),
            (len(rows), self.shape[1]),
        )

    def sum_of(self, rows: Ints) -> Floats:
        """Return the sum of some rows, (R,); it takes no time for the others."""
        begin, end = self.indptr[rows], self.indptr[rows + 1]
        place = np.arange((end - begin).max(initial=0))
        at = begin[:, None] + place
        at = at[at < end[:, None]]  # row by row
        return _sums(self.indices[at], self.data[at], self.shape[1])

    def entries_of(self, row: int) -> tuple[Ints, Floats]:
        """Return the columns and the numbers of the entries of one row."""
        at = slice(self.indptr[row], self.indptr[row + 1])
        return self.indices[at], self.data[at]

    def __sub__(self, other: SparseRows) -> SparseRows:
        """Return the difference, columns in order, without the entries that cancel out."""
        R = self.shape[1]
        key = np.concatenate([self.row * R + self.indices, other.row * R + other.indices])
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(begins_run(key))
        data = np.concatenate([self.data, -other.data])[order]
        total = np.add.reduceat(data, first) if len(first) else data
        first, total = first[total != 0], total[total != 0]
        row, column = np.divmod(key[first], R)
        end = np.cumsum(np.bincount(row, minlength=self.shape[0]))
        return SparseRows(total, column, np.append(0, end), self.shape)

    def __abs__(self) -> SparseRows:
        return SparseRows(np.abs(self.data), self.indices, self.indptr, self.shape)

    def take_columns(self, columns: Ints) -> SparseRows:
        """Return some columns, in the given order; a column may be taken more than once."""
        order = np.argsort(columns, kind="stable")
        count = np.bincount(columns, minlength=self.shape[1])
        start = np.cumsum(count) - count
        entry, at = ragged(start[self.indices], (start + count)[self.indices])
        width = np.bincount(self.row[entry], minlength=self.shape[0])
        return SparseRows(
            self.data[entry],
            order[at],
            np.append(0, np.cumsum(width)),
            (self.shape[0], len(columns)),
        )

    def transpose(self) -> SparseRows:
        """Return the matrix by column: its rows are the columns of this one."""
        order = np.argsort(self.indices, kind="stable")
        count = np.bincount(self.indices, minlength=self.shape[1])
        return SparseRows(
            self.data[order],
            self.row[order],
            np.append(0, np.cumsum(count)),
            (self.shape[1], self.shape[0]),
        )

    def toarray(self) -> Floats:
        """Return the dense matrix (n, R)."""
        dense = np.zeros(self.shape)
        np.add.at(dense, (self.row, self.indices), self.data)
        return dense


def _sums(at: Ints, amount: Floats, size: int) -> Floats:
    """Return the sums of amounts by place, (size,)."""
    return np.asarray(np.bincount(at, amount, size), dtype=np.float64)
