"""Read a single CSV file that does not belong to a folder: measurements, clusters, classes."""

import os
from dataclasses import replace
from typing import Any

from allocator.domain.findings import Findings
from allocator.domain.grid import ParsedTable, grid
from allocator.domain.schema.columns import Column, ColumnKind, TableSchema
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import InvalidInput
from allocator.io.folders import read_content
from allocator.io.tables.csv_table import ReadingLog, parse_csv


def read_table(path: str | os.PathLike[str], schema: TableSchema) -> tuple[ParsedTable, Findings]:
    """Read a table by its schema; return it with the faults found so far.

    Messages name the file by the path that was given.

    Raises
    ------
    InvalidInput
        If there is no such file, or no table in it.
    """
    table, reading = _table(path)
    return _grid(table, reading, replace(schema, file=table.file))


def read_numbers(path: str | os.PathLike[str]) -> tuple[ParsedTable, Findings]:
    """Read a table whose columns may have any name and hold numbers of at least 0.

    An example is a table of starts, with the seconds of each phase in a column of its own.
    """
    return _read_with(path, TableSchema("", "measurements", ()), doc="seconds", low=0)


def read_measurements(
    path: str | os.PathLike[str], schema: TableSchema
) -> tuple[ParsedTable, Findings]:
    """Read a table with the columns of its schema and any other columns, which are features.

    A feature is a number above 0.
    """
    return _read_with(path, schema, doc="a feature", above=0)


def _read_with(
    path: str | os.PathLike[str], schema: TableSchema, **more: Any
) -> tuple[ParsedTable, Findings]:
    """Read a table with the columns of its schema, and other columns of numbers."""
    table, reading = _table(path)
    known = {c.name for c in schema.columns}
    numbers = (
        Column(name, ColumnKind.NUMBER, required=True, **more)
        for name in table.columns
        if name not in known
    )
    return _grid(table, reading, TableSchema(table.file, schema.doc, (*schema.columns, *numbers)))


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the cells of a table that `read_table` can read, as text, row by row."""
    table, _ = _table(path)
    names = list(table.columns)
    cells = zip(*(table.texts(name) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in cells]


def require_sound(grids: ParsedTable, found: Findings) -> ParsedTable:
    """Return the table if it has no fault and at least one row.

    Raises
    ------
    InvalidInput
        With every fault; also for a table without rows.
    """
    if not len(grids) and not found.faults:
        found.fault(grids.schema.file, None, f"has no rows; it holds {grids.schema.doc}")
    if found.faults:
        raise InvalidInput(found.faults, found.warnings)
    return grids


def _table(path: str | os.PathLike[str]) -> tuple[Table, ReadingLog]:
    """Read the cells of a file, with the faults and warnings of reading."""
    reading = ReadingLog(os.fspath(path))
    content = read_content("", reading)
    table = None if content is None else parse_csv(content, reading)
    if table is None:
        raise InvalidInput(reading.faults)
    return table, reading


def _grid(table: Table, reading: ReadingLog, schema: TableSchema) -> tuple[ParsedTable, Findings]:
    """Parse the cells by the schema."""
    found = Findings(reading.faults)
    raw = Snapshot(
        table.file,
        {},
        {table.file: table},
        tuple(reading.faults),
        tuple(str(w) for w in reading.warnings),
    )
    return grid(schema, raw, found), found
