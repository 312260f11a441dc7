"""Parsed tables: every column of the schema, present in the file or not, with its faults.

The names in them are numbered in order of first appearance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from string import Formatter
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
from allocator.domain.schema.cells import (
    Cells,
    Complaint,
    ParsedColumn,
    default_column,
    parse,
    picked,
    text_of,
)
from allocator.domain.schema.columns import NODES, TABLES, Column, ColumnKind, TableSchema
from allocator.domain.snapshot import Snapshot, Table

HEADER = 1  # line of the header
Words = str | Callable[[int], str]
"""A message about a row: a text in which {column} stands for its cell, or a function of the row."""


@dataclass(frozen=True)
class ParsedTable:
    """One table of n rows.

    `present` says whether the snapshot has the file, `whole` whether nothing of it was lost while
    reading. What is wrong with rows is added to `findings`.
    """

    schema: TableSchema
    lines: Sequence[int]
    cells: Mapping[str, Cells]
    columns: Mapping[str, ParsedColumn]
    present: bool
    whole: bool
    findings: Findings

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
        return self.columns[column].codes(known)

    def ok(self, *columns: str) -> Bools:
        """Return where the cells of all these columns are valid, (n,)."""
        out = np.ones(len(self), dtype=bool)
        for name in columns:
            out &= self.columns[name].ok
        return out

    def text(self, column: str, row: int) -> str:
        """Return the text of a cell, or its default."""
        if self.given(column)[row]:
            return text_of(self.cells[column][row])
        return f"{self[column][row]:g}"

    def shown(self, column: str, row: int) -> str:
        """Return a cell as messages show it: numbers and choices plainly, other texts in quotes."""
        declared = self.schema.column(column)
        if declared.kind is ColumnKind.CHOICE:
            return str(declared.choices[self[column][row]])
        if declared.kind is ColumnKind.TEXT:
            return quote(self[column][row])
        shown = self.text(column, row)
        return quote(shown) if isinstance(self[column], list) else shown

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each name in the key column, the first one where several have it."""
        names = self[self.schema.key[0]]
        out = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
        out.pop("", None)
        return out

    @cached_property
    def complete(self) -> bool:
        """Whether a name absent from `index` is really missing, not only lost to another fault."""
        return self.whole and bool(self.ok(self.schema.key[0]).all())

    @cached_property
    def all_ok(self) -> bool:
        """Whether nothing was lost while reading, and every cell is valid."""
        return self.whole and bool(self.ok(*self.columns).all())

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

    def fault(self, row: int, message: str) -> None:
        self.findings.fault(self.schema.file, self.lines[row], message, self.subject(row))

    def faults(self, rows: Bools, words: Words, **values: Any) -> None:
        """Add a fault for every row that is True in `rows` (n,).

        Each of `values` (n,) may be named in the words, too.
        """
        for i, message in self._messages(rows, words, values):
            self.fault(i, message)

    def warnings(self, rows: Bools, words: Words, sort: str, **values: Any) -> None:
        """Add a warning for every row, as `faults` does; many of one `sort` are summed up."""
        for i, message in self._messages(rows, words, values):
            self.findings.warn(self.schema.file, self.lines[i], message, sort, self.subject(i))

    def _messages(
        self, rows: Bools, words: Words, values: Mapping[str, Any]
    ) -> Iterator[tuple[int, str]]:
        text = words if isinstance(words, str) else ""
        names = {name for _, name, _, _ in Formatter().parse(text) if name}
        for i in np.flatnonzero(rows).tolist():
            cells = {n: values[n][i] if n in values else self.shown(n, i) for n in names}
            yield i, words(i) if callable(words) else words.format(**cells)

    def refer(self, column: str, known: Mapping[str, int], among: str, sort: str = "") -> None:
        """Report names that are not known: as warnings of a `sort`, or as faults."""
        if not len(self):
            return
        unknown = (self.codes(column, known) < 0) & self.given(column) & self.ok(column)
        if not unknown.any():
            return
        names = self[column]
        hint = suggest_names([names[i] for i in np.flatnonzero(unknown).tolist()], known)

        def words(i: int) -> str:
            return f"{column} {quote(names[i])} {among}{hint[names[i]]}"

        if sort:
            self.warnings(unknown, words, sort)
        else:
            self.faults(unknown, words)


def grid(schema: TableSchema, snapshot: Snapshot, findings: Findings) -> ParsedTable:
    """Parse one table of a snapshot; an absent one has no rows.

    Faults of headers, cells and keys are added to `findings`.
    """
    readable = all(f.file != schema.file for f in snapshot.faults)
    present = schema.file in snapshot.tables
    table = snapshot.tables[schema.file] if present else Table(schema.file, {}, ())
    if present:
        _header(schema, table, findings)
    elif schema.required and readable:
        findings.fault(schema.file, None, f"is missing; it holds {schema.doc}")
    columns: dict[str, ParsedColumn] = {}
    wrong: list[Complaint] = []
    for column in schema.columns:
        if column.name in table.columns:
            columns[column.name], complaints = parse(column, table.columns[column.name])
            wrong += complaints
        else:
            columns[column.name] = default_column(column, len(table))
    lost = any(c.required and c.name not in table.columns for c in schema.columns)
    whole = readable and not (lost if present else schema.required)
    out = ParsedTable(schema, table.lines, table.columns, columns, present, whole, findings)
    for row, message in wrong:
        out.fault(row, message)
    if schema.key and out.ok(*schema.key).any():
        _keys(out)
    return out


