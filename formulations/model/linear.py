"""The neutral model that every solver understands: a linear value over bounded columns and rows.

    max  sum_c value_c x_c
    s.t. lower_r <= sum_c a_rc x_c <= upper_r      for every row r
         col_lower_c <= x_c <= col_upper_c,  x_c integer where `integer_c`

The matrix is stored by column, so that an option and everything it uses lie side by side. Rows come
in named families, so that bounds, prices and explanations can name "budget" and "quota" instead of
row 17.

SparseRows is a sparse matrix by row, with the few operations that choices need. Products are numpy
sums at first, because scipy takes longer to load than a small decision takes. They are scipy's,
which is three times as fast, once it is loaded; it is loaded when the products so far have lost the
time that this takes, or when those of a large matrix will. Both add in the order of the entries, so
the results are equal to the last bit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

AT_MOST_ONE = "at_most_one"
CAPACITY = "capacity"
BUDGET = "budget"
QUOTA = "quota"
LENDING = "lending"
TENANT_BUDGET = "tenant_budget"
GUARANTEE = "guarantee"
CHURN = "churn"
EXPOSURE = "exposure"
HEADROOM = "headroom"
IDLE = "idle_headroom"
RESERVATION = "reservation"
REQUESTED = "requested"
LEAVING = "leaving"
COLOCATION = "colocation"
TAKEOVER = "takeover"


@dataclass(frozen=True)
class RowFamily:
    """Rows `first .. first + len(labels)` of one kind.

    A label names the job, pool or tenant of its row.
    """

    kind: str
    first: int
    labels: Sequence[str]

    @property
    def stop(self) -> int:
        return self.first + len(self.labels)


@dataclass(frozen=True)
class LinearModel:
    """Maximise `value @ x` under bounds of rows and columns: n columns, m rows, z non-zeros.

    Attributes
    ----------
    value, col_lower, col_upper : (n,)
        Value and bounds of each column.
    integer : (n,)
        True for columns of whole numbers.
    start : (n+1,)
        Entries of column c are start[c] .. start[c+1].
    index, coef : (z,)
        Row and coefficient of each entry, at most one entry for each row and column.
    lower, upper : (m,)
        Bounds of the rows, which may be infinite.
    families : tuple of RowFamily
        They cover all rows in order.
    """

    value: Floats
    col_lower: Floats
    col_upper: Floats
    integer: Bools
    start: Ints
    index: Ints
    coef: Floats
    lower: Floats
    upper: Floats
    families: tuple[RowFamily, ...]

    @property
    def n(self) -> int:
        """Number of columns."""
        return len(self.value)

    @property
    def m(self) -> int:
        """Number of rows."""
        return len(self.lower)

    @cached_property
    def entry_column(self) -> Ints:
        """Column of every non-zero, shape (z,)."""
        return np.repeat(np.arange(self.n), np.diff(self.start))

    def activity(self, x: Floats) -> Floats:
        """Return A x, shape (m,)."""
        use: Floats = np.bincount(
            self.index, self.coef * x[self.entry_column], minlength=self.m
        ).astype(np.float64)
        return use

    def by_row(self) -> tuple[Ints, Ints, Floats]:
        """Return the matrix by row: start (m+1,), column (z,), coef (z,)."""
        order = np.argsort(self.index, kind="stable")
        start = np.zeros(self.m + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.index, minlength=self.m), out=start[1:])
        return start, self.entry_column[order], self.coef[order]

    def rows_of(self, *kinds: str) -> Bools:
        """Find the rows of some kinds, (m,)."""
        out = np.zeros(self.m, dtype=bool)
        for family in self.families:
            if family.kind in kinds:
                out[family.first : family.stop] = True
        return out

    @property
    def has_pairs(self) -> bool:
        """Whether there are rows of secondary jobs."""
        return any(f.kind == COLOCATION and f.labels for f in self.families)

    def tolerance(self) -> tuple[Floats, Floats]:
        """Return distances below `lower` and above `upper` that count as feasible, (m,) each.

        They are 1e-9 relative: enough for the rounding of sums of dollars, far less than a whole
        GPU.
        """

        def slack(bound: Floats) -> Floats:
            return 1e-9 * np.maximum(1.0, np.where(np.isfinite(bound), np.abs(bound), 1.0))

        return slack(self.lower), slack(self.upper)

    def violations(self, x: Floats) -> Ints:
        """Return the rows that x breaks beyond the tolerance, (k,)."""
        a, (low, up) = self.activity(x), self.tolerance()
        return np.flatnonzero((a < self.lower - low) | (a > self.upper + up))

    def feasible(self, x: Floats) -> bool:
        """Return whether x keeps every row, every bound, and whole numbers."""
        if len(x) != self.n or not np.isfinite(x).all():
            return False
        inside = (x >= self.col_lower - 1e-9) & (x <= self.col_upper + 1e-9)
        whole = ~self.integer | (x == np.round(x))
        return bool(inside.all() and whole.all() and not len(self.violations(x)))

    def take(self, columns: Ints) -> LinearModel:
        """Return the model with only these columns, in this order; all rows stay."""
        width = np.diff(self.start)[columns]
        end = np.cumsum(width)
        at = np.arange(end[-1] if len(end) else 0) + np.repeat(
            self.start[columns] - end + width, width
        )
        return replace(
            self,
            value=self.value[columns],
            col_lower=self.col_lower[columns],
            col_upper=self.col_upper[columns],
            integer=self.integer[columns],
            start=np.append(0, end),
            index=self.index[at],
            coef=self.coef[at],
        )

    def row_name(self, row: int) -> str:
        """Return the name of a row for messages, such as 'quota of "team-a"' or 'budget'."""
        for family in self.families:
            if family.first <= row < family.stop:
                label = family.labels[row - family.first]
                return f'{family.kind} of "{label}"' if label else family.kind
        raise IndexError(row)


@dataclass(frozen=True)
class Block:
    """The rows of one family: lower <= sum_o coef_o x_o [row_o = r] <= upper for every row r.

    `coef` has the shape (n,), `row` the shape (n,) or (L, n), -1 = none, `lower` and `upper` one
    entry per row.
    """

    kind: str
    labels: Sequence[str]
    row: Ints
    coef: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def at_most(
        cls, kind: str, labels: Sequence[str], row: Ints, coef: Ints | Floats, upper: Floats
    ) -> Block:
        """Return the rows that have a limit, inf = none."""
        lower = np.full(len(upper), -np.inf)
        return cls(kind, labels, row, coef.astype(float), lower, upper).keep(np.isfinite(upper))

    @classmethod
    def empty(cls, kind: str) -> Block:
        """Return a block without rows, and therefore without the rows of options."""
        none = np.zeros(0)
        return cls(kind, (), np.zeros(0, dtype=np.int64), none, none, none)

    @property
    def layers(self) -> Ints:
        """The row that each option uses in each layer, (L, n), -1 = none; no layer without rows."""
        return np.atleast_2d(self.row) if len(self.upper) else np.zeros((0, len(self.row)), int)

    def keep(self, use: Bools) -> Block:
        """Return the block without the rows that `use` leaves out."""
        if use.all():
            return self
        if not use.any():
            return Block.empty(self.kind)
        new = np.append(np.where(use, np.cumsum(use) - 1, -1), -1)  # the last place is that of -1
        return Block(
            self.kind,
            [name for name, u in zip(self.labels, use, strict=True) if u],
            new[self.row],
            self.coef,
            self.lower[use],
            self.upper[use],
        )

    def take(self, option: Ints) -> Block:
        """Return the rows for only these options."""
        if not len(self.upper):
            return self
        return replace(self, row=self.row[..., option], coef=self.coef[option])


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
