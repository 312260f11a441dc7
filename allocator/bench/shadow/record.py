"""The record of a shadow: one SQLite file, to which each look is added by one transaction.

A process that is killed loses at most the look under way. What a look saw is kept, so that it can
be decided again.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocator.errors import AllocatorError, UsageError

ROUND, GAP, FAULT = "round", "gap", "fault"
WAIT_S = 30.0  # for somebody else who reads or writes
TABLE = """CREATE TABLE IF NOT EXISTS shadow_looks (
    number INTEGER PRIMARY KEY, cluster TEXT NOT NULL, at_s REAL NOT NULL, every_s REAL NOT NULL,
    kind TEXT NOT NULL, said TEXT NOT NULL, seconds REAL NOT NULL, snapshot BLOB, plan BLOB
)"""
INSERT = """INSERT INTO shadow_looks VALUES (
    NULL, :cluster, :at_s, :every_s, :kind, :said, :seconds, :snapshot, :plan
)"""


@dataclass(frozen=True)
class Look:
    """One look at a cluster.

    Attributes
    ----------
    cluster : str
        Name of its adapter, or its folder.
    at_s, every_s : float
        When it was, in unix seconds, and the seconds between two looks.
    kind : str
        ROUND; GAP: the cluster did not answer; FAULT: what it answered could not be decided.
    said : mapping or str
        The figures of a round (`judge`); of a gap or a fault why.
    seconds : float
        How long observing and deciding took.
    snapshot : bytes, optional
        What was seen (`pack_snapshot`); None: nothing was, or it was not asked for.
    plan : str
        plan.json of a round.
    number : int
        Its place in the record; 0: it is not there yet.
    """

    cluster: str
    at_s: float
    every_s: float
    kind: str
    said: Any
    seconds: float = 0.0
    snapshot: bytes | None = None
    plan: str = ""
    number: int = 0


class Record:
    """The looks of a file.

    Parameters
    ----------
    path : Path
        The file; the first look that is added makes it. Raises UsageError if it is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            with self._open() as connection:
                tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            # without a table: whoever made it was killed before the end of the first look
            if tables not in ([], [("shadow_looks",)]):
                raise UsageError(f'"{path}" is no record of allocator shadow')

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give a connection, whose changes are one transaction. Raises AllocatorError."""
        try:
            connection = sqlite3.connect(self.path, timeout=WAIT_S)
            try:
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise AllocatorError(f'the record "{self.path}" cannot be used: {error}') from error

    def add(self, look: Look) -> Look:
        """Add a look; return it with its number.

        Raises
        ------
        AllocatorError
            If it cannot be written; the looks before it are not harmed.
        """
        said, plan = json.dumps(look.said), zlib.compress(look.plan.encode())
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(TABLE)
            row = {**vars(look), "said": said, "plan": plan}
            number = connection.execute(INSERT, row).lastrowid
        return replace(look, number=number or 0)

    def looks(self, whole: bool = False) -> Iterator[Look]:
        """Yield the looks in their order; what was seen and planned only with `whole`."""
        if not self.path.exists():
            return
        columns = "*" if whole else "number, cluster, at_s, every_s, kind, said, seconds"
        with self._open() as connection:
            if not connection.execute("SELECT name FROM sqlite_master").fetchall():
                return
            connection.row_factory = sqlite3.Row
            for row in connection.execute(f"SELECT {columns} FROM shadow_looks ORDER BY number"):
                plan = {"plan": zlib.decompress(row["plan"]).decode()} if whole else {}
                yield Look(**{**row, **plan, "said": json.loads(row["said"])})
