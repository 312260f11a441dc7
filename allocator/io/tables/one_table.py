"""Read a single CSV file that does not belong to a folder: measurements, clusters, classes."""

import os
from dataclasses import replace
from pathlib import Path

from allocator.domain.findings import Findings
from allocator.domain.grid import ParsedTable, grid
from allocator.domain.schema.columns import Column, ColumnKind, TableSchema
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import InvalidInput
from allocator.io.folders import read_content
from allocator.io.tables.csv_table import ReadingLog, parse_csv


def read_table(path: Path | str, schema: TableSchema, other: Column | None = None) -> ParsedTable:
    """Read a table by its schema, with the faults found so far.

    Messages name the file by the path that was given.

    Parameters
    ----------
    path : str or path
        The file.
    schema : TableSchema
        Its columns.
    other : Column, optional
        What every column holds that the schema does not have; None: such columns are ignored.

    Raises
    ------
    InvalidInput
        If there is no such file, or no table in it.
    """
    table, reading = _table(path)
    more = [name for name in table.columns if other and name not in schema.by_name]
    columns = (*schema.columns, *(replace(other, name=name) for name in more if other))
    raw = Snapshot(table.file, {}, {table.file: table}, tuple(reading.faults))
    return grid(replace(schema, file=table.file, columns=columns), raw, Findings(reading.faults))


def read_numbers(path: Path | str) -> ParsedTable:
    """Read a table whose columns may have any name and hold numbers of at least 0.

    An example is a table of starts, with the seconds of each phase in a column of its own.
    """
    number = Column("", ColumnKind.NUMBER, "seconds", required=True, low=0)
    return read_table(path, TableSchema("", "measurements", ()), number)


def read_rows(path: Path | str) -> list[dict[str, str]]:
    """Return the cells of a table that `read_table` can read, as text, row by row."""
    table, _ = _table(path)
    names = list(table.columns)
    cells = zip(*(table.texts(name) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in cells]


def require_sound(table: ParsedTable) -> ParsedTable:
    """Return the table if it has no fault and at least one row.

    Raises
    ------
    InvalidInput
        With every fault; also for a table without rows.
    """
    findings = check_rows(table)
    if findings.faults:
        raise InvalidInput(findings.faults, findings.warnings)
    return table


def check_rows(table: ParsedTable) -> Findings:
    """Return what was found of a table; one without rows has a fault."""
    findings = table.findings
    if not len(table) and not findings.faults:
        findings.fault(table.schema.file, None, f"has no rows; it holds {table.schema.doc}")
    return findings


def _table(path: Path | str) -> tuple[Table, ReadingLog]:
    """Read the cells of a file, with the faults of reading."""
    reading = ReadingLog(os.fspath(path))
    content = read_content("", reading)
    table = None if content is None else parse_csv(content, reading)
    if table is None:
        raise InvalidInput(reading.faults)
    return table, reading
