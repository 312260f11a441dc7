"""Input as it was read or given: the cells of every table with their lines, not yet checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.domain.schema.cells import Cells, has_values, text_of, texts_of
from allocator.domain.schema.columns import MOST_INTEGER, TABLES, ColumnKind, TableSchema
from allocator.errors import Fault, UsageError

if TYPE_CHECKING:
    import pandas as pd

SEPARATOR = "\x1f"  # between cells; no valid cell contains a control character


@dataclass(frozen=True, eq=False)
class Table:
    """Cells of one file by column: stripped text, or values (domain/schema/cells.py).

    `lines[i]` is the line of row i in the file, where the header is line 1.
    """

    file: str
    columns: Mapping[str, Cells]
    lines: Sequence[int]

    @classmethod
    def of(cls, schema: TableSchema, columns: Mapping[str, Cells]) -> Table:
        """Build a table of these columns.

        A column without any value is left out unless it is required. Columns that the schema does
        not have, such as levels of the topology, are kept like optional ones.
        """
        required = {column.name for column in schema.columns if column.required}
        kept = {
            name: cells for name, cells in columns.items() if name in required or has_values(cells)
        }
        return cls(schema.file, kept, range(2, len(next(iter(columns.values()))) + 2))

    def texts(self, column: str) -> Sequence[str]:
        """Return the cells of a column as text, empty ones if the table does not have it."""
        if column not in self.columns:
            return [""] * len(self)
        if column not in self._texts:
            self._texts[column] = texts_of(self.columns[column])
        return self._texts[column]

    @cached_property
    def _texts(self) -> dict[str, Sequence[str]]:
        return {}

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether the other table has the same cells as text, in the same lines."""
        if not isinstance(other, Table):
            return NotImplemented
        return (self.file, list(self.lines), self.columns.keys()) == (
            other.file,
            list(other.lines),
            other.columns.keys(),
        ) and all(list(self.texts(name)) == list(other.texts(name)) for name in self.columns)

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, repr=False)
class Snapshot:
    """Hold the tables and settings of a round as they were read, not yet checked.

    Attributes
    ----------
    name : str
        Name of the folder.
    config : mapping of str to object
        Settings of config.toml.
    tables : mapping of str to Table
        Tables by file name.
    faults, warnings : tuple
        What was wrong while reading (encoding, ragged rows ...).
    config_lines : mapping of str to int
        Line of each setting in config.toml.

    Examples
    --------
    >>> import allocator
    >>> snapshot = allocator.read_snapshot("data/snapshots/demo")
    >>> snapshot
    Snapshot('demo', jobs=12, pools=2, rates=24)
    >>> allocator.Problem(snapshot).checked.pools.pool
    ('a100', 'v100')
    """

    name: str
    config: Mapping[str, Any]
    tables: Mapping[str, Table]
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    config_lines: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Summarise the tables on one line."""
        rows = [f"{file.removesuffix('.csv')}={len(t)}" for file, t in self.tables.items()]
        return f"Snapshot({', '.join([repr(self.name), *rows])})"

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of config and cells, whatever the order of columns or the quoting."""
        h = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        for file in sorted(self.tables):
            table = self.tables[file]
            for name in sorted(table.columns):
                h.update(f"\x1d{file}\x1e{name}\x1e".encode("utf-8", "surrogatepass"))
                h.update(SEPARATOR.join(table.texts(name)).encode("utf-8", "surrogatepass"))
        return h.hexdigest()

    def with_columns(self, file: str, **columns: Cells) -> Snapshot:
        """Return the snapshot with other columns of one of its tables.

        Parameters
        ----------
        file : str
            The table, such as "pools.csv".
        **columns : Cells
            New cells by column.

        Returns
        -------
        Snapshot
            Another snapshot; this one is not changed.
        """
        table = self.tables[file]
        other = replace(table, columns={**table.columns, **columns})
        return replace(self, tables={**self.tables, file: other})

    @classmethod
    def from_frames(
        cls,
        *,
        name: str = "frames",
        config: Mapping[str, Any] | None = None,
        **frames: pd.DataFrame,
    ) -> Snapshot:
        """Take the tables from pandas data frames.

        Parameters
        ----------
        name : str
            Name of the snapshot.
        config : mapping of str to object, optional
            Settings of config.toml.
        **frames : pandas.DataFrame
            Tables named like the files: jobs, pools, rates, tenants ... Row i is reported as line
            i + 2. A missing value is an empty cell; a list is written with bars, a dict as JSON.

        Returns
        -------
        Snapshot
            The tables, not yet checked.

        Raises
        ------
        UsageError
            For an unknown table, or two columns of one name.

        Examples
        --------
        >>> import pandas as pd
        >>> pools = pd.DataFrame({"pool": ["a"], "gpu_type": ["A"], "gpus": [8]})
        >>> Snapshot.from_frames(pools=pools)
        Snapshot('frames', pools=1)
        """
        return cls(name, dict(config or {}), tables_of_frames(frames, TABLES, "from_frames"))


