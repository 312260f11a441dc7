"""Write a LinearModel as a CPLEX LP file, the format that people read.

The objective is called `value`. It names every column, also those with coefficient 0, so that the
order of the columns is kept. A row with two different finite bounds is written as two rows,
`<name>.low` and `<name>`. Rows without bounds have no effect and are left out. A model without
columns gets one, `none`, which is fixed at 0, because a row without terms cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.domain.schema.texts import format_numbers
from allocator.io.model_files.model_names import column_names, row_names
from formulations.model.linear import Floats, Ints, LinearModel

PER_LINE = 4  # terms
CHUNK = 100_000  # terms formatted at a time


def lp_text(model: LinearModel) -> Iterator[str]:
    """Yield the file piece by piece."""
    columns = column_names(model) or ["none"]
    yield (
        "\\ One round of the allocator. x_JOB_POOL_GPUS = 1: the job gets that many GPUs of that"
        " pool.\n"
    )
    yield "Maximize\n value:"
    for a in range(0, model.n, CHUNK):
        yield "".join(
            _terms(
                columns[a : a + CHUNK],
                model.value[a : a + CHUNK],
                np.arange(len(model.value[a : a + CHUNK])),
            )
        )
    yield "\nSubject To\n" if model.n else " 0 none\nSubject To\n"
    yield from _rows(model, columns)
    yield "Bounds\n"
    yield from _bounds(model, columns)
    if not model.n:
        yield " none = 0\n"
    binary = model.integer & (model.col_lower == 0) & (model.col_upper == 1)
    for title, which in (("Binary", binary), ("General", model.integer & ~binary)):
        if which.any():
            yield f"{title}\n" + "".join(f" {columns[c]}\n" for c in np.flatnonzero(which).tolist())
    yield "End\n"


def _rows(model: LinearModel, columns: list[str]) -> Iterator[str]:
    start, column, coef = model.by_row()
    names = row_names(model)
    first = 0
    while first < model.m:
        # so many rows that they make up about one chunk of terms
        stop = max(first + 1, int(np.searchsorted(start, start[first] + CHUNK, side="right")) - 1)
        z = slice(int(start[first]), int(start[stop]))
        place = np.arange(z.start, z.stop) - np.repeat(
            start[first:stop], np.diff(start[first : stop + 1])
        )
        terms = _terms([columns[c] for c in column[z].tolist()], coef[z], place)
        at = (start[first : stop + 1] - z.start).tolist()
        yield "".join(
            _row(
                names[r],
                terms[at[r - first] : at[r - first + 1]] or [f" 0 {columns[0]}"],
                float(model.lower[r]),
                float(model.upper[r]),
            )
            for r in range(first, stop)
        )
        first = stop


def _row(name: str, terms: list[str], lower: float, upper: float) -> str:
    if lower == upper:
        return f" {name}:{''.join(terms)} = {_side(upper)}\n"
    text = ""
    if np.isfinite(lower):
        text = f" {name}{'.low' if np.isfinite(upper) else ''}:{''.join(terms)} >= {_side(lower)}\n"
    return text + (f" {name}:{''.join(terms)} <= {_side(upper)}\n" if np.isfinite(upper) else "")


def _side(x: float) -> str:
    return format_numbers(np.array([x]))[0]


def _terms(names: Sequence[str], coef: Floats, place: Ints) -> list[str]:
    """Return the terms with their signs, with a new line after every PER_LINE terms of a row."""
    return [
        f" {'-' if t[0] == '-' else '+'} {t.lstrip('-')} {name}{line}"
        for name, t, line in zip(
            names,
            format_numbers(coef),
            np.where(place % PER_LINE == PER_LINE - 1, "\n ", "").tolist(),
            strict=True,
        )
    ]


def _bounds(model: LinearModel, columns: list[str]) -> Iterator[str]:
    low = model.col_lower
    up = model.col_upper
    usual = ((low == 0) & np.isposinf(up)) | (model.integer & (low == 0) & (up == 1))
    for c in np.flatnonzero(~usual).tolist():
        a = float(low[c])
        b = float(up[c])
        if np.isneginf(a) and np.isposinf(b):
            yield f" {columns[c]} free\n"
        elif a == b:
            yield f" {columns[c]} = {_side(a)}\n"
        else:
            yield (
                f" {'-inf' if np.isneginf(a) else _side(a)} <= {columns[c]}"
                f"{'' if np.isposinf(b) else f' <= {_side(b)}'}\n"
            )
