"""A parsed table: every column of the schema, present in the file or not, with its faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from allocator.domain.findings import (
    HINTED,
    Findings,
    did_you_mean,
    quote,
    suggest_names,
    suggest_setting,
)
from allocator.domain.problem import Bools, Ints
from allocator.domain.schema.cells import ParsedColumn, default_column, parse
from allocator.domain.schema.columns import NODES, TABLES, Column, ColumnKind, TableSchema
from allocator.domain.schema.previous_cells import PreviousCells, PreviousTables
from allocator.domain.schema.texts import Cells, picked, text_of
from allocator.domain.snapshot import Snapshot, Table

HEADER = 1  # line of the header


class Rows(Mapping[str, int]):
    """The row of each name, the first one where several have it; found when it is first asked.

    Parameters
    ----------
    names : sequence of str
        Name of each row, "" = none.
    are_distinct : bool
        Whether all of them are known to be different, and none to be "".
    """

    def __init__(self, names: Sequence[str], are_distinct: bool) -> None:
        self._names = names
        self._are_distinct = are_distinct

    @cached_property
    def _row(self) -> dict[str, int]:
        names = self._names
        out = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
        out.pop("", None)
        return out

    def __getitem__(self, name: str) -> int:
        return self._row[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the row of a name, or the default."""
        return self._row.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._names if self._are_distinct else self._row)


