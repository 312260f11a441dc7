"""Statements that go straight to the driver, and their values as cells of the CSV files.

They avoid the cost of SQLAlchemy, and are meant for many rows and for what a controller does at
every poll. The transaction is that of the connection, and `translate_errors` in
connection.py knows the errors of drivers.

The database holds numbers, booleans, JSON lists and names. NULL is an empty cell of a number, a
boolean or a list; a name that is not given is "".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.schema.cells import Cells, parse, text_of
from allocator.domain.schema.columns import Column, ColumnKind
from allocator.objects import Json, Record

Row = TypeVar("Row", bound=tuple[Any, ...])
PART = 500  # names per statement


def execute_many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run a statement in SQL that both databases know for every row; ? is a value of it."""
    if rows:
        _driver(connection).cursor().executemany(_marked(connection, statement), list(rows))


def insert(connection: Connection, table: str, rows: Sequence[Record]) -> None:
    """Insert rows, which have values of the same columns."""
    for names in rows[:1]:
        marks = ", ".join("?" * len(names))
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
        execute_many(connection, statement, [tuple(row.values()) for row in rows])


def execute(connection: Connection, statement: str, *values: Any) -> int:
    """Run a statement in SQL that both databases know, and return how many rows it changed."""
    return int(_driver(connection).execute(_marked(connection, statement), values).rowcount)


def query(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples of the driver, in SQL that both databases know.

    ? is a value in the statement. A truth value may be 0 or 1.
    """
    return list(_driver(connection).execute(_marked(connection, statement), values))


def query_of(connection: Connection, statement: str, names: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query about names, PART names at a time.

    They replace {names} in it as a list, or {rows} as rows of one value.
    """
    out: list[tuple[Any, ...]] = []
    for part in range(0, len(names), PART):
        some = names[part : part + PART]
        marks = {"names": ", ".join("?" * len(some)), "rows": ", ".join(["(?)"] * len(some))}
        out += query(connection, statement.format(**marks), *some)
    return out


def read_version(connection: Connection) -> tuple[Any, ...]:
    """Return a value that is another one after every change of the database, and sometimes else."""
    driver = _driver(connection)
    if isinstance(driver, sqlite3.Connection):
        # the first counts what other connections change, the second what this one does
        return driver, *query(connection, "PRAGMA data_version"), driver.total_changes
    return driver, *query(connection, "SELECT CAST(pg_current_snapshot() AS TEXT)")


def as_columns(rows: Sequence[Sequence[Any]], count: int) -> list[Sequence[Any]]:
    """Return the columns of rows; `count` empty ones without rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * count


def named_rows(kind: type[Row], rows: Iterable[Iterable[Any]]) -> Iterator[Row]:
    """Return rows as named tuples of a kind, without a call of Python for each row."""
    return map(partial(tuple.__new__, kind), rows)


def _driver(connection: Connection) -> Any:
    """Return the connection of the driver, of sqlite3 or psycopg."""
    return connection.connection.dbapi_connection


def _marked(connection: Connection, statement: str) -> str:
    return statement if connection.dialect.paramstyle == "qmark" else statement.replace("?", "%s")


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
    """Return a stored value as a cell of a table (domain/schema/cells.py); None is empty."""
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
