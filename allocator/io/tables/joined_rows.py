"""Text of many rows from columns of cells, which are joined some rows at a time.

A row takes no step of the interpreter: the cells of a column are put between the constant pieces of
all rows by one assignment, and the list of pieces is joined.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

REPEATED = 4  # times that a value of a column is there on average, from which on it is often there
ROWS = 1000  # so few that their pieces stay in the cache of a processor
_MAY_NEED_QUOTES = re.compile('[,"\r\n]')


def join_rows(
    columns: Sequence[Sequence[str]], around: Sequence[str], between: str
) -> Iterator[str]:
    """Yield the text of all rows in pieces.

    Parameters
    ----------
    columns : sequence of n sequences
        The cells of each column, one for each row.
    around : sequence of n + 1 texts
        What stands before, between and after the cells of each row.
    between : str
        What stands between two rows.

    Examples
    --------
    >>> "".join(join_rows([["a", "b"], ["1", "2"]], ("<", "=", ">"), "; "))
    '<a=1>; <b=2>'
    """
    pieces = [around[0]]
    places: list[tuple[int, Sequence[str]]] = []
    for cells, after in zip(columns, around[1:], strict=True):
        if cells and is_constant(cells, cells[0]):
            pieces[-1] += cells[0] + after
        else:
            places.append((len(pieces), cells))
            pieces += ["", after]
    pieces[-1] += between
    step, count = len(pieces), len(columns[0])
    for begin in range(0, count, ROWS):
        end = min(begin + ROWS, count)
        text = pieces * (end - begin)
        for place, cells in places:
            text[place::step] = cells[begin:end]
        if end == count:
            text[-1] = text[-1].removesuffix(between)
        yield "".join(text)


def map_distinct(function: Callable[[Any], str], values: Sequence[Any]) -> list[str]:
    """Return a function of each value; it is called once for values that are often there.

    Values that are equal must have equal results, which 0.0 and -0.0 may not have.
    """
    distinct = set(values)
    if len(distinct) * REPEATED >= len(values):
        return list(map(function, values))
    known = {value: function(value) for value in distinct}
    return list(map(known.__getitem__, values))


def is_constant(values: Sequence[object], value: object) -> bool:
    """Return whether there are values, and all are equal to this one."""
    return len(values) > 0 and values[-1] == value and values.count(value) == len(values)


def quote_cells(cells: Sequence[str]) -> Sequence[str]:
    """Return cells as they stand in a row of several in a CSV file, as the module `csv` writes it.

    Examples
    --------
    >>> quote_cells(["a", "b,c", ""])
    ['a', '"b,c"', '']
    """
    if _MAY_NEED_QUOTES.search("".join(cells)) is None:
        return cells
    find = _MAY_NEED_QUOTES.search
    return [cell if find(cell) is None else _quote(cell) for cell in cells]


def _quote(cell: str) -> str:
    if "\r" not in cell:
        return '"' + cell.replace('"', '""') + '"'
    # versions of Python differ in whether they quote it
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([cell, ""])
    return out.getvalue().removesuffix(",\n")
