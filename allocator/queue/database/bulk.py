"""Statements that go straight to the driver, without the cost of SQLAlchemy.

They are for many rows, and for what a controller does at every poll. The transaction is that of the
connection, and `translate_errors` in connection.py knows the errors of drivers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from allocator.objects import Record

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
