"""Write a LinearModel as a free-format MPS file, which every solver reads.

The objective is the row `value`, which the section OBJSENSE says to maximise. A row with two
different finite bounds is an L row with a range. Rows without bounds have no effect and are left
out. The objective names every column, also those with coefficient 0, so that the order of the
columns is kept. Bounds are written wherever the defaults of readers differ. (HiGHS 1.15 writes
numbers with 15 digits, and an empty column that is not integer as an integer one.)
"""

from collections.abc import Iterator

import numpy as np

from allocator.domain.schema.texts import format_numbers
from allocator.io.model_files.model_names import column_names, row_names
from formulations.model.linear import Bools, Floats, LinearModel

MARKS = {True: " MARKER 'MARKER' 'INTORG'\n", False: " MARKER 'MARKER' 'INTEND'\n"}


def mps_text(model: LinearModel) -> Iterator[str]:
    """Yield the file piece by piece.

    Raises
    ------
    ValueError
        If a row has a lower bound above its upper one.
    """
    if (crossed := model.lower > model.upper).any():
        row = model.row_name(int(np.argmax(crossed)))
        raise ValueError(f"{row}: lower bound above upper bound")
    rows = row_names(model)
    columns = column_names(model)
    low, up = np.isfinite(model.lower), np.isfinite(model.upper)
    equal = model.lower == model.upper
    kind = np.where(equal, "E", np.where(up, "L", np.where(low, "G", ""))).tolist()
    yield "NAME allocation\nOBJSENSE\n    MAX\nROWS\n N value\n"
    yield from (f" {k} {name}\n" for k, name in zip(kind, rows, strict=True) if k)
    yield "COLUMNS\n"
    yield from _columns(
        model, columns, [name if k else "" for k, name in zip(kind, rows, strict=True)]
    )
    side = np.where(up, model.upper, model.lower)
    yield "RHS\n"
    yield from _sides("RHS", rows, (low | up) & (side != 0), side)
    if (ranged := low & up & ~equal).any():
        yield "RANGES\n"
        with np.errstate(invalid="ignore"):
            yield from _sides("RNG", rows, ranged, model.upper - model.lower)
    yield "BOUNDS\n"
    bounds = zip(columns, model.integer, model.col_lower, model.col_upper, strict=True)
    yield from (_bound(name, bool(i), float(a), float(b)) for name, i, a, b in bounds)
    yield "ENDATA\n"


def _columns(model: LinearModel, columns: list[str], rows: list[str]) -> Iterator[str]:
    """Yield the entries of each column; rows without a name are left out."""
    value, coef = format_numbers(model.value), format_numbers(model.coef)
    start, index = model.start.tolist(), model.index.tolist()
    is_marked = False
    for c, (name, is_integer) in enumerate(zip(columns, model.integer.tolist(), strict=True)):
        if is_integer != is_marked:
            is_marked = is_integer
            yield MARKS[is_marked]
        entries = range(start[c], start[c + 1])
        yield f" {name} value {value[c]}\n"
        yield from (f" {name} {rows[index[z]]} {coef[z]}\n" for z in entries if rows[index[z]])
    if is_marked:
        yield MARKS[False]


def _sides(section: str, rows: list[str], some: Bools, numbers: Floats) -> Iterator[str]:
    """Yield the numbers of some rows."""
    texts = format_numbers(numbers[some])
    for r, text in zip(np.flatnonzero(some).tolist(), texts, strict=True):
        yield f" {section} {rows[r]} {text}\n"


def _bound(name: str, is_integer: bool, low: float, up: float) -> str:
    """Return the bounds of one column, "" if all readers suppose them.

    Lower bounds come first, because a negative upper bound would change them.
    """
    if (low, up) == (0, np.inf) and not is_integer:
        return ""
    if (low, up) == (0, 1) and is_integer:
        return f" BV BND {name}\n"
    if low == up:
        return f" FX BND {name} {low!r}\n"
    if (low, up) == (-np.inf, np.inf):
        return f" FR BND {name}\n"
    lower = f" MI BND {name}\n" if np.isneginf(low) else f" LO BND {name} {low!r}\n"
    return lower + (f" PL BND {name}\n" if np.isposinf(up) else f" UP BND {name} {up!r}\n")
