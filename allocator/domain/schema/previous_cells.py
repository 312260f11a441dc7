"""The cells of the round before: only cells that changed are read anew.

Between two rounds most rows of a table stay as they are, some end, and new ones are appended. A
column in which few cells of the rows that stay changed keeps the values of the others; only the
cells that changed, and those of new rows, are read. Any other column is read whole. So the values
are the same as without the round before.
Arrays of numbers are always read whole, which takes no time, because their owner may change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import ne
from typing import Any

import numpy as np

from allocator.domain.schema.cells import Complaint, ParsedColumn, parse
from allocator.domain.schema.columns import Column, ColumnKind
from allocator.domain.schema.staying_rows import StayingRows, find_rows_that_stay
from allocator.domain.schema.texts import Cells, texts_of

LISTS = (ColumnKind.TEXTS, ColumnKind.INTEGERS)  # their cells may be tuples
MOST_CHANGED = 0.2  # largest share of changed cells that are read one by one
SAMPLE, MANY_CHANGED = 400, 0.3  # cells that are compared first, and share of them from which on
Read = tuple[ParsedColumn, list[Complaint]]


@dataclass
class PreviousCells:
    """Hold the cells of one table in the last round, without faults, and their values."""

    columns: dict[Column, tuple[list[Any], ParsedColumn]] = field(default_factory=dict)
    _names: set[str] | None = None

    def read(
        self, columns: Sequence[Column], key: Sequence[str], cells: Mapping[str, Cells]
    ) -> dict[str, Read]:
        """Return values and faults of each of the columns, as `cells.parse` does, and keep them.

        Parameters
        ----------
        columns : sequence of Column
            Columns that the table has.
        key : sequence of str
            Names of the columns that name a row.
        cells : mapping of str to Cells
            Cells of this round.
        """
        named = next((column for column in columns if (column.name,) == tuple(key)), None)
        stays = self._find_rows(named, cells)
        before, self.columns = self.columns, {}
        out: dict[str, Read] = {}
        for column in columns:
            own = cells[column.name]
            if not isinstance(own, list):
                out[column.name] = parse(column, own)
                continue
            parsed = None
            if stays is not None and column in before:
                old, values = before[column]
                parsed = _update(column, values, stays, stays.pick(old), own)
            wrong: list[Complaint] = []
            if parsed is None:
                parsed, wrong = parse(column, own)
                if wrong or not _is_constant(column, own):
                    out[column.name] = parsed, wrong
                    continue
            if isinstance(parsed.value, np.ndarray):
                parsed.value.flags.writeable = False
            self.columns[column] = own.copy(), parsed
            out[column.name] = parsed, wrong
        self._find_names(stays, before, named)
        return out

    @property
    def has_distinct_names(self) -> bool:
        """Whether rows are named by one column, whose names are valid and all different."""
        return self._names is not None

    def _find_names(
        self,
        stays: StayingRows | None,
        before: Mapping[Column, tuple[list[Any], ParsedColumn]],
        named: Column | None,
    ) -> None:
        """Hold the names of the rows if all are different; only what changed is looked at."""
        names, self._names = self._names, None
        if named is None or named not in self.columns:
            return
        own = self.columns[named][1].value
        if names is None or stays is None or named not in before:
            names = set(own)
        else:
            old = before[named][1].value
            names.difference_update([old[i] for i in np.flatnonzero(~stays.stays).tolist()])
            names.update(own[len(stays.rows) :])
        if len(names) == len(own):
            self._names = names

    def _find_rows(self, named: Column | None, cells: Mapping[str, Cells]) -> StayingRows | None:
        """Return which rows of the last round stayed, None if they do not come first, in order."""
        before = next((old for old, _ in self.columns.values()), None)
        if before is None:
            return None
        if named is None or named not in self.columns:
            is_as_long = all(len(own) == len(before) for own in cells.values())
            return StayingRows.all_of(len(before)) if is_as_long else None
        return find_rows_that_stay(self.columns[named][0], list(cells[named.name]))


@dataclass
class PreviousTables:
    """Hold the cells of all tables of the last round, by file."""

    tables: dict[str, PreviousCells] = field(default_factory=dict)

    def of(self, file: str) -> PreviousCells:
        """Return the cells of a table."""
        return self.tables.setdefault(file, PreviousCells())


def _is_constant(column: Column, cells: list[Any]) -> bool:
    """Return whether no cell is an object that its owner may change."""
    return column.kind in LISTS or texts_of(cells) is cells


def _update(
    column: Column, values: ParsedColumn, stays: StayingRows, kept: list[Any], own: list[Any]
) -> ParsedColumn | None:
    """Return the values of the cells `own`, of which most are those of the rows that stay.

    None if most of these changed, or if a cell that is read has a fault.
    """
    count = len(kept)
    changed: list[int] = []
    if own[:count] != kept:
        step = max(1, count // SAMPLE)
        sample = kept[::step]
        if sum(map(ne, sample, own[:count:step])) > MANY_CHANGED * len(sample) >= 1:
            return None
        changed = list(compress(range(count), map(ne, kept, own)))
        if len(changed) > MOST_CHANGED * count:
            return None
    cells = [*map(own.__getitem__, changed), *own[count:]]
    if not cells and stays.are_all:
        return values
    new, wrong = parse(column, cells)
    if wrong or not _is_constant(column, cells):
        return None
    return values.update(stays, np.array(changed, dtype=np.int64), new)
