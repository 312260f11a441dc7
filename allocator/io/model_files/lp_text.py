"""Write a LinearModel as a CPLEX LP file, the format that people read.

The objective is called `value`. It names every column, also those with coefficient 0, so that the
order of the columns is kept. A row with two different finite bounds is written as two rows,
`<name>.low` and `<name>`. Rows without bounds have no effect and are left out. A model without
columns gets one, `none`, which is fixed at 0, because a row without terms cannot be written.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.domain.schema.texts import format_numbers, text_of
from allocator.io.model_files.model_names import column_names, row_names
from formulations.model.linear import Floats, LinearModel

PER_LINE = 4  # terms
ABOUT = "One round of the allocator. x_JOB_POOL_GPUS = 1: the job gets that many GPUs of that pool."


def lp_text(model: LinearModel) -> Iterator[str]:
    """Yield the file piece by piece."""
    columns = column_names(model) or ["none"]
    nothing = f" 0 {columns[0]}"  # in place of no terms
    yield f"\\ {ABOUT}\nMaximize\n value:"
    yield _terms(model.value, columns) or nothing
    yield "\nSubject To\n"
    start, column, coef = model.by_row()
    sides = zip(model.lower.tolist(), model.upper.tolist(), strict=True)
    for r, (name, (low, up)) in enumerate(zip(row_names(model), sides, strict=True)):
        z = slice(start[r], start[r + 1])
        yield _row(name, _terms(coef[z], [columns[c] for c in column[z]]) or nothing, low, up)
    yield "Bounds\n"
    binary = model.integer & (model.col_lower == 0) & (model.col_upper == 1)
    bounds = zip(columns, model.col_lower.tolist(), model.col_upper.tolist(), strict=False)
    yield from (_bounds(name, low, up) for i, (name, low, up) in enumerate(bounds) if not binary[i])
    if not model.n:
        yield " none = 0\n"
    for title, which in (("Binary", binary), ("General", model.integer & ~binary)):
        if which.any():
            yield f"{title}\n" + "".join(f" {columns[c]}\n" for c in np.flatnonzero(which))
    yield "End\n"


def _terms(numbers: Floats, names: Sequence[str]) -> str:
    """Return terms with their signs, with a new line after every PER_LINE of them."""
    terms = [
        f" {'-' if text[0] == '-' else '+'} {text.lstrip('-')} {name}"
        for text, name in zip(format_numbers(numbers), names, strict=False)
    ]
    return "".join(f"{t}\n " if i % PER_LINE == 0 else t for i, t in enumerate(terms, start=1))


def _row(name: str, terms: str, low: float, up: float) -> str:
    if low == up:
        return f" {name}:{terms} = {text_of(up)}\n"
    text = ""
    if np.isfinite(low):
        text = f" {name}{'.low' if np.isfinite(up) else ''}:{terms} >= {text_of(low)}\n"
    return text + (f" {name}:{terms} <= {text_of(up)}\n" if np.isfinite(up) else "")


def _bounds(name: str, low: float, up: float) -> str:
    """Return the bounds of one column, "" for those that all readers suppose."""
    if (low, up) == (0, np.inf):
        return ""
    if (low, up) == (-np.inf, np.inf):
        return f" {name} free\n"
    if low == up:
        return f" {name} = {text_of(low)}\n"
    return f" {text_of(low)} <= {name}{'' if up == np.inf else f' <= {text_of(up)}'}\n"
