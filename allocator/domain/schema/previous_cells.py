"""The cells of the round before: only cells that changed are read anew.

Between two rounds most rows of a table stay as they are, some end, and new ones are appended. A
column whose cells are those of the rows that stayed has their values; only the cells of new rows
are read. Any other column is read whole. So the values are the same as without the round before.
Arrays of numbers are always read whole, which takes no time, because their owner may change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from allocator.domain.problem import Bools
from allocator.domain.schema.cells import Complaint, ParsedColumn, parse
from allocator.domain.schema.columns import Column, ColumnKind
from allocator.domain.schema.texts import Cells, texts_of

LISTS = (ColumnKind.TEXTS, ColumnKind.INTEGERS)  # their cells may be tuples
Read = tuple[ParsedColumn, list[Complaint]]


@dataclass
class PreviousCells:
    """Hold the cells of one table in the last round, without faults, and their values."""

    columns: dict[Column, tuple[list[Any], ParsedColumn]] = field(default_factory=dict)

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
        stays = self._find_rows(columns, key, cells)
        rows = np.array(stays, dtype=bool)
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
                kept = old if rows.all() else list(compress(old, stays))
                if own[: len(kept)] == kept:
                    parsed = _add_rows(column, values, rows, own[len(kept) :])
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
        return out

    def _find_rows(
        self, columns: Sequence[Column], key: Sequence[str], cells: Mapping[str, Cells]
    ) -> list[bool] | None:
        """Say which rows of the last round stayed, None if they do not come first, in order."""
        before = next((old for old, _ in self.columns.values()), None)
        named = next((column for column in columns if (column.name,) == tuple(key)), None)
        if before is None:
            return None
        if named is None or named not in self.columns:
            is_as_long = all(len(own) == len(before) for own in cells.values())
            return [True] * len(before) if is_as_long else None
        return find_rows_that_stay(self.columns[named][0], cells[named.name])


def find_rows_that_stay(before: Sequence[str], now: Cells) -> list[bool] | None:
    """Say which names are still there, None if they do not come first now, in the same order."""
    present = set(now)
    stays = list(map(present.__contains__, before))
    kept = list(compress(before, stays))
    return stays if kept == list(now[: len(kept)]) else None


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


def _add_rows(
    column: Column, values: ParsedColumn, stays: Bools, cells: list[Any]
) -> ParsedColumn | None:
    """Return the values of the rows that stay, (n,), and of new cells, None if one has a fault."""
    if not cells and stays.all():
        return values
    new, wrong = parse(column, cells)
    return None if wrong or not _is_constant(column, cells) else values.join(stays, new)
