"""Statements for many rows that avoid the cost of SQLAlchemy for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

PART = 500  # names per statement


def execute_many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run a statement in SQL that both databases know for every row; ? is a value of it."""
    if rows:
        connection.exec_driver_sql(_marked(connection, statement), list(rows))


def query(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples of the driver, in SQL that both databases know.

    ? is a value in the statement.
    """
    result = connection.exec_driver_sql(_marked(connection, statement), values)
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


def query_of(connection: Connection, statement: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a query about names, which replace {names} in it, PART names at a time."""
    out: list[tuple[Any, ...]] = []
    for part in range(0, len(names), PART):
        some = names[part : part + PART]
        out += query(connection, statement.format(names=", ".join("?" * len(some))), *some)
    return out


def _marked(connection: Connection, statement: str) -> str:
    return statement if connection.dialect.paramstyle == "qmark" else statement.replace("?", "%s")
