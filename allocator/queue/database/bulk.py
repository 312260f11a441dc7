"""Many rows at once: one statement, past everything that costs time for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

PART = 500  # names per statement


def execute_many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run a statement in SQL that both databases know for every row; ? is a value of the row."""
    if rows:
        connection.exec_driver_sql(_marked(connection, statement), list(rows))


def query(connection: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query in SQL that both databases know, as the driver's own tuples; ? is a
    value.
    """
    result = connection.exec_driver_sql(_marked(connection, statement), values)
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


def query_of(connection: Connection, statement: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a query about names, which stand for {names} in it, part by part."""
    out: list[tuple[Any, ...]] = []
    for part in range(0, len(names), PART):
        some = names[part : part + PART]
        out += query(connection, statement.format(names=", ".join("?" * len(some))), *some)
    return out


def _marked(connection: Connection, statement: str) -> str:
    return statement if connection.dialect.paramstyle == "qmark" else statement.replace("?", "%s")
