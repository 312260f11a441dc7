"""The neutral model that every solver understands: a linear value over bounded columns and rows.

    max  sum_c value_c x_c
    s.t. lower_r <= sum_c a_rc x_c <= upper_r      for every row r
         col_lower_c <= x_c <= col_upper_c,  x_c integer where `integer_c`

The matrix is stored by column, so that an option and everything it uses lie side by side. Rows come
in named families, so that bounds, prices and explanations can name "budget" and "quota" instead of
row 17.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
