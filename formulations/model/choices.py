"""A model seen as choices: every group takes at most one of its columns.

A few coupling rows tie the groups together:

    max sum_c v_c x_c   s.t.  sum_{c of j} x_c <= 1 (= 1 for `mandatory`),   low <= A' x <= high

Lagrangian bounds, roundings and branch and bound work on this structure. Letters: n columns, J
groups, R coupling rows, a_c the coupling entries of column c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from formulations.model.linear import (
    AT_MOST_ONE,
    Bools,
    Floats,
    Ints,
    LinearModel,
    RowFamily,
    SparseRows,
    ragged,
    starts,
)

LARGEST_WHOLE = 2.0**53  # number up to which every whole one is exact
CLOSE = 1e-6  # relative: the rounding of sums of uses, and what rows are widened by
MANY = 3_000_000  # entries whose places are short integers, which take half the memory


class NotChoices(Exception):
    """The model lacks the structure; `reason` names the part that is missing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ChoiceModel(LinearModel):
    """A model that was made as choices, of binaries in at-most-one rows that come first.

    Its columns and its matrix are put together when they are first read, which searches without a
    solver never do.
    """

    _parts: tuple[Ints, Ints, Bools, Ints, Floats, Floats, SparseRows]
    _LATE = frozenset({"col_lower", "col_upper", "integer", "start", "index", "coef"})

    @staticmethod
    def of(
        value: Floats,
        lower: Floats,
        upper: Floats,
        families: tuple[RowFamily, ...],
        start: Ints,
        group: Ints,
        matrix: SparseRows,
    ) -> ChoiceModel:
        """Return the model of columns in groups.

        Parameters
        ----------
        value : (n,)
            Value of each column.
        lower, upper : (J + R,)
            Bounds of the rows. The first J are those of the groups; each of the others has one.
        families : tuple of RowFamily
            Names of the rows.
        start, group : (J+1,) and (n,)
            Group j owns the columns start[j] .. start[j+1].
        matrix : (n, R)
            Entries in the other rows by column.
        """
        model = object.__new__(ChoiceModel)
        vars(model).update(value=value, lower=lower, upper=upper, families=families)
        J = len(start) - 1
        rows = np.arange(J, len(lower))
        below, above = model.tolerance()
        low, high = (lower - below)[rows], (upper + above)[rows]
        mandatory = _find_mandatory(lower[:J] == 1, group, low, matrix)
        vars(model)["_parts"] = (start, group, mandatory, rows, low, high, matrix)
        return model

    def __getattr__(self, name: str) -> Any:
        """Put together what was not read before."""
        if name not in self._LATE:
            raise AttributeError(name)
        _, group, _, rows, _, _, matrix = self._parts
        n = len(group)
        start = matrix.indptr.astype(np.int64) + np.arange(n + 1)
        index = np.empty(start[-1], dtype=np.int64)
        coef = np.ones(start[-1])
        is_coupling = np.ones(start[-1], dtype=bool)
        is_coupling[start[:-1]] = False
        index[start[:-1]] = group
        index[is_coupling] = rows[matrix.indices]
        coef[is_coupling] = matrix.data
        vars(self).update(
            col_lower=np.zeros(n),
            col_upper=np.ones(n),
            integer=np.ones(n, dtype=bool),
            start=start,
            index=index,
            coef=coef,
        )
        return vars(self)[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return LinearModel, tuple(getattr(self, field.name) for field in fields(LinearModel))

    @property
    def view(self) -> Choices:
        """The model as choices."""
        return Choices(self, *self._parts)


@dataclass(frozen=True)
class Choices:
    """The columns of a model in groups. Group j owns the columns start[j] .. start[j+1].

    Attributes
    ----------
    group : (n,)
        The group that owns each column.
    mandatory : (J,)
        True where exactly one column of the group must be taken. J counts the rows of kind
        `at_most_one`, in their order.
    rows : (R,)
        Model row of each coupling row.
    low, high : (R,)
        Bounds of the coupling rows. They are widened by the tolerance of the model, so that every
        plan that the model calls feasible lies inside.
    matrix : (n, R)
        Coupling entries by column.
    """

    model: LinearModel
    start: Ints
    group: Ints
    mandatory: Bools
    rows: Ints
    low: Floats
    high: Floats
    matrix: SparseRows

    @staticmethod
    def of_columns(
        value: Floats, group: Ints, mandatory: Bools, low: Floats, high: Floats, matrix: SparseRows
    ) -> Choices:
        """Return choices whose model has no other rows than the coupling rows."""
        n, R = matrix.shape
        model = LinearModel(
            value,
            np.zeros(n),
            np.ones(n),
            np.ones(n, dtype=bool),
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int64),
            matrix.data,
            low,
            high,
            (),
        )
        start = starts(group, len(mandatory))
        return Choices(model, start, group, mandatory, np.arange(R), low, high, matrix)

    @property
    def n(self) -> int:
        """Number of columns."""
        return len(self.group)

    @property
    def J(self) -> int:
        """Number of groups."""
        return len(self.mandatory)

    @property
    def R(self) -> int:
        """Number of coupling rows."""
        return len(self.rows)

    @property
    def value(self) -> Floats:
        """Value of every column, (n,)."""
        return self.model.value

    @cached_property
    def filled(self) -> Ints:
        """Groups that own at least one column."""
        return np.flatnonzero(np.diff(self.start) > 0)

    @cached_property
    def total(self) -> Floats:
        """Sum of the absolute entries of each coupling row, (R,)."""
        amount = np.abs(self.matrix.data)
        return np.asarray(np.bincount(self.matrix.indices, amount, self.R), dtype=np.float64)

    @cached_property
    def most_entries(self) -> int:
        """Largest number of coupling entries of a column."""
        return int(np.diff(self.matrix.indptr).max(initial=0))

    @cached_property
    def unit(self) -> Floats:
        """Mean absolute entry of each coupling row, (R,), 1 for an empty one.

        Divided by it, dollars and GPUs are of the same size.
        """
        count = np.bincount(self.matrix.indices, minlength=self.R)
        return np.where(self.total > 0, self.total / np.maximum(1, count), 1.0)

    @cached_property
    def value_unit(self) -> float:
        """Largest number of which all values are multiples, 0 if they are not whole numbers."""
        whole = np.rint(self.value)
        if (whole != self.value).any() or np.abs(whole).max(initial=0.0) > LARGEST_WHOLE:
            return 0.0
        return float(np.gcd.reduce(whole.astype(np.int64)))

    @cached_property
    def total_value(self) -> float:
        """Sum of the absolute values of all columns."""
        return float(np.abs(self.value).sum())

    def columns_of(self, groups: Ints) -> Ints:
        """Return all columns of the given groups, group by group."""
        return ragged(self.start[groups], self.start[groups + 1])[1]

    def take(self, columns: Ints) -> Choices:
        """Return the choices with only these columns; rows that none of them uses have no bounds.

        Groups that are left without a column take nothing.
        """
        group, matrix = self.group[columns], self.matrix[columns]
        start = starts(group, self.J)
        is_used = np.bincount(matrix.indices, minlength=self.R) > 0
        return replace(
            self,
            model=self.model.take(columns),
            start=start,
            group=group,
            mandatory=self.mandatory & (np.diff(start) > 0),
            low=np.where(is_used, self.low, -np.inf),
            high=np.where(is_used, self.high, np.inf),
            matrix=matrix,
        )

    def fitting_columns(self) -> Bools:
        """Return which columns keep all upper limits when nothing else is taken, (n,)."""
        is_sum = np.bincount(self.matrix.indices, self.matrix.data < 0, self.R) == 0
        high = np.where(is_sum, self.high, np.inf)
        over = self.matrix.data > high[self.matrix.indices]
        fits: Bools = np.bincount(self.matrix.row[over], minlength=self.n) == 0
        return fits

    def tied_groups(self, groups: Ints) -> Bools:
        """Return some groups and all that rows with bounds tie to them, (J,)."""
        tied = np.zeros(self.J, dtype=bool)
        tied[groups] = True
        binds = (np.isfinite(self.low) | np.isfinite(self.high))[self.matrix.indices]
        group, row = self.group[self.matrix.row[binds]], self.matrix.indices[binds]
        while True:
            is_used = np.bincount(row[tied[group]], minlength=self.R) > 0
            more = group[is_used[row]]
            if tied[more].all():
                return tied
            tied[more] = True

    def value_of(self, choice: Ints) -> float:
        """Return the value of a choice, correctly rounded."""
        return math.fsum(self.value[choice[choice >= 0]].tolist())

    def use_of(self, choice: Ints) -> Floats:
        """Return the activity of the coupling rows, (R,)."""
        return self.matrix.sum_of(choice[choice >= 0])

    def feasible(self, choice: Ints) -> bool:
        """Return whether each group of the choice (J,) takes its own columns and all rows hold."""
        on = choice >= 0
        if len(choice) != self.J or (choice >= self.n).any() or (self.mandatory & ~on).any():
            return False
        if (self.group[choice[on]] != np.flatnonzero(on)).any():
            return False
        use = self.use_of(choice)
        return bool((use >= self.low).all() and (use <= self.high).all())

    def to_x(self, choice: Ints) -> Floats:
        """Return the choice as a vector over columns, (n,)."""
        x = np.zeros(self.n)
        x[choice[choice >= 0]] = 1.0
        return x

    def from_x(self, x: Floats) -> Ints:
        """Return the choice that a 0/1 vector stands for.

        Each group takes its largest column if that is above one half.
        """
        on = np.flatnonzero(x > 0.5)
        on = on[np.argsort(x[on], kind="stable")]
        choice = np.full(self.J, -1)
        choice[self.group[on]] = on
        return choice


