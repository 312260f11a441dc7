"""Many rows at once: one statement, past everything that costs time for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection


def many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run a statement in SQL that both databases know for every row; ? is a value of the row."""
    if rows:
        mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
        connection.exec_driver_sql(statement.replace("?", mark), list(rows))
