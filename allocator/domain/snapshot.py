"""What was read: the raw text of every table with its line numbers. A Snapshot promises nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from allocator.domain.columns import TABLES, TableSchema
from allocator.errors import Fault, UsageError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """Cells of one CSV file, stripped, by column; `lines[i]` is the line of row i in the file
    (header = line 1).
    """

    file: str
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Snapshot:
    """A folder as read: config, raw tables, and the faults and warnings met while reading
    (encoding, ragged rows ...).

    `validate` (domain/validate.py) turns it into a Problem or raises InvalidInput with all faults.
    """

    name: str
    config: Mapping[str, Any]
    tables: Mapping[str, Table]
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    config_lines: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: config and cells, whatever the order of columns or the
        quoting.
        """
        h = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        for file in sorted(self.tables):
            table = self.tables[file]
            for name in sorted(table.columns):
                h.update(f"\x1d{file}\x1e{name}\x1e".encode("utf-8", "surrogatepass"))
                h.update("\x1f".join(table.columns[name]).encode("utf-8", "surrogatepass"))
        return h.hexdigest()

    @classmethod
    def from_frames(
        cls,
        *,
        name: str = "frames",
        config: Mapping[str, Any] | None = None,
        **frames: pd.DataFrame,
    ) -> Snapshot:
        """Snapshot from pandas frames named like the files: jobs=, pools=, rates=, tenants= ...

        Row i of a frame is reported as line i + 2, as if it had been written to CSV. Missing values
        are empty cells; a list in a cell is written with bars, a dict as JSON. Raises UsageError
        for an unknown table, or two columns of one name.
        """
        return cls(name, dict(config or {}), tables_of_frames(frames, TABLES, "from_frames"))


def tables_of_frames(
    frames: Mapping[str, pd.DataFrame], known: Mapping[str, TableSchema], call: str
) -> dict[str, Table]:
    """Raw tables of pandas frames named like the files, by file; `call` is whom an error names.

    Raises UsageError for an unknown table, or two columns of one name.
    """
    tables: dict[str, Table] = {}
    for key, frame in frames.items():
        file = f"{key}.csv"
        if file not in known:
            raise UsageError(f'{call}: no table "{key}"; known: {", ".join(t[:-4] for t in known)}')
        names = [str(c).strip() for c in frame.columns]
        if len(set(names)) < len(names):
            raise UsageError(f"{call}: {key} has two columns of one name: {', '.join(names)}")
        columns = {name: _cells(frame.iloc[:, i]) for i, name in enumerate(names)}
        tables[file] = Table(file, columns, range(2, len(frame) + 2))
    return tables


def _cells(column: pd.Series[Any]) -> list[str]:
    missing = column.isna().tolist()
    return [
        "" if gone else _cell(v).strip() for v, gone in zip(column.tolist(), missing, strict=True)
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(value))  # numpy's own repr is no number
    if isinstance(value, (list, tuple)):
        return "|".join(map(_cell, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)