@dataclass(frozen=True)
class ParsedTable:
    """One table of n rows.

    `present` says whether the snapshot has the file, `whole` whether nothing of it was lost while
    reading, `has_distinct_names` whether the rows are known to have names of one column that are
    all different.
    """

    schema: TableSchema
    lines: Sequence[int]
    cells: Mapping[str, Cells]
    columns: Mapping[str, ParsedColumn]
    present: bool
    whole: bool
    has_distinct_names: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: str) -> Any:
        """Return the values of a column, see `cells.ParsedColumn`."""
        return self.columns[column].value

    def given(self, column: str) -> Bools:
        """Return where the cell is not empty, (n,)."""
        return self.columns[column].given

    def distinct(self, column: str) -> list[Any]:
        """Return the distinct values of a column of names or lists, in order of appearance."""
        return self.columns[column].factors[0]

    def codes(self, column: str, known: Mapping[str, int]) -> Ints:
        """Return the index of each name of a column among the known ones, (n,), -1 = none."""
        distinct, number = self.columns[column].factors
        return np.array([known.get(name, -1) for name in distinct], dtype=np.int64)[number]

    def ok(self, *columns: str) -> Bools:
        """Return where the cells of all these columns are valid, (n,)."""
        out = np.ones(len(self), dtype=bool)
        for name in columns:
            out &= self.columns[name].ok
        return out

    def text(self, column: str, row: int) -> str:
        """Return the text of a cell for a message, or its default."""
        if self.given(column)[row]:
            return text_of(self.cells[column][row])
        return f"{self[column][row]:g}"

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each name in the key column, for tables with one key column."""
        return Rows(self[self.schema.key[0]], self.has_distinct_names)

    @cached_property
    def complete(self) -> bool:
        """Whether a name absent from `index` is really missing, not only lost to another fault."""
        return self.whole and bool(self.ok(self.schema.key[0]).all())

    def take(self, rows: Ints) -> ParsedTable:
        """Return the table of these rows, in their order."""
        return replace(
            self,
            lines=[self.lines[i] for i in rows.tolist()],
            cells={name: picked(cells, rows) for name, cells in self.cells.items()},
            columns={name: parsed.take(rows) for name, parsed in self.columns.items()},
        )

    def subject(self, row: int) -> str:
        """Return what a message is about, such as 'job "bert-3"', "" where rows have no names."""
        if len(self.schema.key) != 1:
            return ""
        name = self[self.schema.key[0]][row]
        return f"{self.schema.key[0].removesuffix('_id')} {quote(name)}" if name else ""

    def fault(self, found: Findings, row: int, message: str) -> None:
        found.fault(self.schema.file, self.lines[row], message, self.subject(row))

    def faults(self, found: Findings, rows: Bools, message: Callable[[int], str]) -> None:
        """Add a fault for every row that is True in `rows` (n,)."""
        for i in np.flatnonzero(rows).tolist():
            self.fault(found, i, message(i))

    def warnings(
        self, found: Findings, rows: Bools, message: Callable[[int], str], sort: str
    ) -> None:
        """Add a warning for every row that is True in `rows` (n,).

        Many warnings of one `sort` are summed up.
        """
        for i in np.flatnonzero(rows).tolist():
            found.warn(self.schema.file, self.lines[i], message(i), sort, self.subject(i))

    def refer(
        self, found: Findings, column: str, known: Mapping[str, int], *, among: str, judge: bool
    ) -> Ints:
        """Return the index of each name among the known ones, (n,), -1 = none.

        Unknown names are faults if `judge` is True.
        """
        names = self[column]
        code = self.codes(column, known)
        unknown = (code < 0) & self.given(column) & self.ok(column)
        if judge and unknown.any():
            hint = suggest_names([names[i] for i in np.flatnonzero(unknown).tolist()], known)
            self.faults(
                found, unknown, lambda i: f"{column} {quote(names[i])} {among}{hint[names[i]]}"
            )
        return code


def grid(
    schema: TableSchema,
    snapshot: Snapshot,
    found: Findings,
    previous: PreviousCells | None = None,
) -> ParsedTable:
    """Parse one table of a snapshot; an absent one has no rows.

    Faults of headers, cells and keys are added to `found`. `previous` has the cells of the round
    before and keeps those of this one.
    """
    readable = all(f.file != schema.file for f in snapshot.faults)
    present = schema.file in snapshot.tables
    table = snapshot.tables[schema.file] if present else Table(schema.file, {}, ())
    if present:
        _header(schema, table, found)
    elif schema.required and readable:
        found.fault(schema.file, None, f"is missing; it holds {schema.doc}")
    own = [column for column in schema.columns if column.name in table.columns]
    read = (
        {column.name: parse(column, table.columns[column.name]) for column in own}
        if previous is None
        else previous.read(own, schema.key, table.columns)
    )
    complaints = [complaint for _, wrong in read.values() for complaint in wrong]
    columns = {
        column.name: read[column.name][0]
        if column.name in read
        else default_column(column, len(table))
        for column in schema.columns
    }
    there = (
        all(c.name in table.columns for c in schema.columns if c.required)
        if present
        else not schema.required
    )
    out = ParsedTable(
        schema,
        table.lines,
        table.columns,
        columns,
        present,
        readable and there,
        previous is not None and previous.has_distinct_names,
    )
    for row, message in complaints:
        out.fault(found, row, message)
    if schema.key and out.ok(*schema.key).any():
        _keys(out, found)
    return out


def grids(
    snapshot: Snapshot,
    found: Findings,
    levels: Sequence[str],
    schemas: Mapping[str, TableSchema] = TABLES,
    previous: PreviousTables | None = None,
) -> dict[str, ParsedTable]:
    """Parse all tables of the schemas, by file name; nodes.csv has the `levels` of the topology."""
    return {
        file: grid(
            _with_levels(schema, levels),
            snapshot,
            found,
            None if previous is None else previous.of(file),
        )
        for file, schema in schemas.items()
    }


def _with_levels(schema: TableSchema, levels: Sequence[str]) -> TableSchema:
    """Return the schema, that of nodes.csv with a column of text for each level of the topology."""
    if schema.file != NODES.file:
        return schema
    known = {column.name for column in schema.columns}
    more = tuple(
        Column(name, ColumnKind.TEXT, "level of the topology")
        for name in levels
        if name not in known
    )
    return replace(schema, columns=(*schema.columns, *more))


def _header(schema: TableSchema, table: Table, found: Findings) -> None:
    known = {c.name: c for c in schema.columns}
    strange = [name for name in table.columns if name not in known]
    lost = [c.name for c in schema.columns if c.required and c.name not in table.columns]
    for name in lost:
        found.fault(schema.file, HEADER, f"column {name} is missing{did_you_mean(name, strange)}")
    default_column = [name for name in known if name not in table.columns]
    for i, name in enumerate(strange):
        hint = suggest_setting(name, default_column) if i < HINTED else ""
        found.warn(
            schema.file,
            HEADER,
            f"column {quote(name)} is not known and is ignored{hint}",
            "columns that are not known",
        )


def _keys(table: ParsedTable, found: Findings) -> None:
    """Add a fault for rows with the same key."""
    names = table.schema.key
    if len(names) == 1 and len(table.index) == len(table):
        return
    values = [v.tolist() if isinstance(v, np.ndarray) else v for v in (table[n] for n in names)]
    keys = values[0] if len(values) == 1 else list(zip(*values, strict=True))
    if len(set(keys)) == len(keys):
        return
    ok = table.ok(*names)
    first: dict[Any, int] = {}
    for i, key in enumerate(keys):
        if not ok[i]:
            continue
        if key in first:
            what = ", ".join(f"{n} {_shown(table, n, i)}" for n in names)
            found.fault(
                table.schema.file,
                table.lines[i],
                f"{what} is already in line {table.lines[first[key]]}",
            )
        first.setdefault(key, i)


def _shown(table: ParsedTable, column: str, row: int) -> str:
    text = text_of(table.cells[column][row]) if column in table.cells else ""
    return text if isinstance(table[column], np.ndarray) else quote(text)
