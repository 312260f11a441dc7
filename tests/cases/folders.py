"""A snapshot as rows of plain values; it can be written to files or read as a Snapshot.

Generators make these folders. The text depends on the values alone: the same folder gives the same
bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.domain.schema.cells import text_of
from allocator.domain.schema.columns import TABLES
from allocator.domain.snapshot import Snapshot, Table
from allocator.io.config_toml import format_toml
from allocator.io.tables.csv_table import csv_text

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Folder:
    """One snapshot folder.

    Attributes
    ----------
    config : keys of config.toml; a mapping is a table of its own.
    tables : file name -> rows. A missing key or None is an empty cell.
    raw : file name -> content, in addition to the tables or instead of one (README.md, broken
    files).
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    raw: Mapping[str, bytes] = field(default_factory=dict)

    def files(self) -> dict[str, bytes]:
        """Return file name -> content, in order of names."""
        out = {file: csv_of_rows(file, rows).encode() for file, rows in self.tables.items()}
        if self.config:
            out["config.toml"] = format_toml(self.config).encode()
        return dict(sorted((out | dict(self.raw)).items()))

    def snapshot(self) -> Snapshot:
        """Return what reading the folder would give, without using a disk; `raw` is left out."""
        tables = {file: table(file, rows) for file, rows in self.tables.items()}
        return Snapshot(self.name, dict(self.config), tables)

    def write(self, parent: Path) -> Path:
        """Write the files into parent/name; return that path."""
        path = parent / self.name
        path.mkdir(parents=True, exist_ok=True)
        for file, content in self.files().items():
            (path / file).write_bytes(content)
        return path


def table(file: str, rows: Sequence[Row]) -> Table:
    """Return rows as a table.

    Its columns are those that some row uses. The documented columns come first, in their order, and
    others as they occur. Without rows they are the required columns. A file that is none
    of a snapshot has no documented columns.
    """
    used = dict.fromkeys(name for row in rows for name in row)
    known = [
        c
        for c in getattr(TABLES.get(file), "columns", ())
        if c.name in used or (not rows and c.required)
    ]
    names = dict.fromkeys([*(c.name for c in known), *used])
    cells = {name: [cell(row.get(name)) for row in rows] for name in names}
    return Table(file, cells, range(2, len(rows) + 2))


def csv_of_rows(file: str, rows: Sequence[Row]) -> str:
    """Return the rows as CSV with a header and line feeds."""
    return csv_of_table(table(file, rows))


def csv_of_table(made: Table) -> str:
    columns = made.columns
    return csv_text(list(columns), zip(*columns.values(), strict=True))


def cell(value: Any) -> str:
    """Return a value as the text of a cell; the keys of an object are sorted."""
    if isinstance(value, str):
        return value
    return text_of(dict(sorted(value.items())) if isinstance(value, Mapping) else value)
