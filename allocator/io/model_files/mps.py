"""Write a LinearModel as a free-format MPS file, which every solver reads.

The objective is the row `value`, which the section OBJSENSE says to maximise. A row with two
different finite bounds is an L row with a range. Rows without bounds have no effect and are left
out. The objective names every column, also those with coefficient 0, so that the order of the
columns is kept. Bounds are written wherever the defaults of readers differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from allocator.domain.schema.texts import format_numbers
from allocator.io.model_files.model_names import column_names, row_names
from formulations.model.linear import Bools, LinearModel

CHUNK = 50_000  # columns formatted at a time: a bounded amount of text in memory


def mps_text(model: LinearModel) -> Iterator[str]:
    """Yield the file piece by piece.

    Raises
    ------
    ValueError
        If a row has a lower bound above its upper one.
    """
    if (model.lower > model.upper).any():
        raise ValueError(
            f"{model.row_name(int(np.argmax(model.lower > model.upper)))}: lower bound above upper"
            " bound"
        )
    rows = row_names(model)
    columns = column_names(model)
    low = np.isfinite(model.lower)
    up = np.isfinite(model.upper)
    equal = low & up & (model.lower == model.upper)
    ranged = low & up & ~equal
    kind = np.where(equal, "E", np.where(up, "L", np.where(low, "G", "")))
    yield "NAME allocation\nOBJSENSE\n    MAX\nROWS\n N value\n"
    yield "".join(f" {k} {name}\n" for k, name in zip(kind.tolist(), rows, strict=True) if k)
    yield "COLUMNS\n"
    yield from _columns(model, rows, columns, low | up)
    yield "RHS\n"
    side = np.where(up, model.upper, model.lower)
    some = np.flatnonzero((low | up) & (side != 0))
    yield "".join(
        f" RHS {rows[r]} {b}\n"
        for r, b in zip(some.tolist(), format_numbers(side[some]), strict=True)
    )
    if ranged.any():
        some = np.flatnonzero(ranged)
        width = format_numbers(model.upper[some] - model.lower[some])
        yield "RANGES\n" + "".join(
            f" RNG {rows[r]} {b}\n" for r, b in zip(some.tolist(), width, strict=True)
        )
    yield "BOUNDS\n"
    yield from _bounds(model, columns)
    yield "ENDATA\n"


def _columns(model: LinearModel, rows: list[str], columns: list[str], kept: Bools) -> Iterator[str]:
    marks = {True: "INTORG", False: "INTEND"}
    now = False
    edges = [0, *(np.flatnonzero(np.diff(model.integer)) + 1).tolist(), model.n]
    for first, stop in itertools.pairwise(edges):
        for a in range(first, stop, CHUNK):
            b = min(a + CHUNK, stop)
            if bool(model.integer[a]) != now:
                now = not now
                yield f" MARKER 'MARKER' '{marks[now]}'\n"
            z = slice(int(model.start[a]), int(model.start[b]))
            lines = [
                f" {columns[c]} value {v}\n"
                for c, v in enumerate(format_numbers(model.value[a:b]), a)
            ]
            entry = [
                f" {columns[c]} {rows[r]} {t}\n" if k else ""
                for c, r, t, k in zip(
                    model.entry_column[z].tolist(),
                    model.index[z].tolist(),
                    format_numbers(model.coef[z]),
                    kept[model.index[z]].tolist(),
                    strict=True,
                )
            ]
            at = (model.start[a : b + 1] - model.start[a]).tolist()
            yield "".join(
                x for i, line in enumerate(lines) for x in (line, *entry[at[i] : at[i + 1]])
            )
    if now:
        yield " MARKER 'MARKER' 'INTEND'\n"


def _bounds(model: LinearModel, columns: list[str]) -> Iterator[str]:
    low = model.col_lower
    up = model.col_upper
    binary = model.integer & (low == 0) & (up == 1)
    usual = ~model.integer & (low == 0) & np.isposinf(up)
    for a in range(0, model.n, CHUNK):
        some = np.flatnonzero(~usual[a : a + CHUNK]) + a
        yield "".join(
            f" BV BND {columns[c]}\n" if b else _bound(columns[c], x, y)
            for c, b, x, y in zip(
                some.tolist(),
                binary[some].tolist(),
                low[some].tolist(),
                up[some].tolist(),
                strict=True,
            )
        )


def _bound(name: str, low: float, up: float) -> str:
    """Return the bounds of one column.

    Lower bounds come first, because a negative upper bound would change them.
    """
    if low == up:
        return f" FX BND {name} {low!r}\n"
    if np.isneginf(low) and np.isposinf(up):
        return f" FR BND {name}\n"
    lower = f" MI BND {name}\n" if np.isneginf(low) else f" LO BND {name} {low!r}\n"
    return lower + (f" PL BND {name}\n" if np.isposinf(up) else f" UP BND {name} {up!r}\n")