def grids(
    snapshot: Snapshot,
    findings: Findings,
    levels: Sequence[str],
    schemas: Mapping[str, TableSchema] = TABLES,
) -> dict[str, ParsedTable]:
    """Parse all tables of the schemas, by file name; nodes.csv has the `levels` of the topology."""
    return {
        file: grid(
            _with_levels(schema, levels) if file == NODES.file else schema, snapshot, findings
        )
        for file, schema in schemas.items()
    }


def _with_levels(schema: TableSchema, levels: Sequence[str]) -> TableSchema:
    """Return the schema with a column of text for each level of the topology."""
    more = [name for name in levels if name not in schema.by_name]
    levels_of = (Column(name, ColumnKind.TEXT, "level of the topology") for name in more)
    return replace(schema, columns=(*schema.columns, *levels_of))


def _header(schema: TableSchema, table: Table, findings: Findings) -> None:
    known = schema.by_name
    strange = [name for name in table.columns if name not in known]
    unused = [name for name in known if name not in table.columns]
    for name in unused:
        if known[name].required:
            hint = did_you_mean(name, strange)
            findings.fault(schema.file, HEADER, f"column {name} is missing{hint}")
    for i, name in enumerate(strange):
        hint = suggest_setting(name, unused) if i < HINTED else ""
        findings.warn(
            schema.file,
            HEADER,
            f"column {quote(name)} is not known and is ignored{hint}",
            "columns that are not known",
        )


def _keys(table: ParsedTable) -> None:
    """Add a fault for rows with the same key."""
    names = table.schema.key
    values = [v.tolist() if isinstance(v, np.ndarray) else v for v in (table[n] for n in names)]
    keys = list(zip(*values, strict=True)) if names[1:] else values[0]
    if len(set(keys)) == len(keys):
        return
    first: dict[Any, int] = {}
    for i in np.flatnonzero(table.ok(*names)).tolist():
        row = first.setdefault(keys[i], i)
        if row < i:
            what = ", ".join(f"{n} {table.shown(n, i)}" for n in names)
            message = f"{what} is already in line {table.lines[row]}"
            table.findings.fault(table.schema.file, table.lines[i], message)


Index = Mapping[str, int]


@dataclass(frozen=True)
class Names:
    """Map every name of a snapshot to its number.

    Attributes
    ----------
    jobs, pools, nodes : mapping of str to int
        Rows of jobs.csv, pools.csv and nodes.csv.
    listed_tenants, tenants : mapping of str to int
        Tenants of tenants.csv; the same and those only named by jobs.
    models, gpu_types : mapping of str to int
        All that any table names.
    rated_models, rated_types : mapping of str to int
        Those with a row in rates.csv or models.csv.
    given_models : mapping of str to int
        Models with a row that a user gave, not only rows that a controller observed.
    complete : bool
        True if no rate was lost to a fault.
    """

    jobs: Index
    pools: Index
    nodes: Index
    listed_tenants: Index
    tenants: Index
    models: Index
    gpu_types: Index
    rated_models: Index
    rated_types: Index
    given_models: Index
    complete: bool


def names(grids: Mapping[str, ParsedTable]) -> Names:
    """Return all names of the tables."""
    tenants, jobs, rates, curves, sharing, pauses = (
        grids[f"{name}.csv"] for name in ("tenants", "jobs", "rates", "models", "sharing", "pauses")
    )
    rated_models = number_names(rates["model"], curves["model"])
    rated_types = number_names(rates["gpu_type"], curves["gpu_type"])
    return Names(
        **{name: grids[f"{name}.csv"].index for name in ("jobs", "pools", "nodes")},
        listed_tenants=number_names(tenants["tenant"]),
        tenants=number_names(tenants["tenant"], jobs.distinct("tenant")),
        models=number_names(
            rated_models,
            sharing["model_a"],
            sharing["model_b"],
            pauses["model"],
            jobs.distinct("model"),
            grids["finished.csv"]["model"],
        ),
        gpu_types=number_names(
            grids["pools.csv"]["gpu_type"], rated_types, sharing["gpu_type"], pauses["gpu_type"]
        ),
        rated_models=rated_models,
        rated_types=rated_types,
        given_models=number_names(compress(rates["model"], ~rates["observed"]), curves["model"]),
        complete=all(t.whole and bool(t.ok("model", "gpu_type").all()) for t in (rates, curves)),
    )


def number_names(*columns: Iterable[str]) -> dict[str, int]:
    """Number the distinct names of columns, without empty ones."""
    distinct = dict.fromkeys(chain(*columns))
    distinct.pop("", None)
    return {name: i for i, name in enumerate(distinct)}
