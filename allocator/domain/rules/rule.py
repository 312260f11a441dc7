"""Rules between cells: each is a declaration, or a function, and is applied to all tables at once.

A message is a text in which {column} stands for the cell, as `ParsedTable.shown` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.domain.findings import Findings
from allocator.domain.grid import Names, ParsedTable
from allocator.domain.problem import Bools
from allocator.domain.settings import Settings


@dataclass(frozen=True)
class Round:
    """What rules are about, and where faults and warnings go.

    `now_s` is the time of the round, or the start of the workload.
    """

    tables: Mapping[str, ParsedTable]
    names: Names
    config: Settings
    now_s: float
    findings: Findings

    def __getitem__(self, file: str) -> ParsedTable:
        return self.tables[file]

    def apply(self, rules: Iterable[Check]) -> None:
        """Add what breaks the rules to what was found."""
        for rule in rules:
            rule(self)

    def knows_all(self, names: str) -> bool:
        """Return whether a name that is not known is wrong, and not only lost to a fault."""
        if names == "gpu_types":
            return self["pools.csv"].whole and self.names.complete
        return self[f"{names}.csv"].complete

    def refer(self, file: str, column: str) -> None:
        """Report names of a column that are in no table that should have them."""
        table = self[file]
        names = table.schema.column(column).names
        if self.knows_all(names):
            known = self.names.listed_tenants if names == "tenants" else getattr(self.names, names)
            why = "is a type of no pool and has no rate"
            table.refer(column, known, why if names == "gpu_types" else f"is not in {names}.csv")


Check = Callable[[Round], None]


@dataclass(frozen=True)
class Rule:
    """A rule between cells of a row.

    Attributes
    ----------
    file : str
        The table.
    words : str
        What is wrong, for a message.
    cells : str
        Columns whose cells must be valid, with spaces between: other rows are not judged.
    broken : callable
        Rows that break the rule, (n,).
    sort : str
        Kind of warning; "" = the rule is broken by a fault.
    """

    file: str
    words: str
    cells: str
    broken: Callable[[ParsedTable], Bools]
    sort: str = ""

    def __call__(self, x: Round) -> None:
        """Report the rows that break the rule."""
        table = x[self.file]
        if not len(table):
            return
        with np.errstate(invalid="ignore"):
            rows = table.ok(*self.cells.split()) & self.broken(table)
        if self.sort:
            table.warnings(rows, self.words, self.sort)
        else:
            table.faults(rows, self.words)


def reference(file: str, column: str) -> Check:
    """Return the rule that the names of a column are in the table that should have them."""
    return lambda x: x.refer(file, column)


def lacks(given: str, missing: str) -> Callable[[ParsedTable], Bools]:
    """Return what finds the rows in which one of two cells is given and the other is empty."""
    return lambda t: t.given(given) & ~t.given(missing)
