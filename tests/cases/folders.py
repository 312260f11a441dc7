"""A snapshot as rows of plain values; it can be written to files or read as a Snapshot.

Generators make these folders. The text depends on the values alone: the same folder gives the same
bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.domain.schema.columns import TABLES
from allocator.domain.schema.texts import text_of
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
        tables = {}
        for file, rows in self.tables.items():
            names = columns(file, rows)
            cells = {name: [cell(row.get(name)) for row in rows] for name in names}
            tables[file] = Table(file, cells, range(2, len(rows) + 2))
        return Snapshot(self.name, dict(self.config), tables)

    def write(self, parent: Path) -> Path:
        """Write the files into parent/name; return that path."""
        path = parent / self.name
        path.mkdir(parents=True, exist_ok=True)
        for file, content in self.files().items():
            (path / file).write_bytes(content)
        return path


def columns(file: str, rows: Sequence[Row]) -> list[str]:
    """Return the columns that some row uses.

    The documented columns come first, in their order, and others as they occur. Without rows they
    are the required columns.
    """
    used = dict.fromkeys(name for row in rows for name in row)
    known = [c.name for c in TABLES[file].columns] if file in TABLES else []
    if not rows:
        return [c.name for c in TABLES[file].columns if c.required]
    return [n for n in known if n in used] + [n for n in used if n not in known]


def csv_of_rows(file: str, rows: Sequence[Row]) -> str:
    """Return the rows as CSV with a header and line feeds."""
    names = columns(file, rows)
    return csv_text(names, ([cell(row.get(name)) for name in names] for row in rows))


def cell(value: Any) -> str:
    """Return a value as the text of a cell; the keys of an object are sorted."""
    return text_of(dict(sorted(value.items())) if isinstance(value, Mapping) else value)