def choices(model: LinearModel) -> Choices:
    """Return the view of a model as choices.

    Raises
    ------
    NotChoices
        A column is not binary or not in exactly one at-most-one row, such a row is another one than
        sum x <= 1 or = 1, or the columns of a group are not contiguous.
    """
    if "_parts" in vars(model):
        assert isinstance(model, ChoiceModel)
        return model.view
    group_rows = model.rows_of(AT_MOST_ONE)
    in_group = group_rows[model.index]
    low, high = model.lower[group_rows], model.upper[group_rows]
    group = (np.cumsum(group_rows) - 1)[model.index[in_group]]
    faults = {
        "a column is continuous": not model.integer.all(),
        "a column is not binary": (model.col_lower != 0).any() or (model.col_upper != 1).any(),
        "a column is in none or several at-most-one rows": (
            np.bincount(model.entry_column[in_group], minlength=model.n) != 1
        ).any(),
        "a coefficient of an at-most-one row is not 1": (model.coef[in_group] != 1).any(),
        "an at-most-one row has bounds other than (.., 1] or [1, 1]": (
            (high != 1) | ((low > 0) & (low != 1))
        ).any(),
        "the columns of a group do not lie side by side": (np.diff(group) < 0).any(),
    }
    for reason, is_broken in faults.items():
        if is_broken:
            raise NotChoices(reason)
    coupling = ~group_rows & (np.isfinite(model.lower) | np.isfinite(model.upper))
    rows, entry = np.flatnonzero(coupling), coupling[model.index]
    index = model.index[entry]
    integer = integers(len(index))
    row = (np.cumsum(coupling) - 1).astype(integer)[index]
    indptr = np.append(0, np.cumsum(entry))[model.start].astype(integer)
    matrix = SparseRows(model.coef[entry], row, indptr, (model.n, len(rows)))
    below, above = model.tolerance()
    low, high = (model.lower - below)[rows], (model.upper + above)[rows]
    start = starts(group, int(group_rows.sum()))
    mandatory = _find_mandatory(model.lower[group_rows] == 1, group, low, matrix)
    return Choices(model, start, group, mandatory, rows, low, high, matrix)


def _find_mandatory(named: Bools, group: Ints, low: Floats, matrix: SparseRows) -> Bools:
    """Return the named groups, and all of rows that need the most that their groups use, (J,)."""
    if not np.isfinite(low).any():
        return named
    at = np.flatnonzero(np.isfinite(low)[matrix.indices])
    key = group[matrix.row[at]] * len(low) + matrix.indices[at]
    key, place = np.unique(key, return_inverse=True)
    most = np.zeros(len(key))
    np.maximum.at(most, place, matrix.data[at])
    owner, row = np.divmod(key, len(low))
    spare = np.bincount(row, most, len(low)) - low
    named[owner[(most > 0) & (spare < CLOSE * (1 + np.abs(low)))[row]]] = True
    return named


def integers(entries: int) -> Any:
    """Return the type of the places of so many entries.

    bincount wants long integers, scipy short ones.
    """
    return np.int32 if entries >= MANY else np.int64