def tables_of_frames(
    frames: Mapping[str, pd.DataFrame], known: Mapping[str, TableSchema], call: str
) -> dict[str, Table]:
    """Return raw tables of pandas frames named like the files, by file.

    `call` is the function that error messages name. Raises UsageError for an unknown table, or two
    columns of one name.
    """
    tables: dict[str, Table] = {}
    for key, frame in frames.items():
        file = f"{key}.csv"
        if file not in known:
            raise UsageError(f'{call}: no table "{key}"; known: {", ".join(t[:-4] for t in known)}')
        names = [str(c).strip() for c in frame.columns]
        if len(set(names)) < len(names):
            raise UsageError(f"{call}: {key} has two columns of one name: {', '.join(names)}")
        kinds = {c.name: c.kind for c in known[file].columns}
        columns = {
            name: _cells(frame.iloc[:, i], kinds.get(name, ColumnKind.TEXT))
            for i, name in enumerate(names)
        }
        tables[file] = Table(file, columns, range(2, len(frame) + 2))
    return tables


def snapshot_of_records(
    name: str, config: Mapping[str, Any], records: Mapping[str, Iterable[Any]]
) -> Snapshot:
    """Turn records into what validation takes.

    Parameters
    ----------
    name : str
        Name of the problem.
    config : mapping of str to object
        Settings, as config.toml has them.
    records : mapping of str to iterable of records
        Records by table, see `RECORDS`. Record i is reported as line i + 2 of that table's file.

    Returns
    -------
    Snapshot
        The tables, not yet validated.

    Raises
    ------
    UsageError
        If a table has a record of another type.
    """
    from allocator.domain.records import RECORDS  # a round that is read from files needs none

    tables: dict[str, Table] = {}
    for key, rows in records.items():
        listed, kind, schema = list(rows), RECORDS[key], TABLES[f"{key}.csv"]
        for row in listed:
            if not isinstance(row, kind):
                raise UsageError(f"{key} takes {kind.__name__} records, not {row!r}")
        if not listed and not schema.required:
            continue
        columns = {
            c.name: values_as_cells(c.kind, [getattr(row, c.name) for row in listed])
            for c in schema.columns
        }
        labels = [getattr(row, "labels", None) or {} for row in listed]
        for level in sorted({level for row in labels for level in row}):
            columns[level] = [row.get(level, "") for row in labels]
        tables[schema.file] = Table.of(schema, columns)
    return Snapshot(name, dict(config), tables)


def _cells(column: pd.Series[Any], kind: ColumnKind) -> Cells:
    """Return the cells of a frame's column: numbers and booleans as they are, others one by one."""
    missing = column.isna().to_numpy(dtype=bool)
    if column.dtype.kind == "f" or (column.dtype.kind in "iu" and missing.any()):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if column.dtype.kind in "iub" and not missing.any():
        return np.asarray(column.tolist())
    return values_as_cells(
        kind, [None if gone else v for v, gone in zip(column.tolist(), missing, strict=True)]
    )


def values_as_cells(kind: ColumnKind, values: Sequence[Any]) -> Cells:
    """Turn Python values of one column into cells: numbers into an array, others one by one."""
    if kind in (ColumnKind.NUMBER, ColumnKind.INTEGER) and all(
        v is None or (type(v) in (int, float) and abs(v) <= MOST_INTEGER) for v in values
    ):
        return np.array(values, dtype=np.float64)
    lists = kind in (ColumnKind.TEXTS, ColumnKind.INTEGERS)
    return [tuple(v) if lists and isinstance(v, (list, tuple)) else text_of(v) for v in values]
