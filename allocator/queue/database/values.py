"""Conversion between columns of the CSV files and columns of the database.

The database holds numbers, booleans, JSON lists and names. NULL is an empty cell of a number, a
boolean or a list; a name that is not given is "".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa

from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import Column, ColumnKind
from allocator.domain.schema.texts import Cells, text_of
from allocator.objects import Json

TYPES: dict[ColumnKind, type[sa.types.TypeEngine[Any]]] = {
    ColumnKind.NUMBER: sa.Double,
    ColumnKind.INTEGER: sa.BigInteger,
    ColumnKind.BOOLEAN: sa.Boolean,
}
LISTS = (ColumnKind.INTEGERS, ColumnKind.TEXTS)


def sql_column(column: Column) -> sa.Column[Any]:
    """Return the column of a database for a column of a file."""
    if column.kind in TYPES or column.kind in LISTS:
        return sa.Column(column.name, TYPES.get(column.kind, sa.Text))
    return sa.Column(column.name, sa.Text, nullable=False, server_default="")


def to_sql(column: Column, cells: Cells) -> list[Any]:
    """Return checked cells as values for the database."""
    if column.kind not in TYPES and column.kind not in LISTS:
        return list(map(text_of, cells))
    parsed, _ = parse(column, cells)
    values = parsed.value.tolist() if isinstance(parsed.value, np.ndarray) else parsed.value
    if column.kind in LISTS:
        values = map(json.dumps, values)
    return [v if given else None for v, given in zip(values, parsed.given, strict=True)]


def value_of(column: Column, stored: Any) -> Any:
    """Return a stored value as a cell of a table (domain/schema/texts.py); None is empty."""
    return values_of(column, (stored,))[0]


def values_of(column: Column, stored: Sequence[Any]) -> list[Any]:
    """Return the stored values of a column as cells (see `value_of`)."""
    if column.kind is ColumnKind.BOOLEAN:
        return [None if value is None else bool(value) for value in stored]
    if column.kind in LISTS:
        return [None if value is None else _listed(value) for value in stored]
    return list(stored)


def to_cells(column: Column, values: Sequence[Any]) -> Cells:
    """Return values of a column (see `value_of`) as cells.

    A stored value may be of the wrong type, because SQLite does not check types. The rules of the
    column then report it.
    """
    if column.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        try:
            return np.array(values, dtype=np.float64)
        except ValueError:
            pass
    if set(map(type, values)) <= {str, tuple}:
        return values
    return [v if type(v) in (str, tuple) else text_of(v) for v in values]


@lru_cache(maxsize=1 << 12)
def _listed(stored: str) -> tuple[Any, ...]:
    """Return a stored JSON list; the same few lists come again and again."""
    return tuple(json.loads(stored))


def as_rows(columns: Mapping[str, Sequence[Any]]) -> list[Json]:
    """Return columns by name as rows, each a mapping of name to value."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
