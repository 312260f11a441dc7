"""Values as the text of CSV cells: the only module that writes cells."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Cells = Sequence[Any] | NDArray[Any]
"""One column of a table with n cells, as text or as values.

Text is that of a CSV file, "" = empty. Values are an array of numbers (nan = empty) or of bools, or
a list in which a cell may be a tuple of names or numbers.
"""


def text_of(value: Any) -> str:
    """Write one value as a cell: whole floats without ".0", lists with bars, objects as JSON."""
    if value is None:
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, (list, tuple, set, frozenset)):
        return "|".join(map(text_of, value))
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return str(value).strip()


def texts_of(cells: Cells) -> Sequence[str]:
    """Write a column as text; a column that is text already is returned without a copy."""
    if not isinstance(cells, np.ndarray):
        try:
            "".join(cells)
        except TypeError:
            return list(map(text_of, cells))
        return cells
    if cells.dtype.kind != "f":
        return list(map(text_of, cells.tolist()))
    out = format_numbers(cells)
    return [text if text != "nan" else "" for text in out] if np.isnan(cells).any() else out


def has_values(cells: Cells) -> bool:
    """Return whether any cell of a column is not empty."""
    if isinstance(cells, np.ndarray):
        return bool(len(cells) and not (cells.dtype.kind == "f" and np.isnan(cells).all()))
    return any(cells)


def picked(cells: Any, rows: Any) -> Any:
    """Return the cells of some rows of an array, a list or a tuple, in their order."""
    return (
        cells[rows]
        if isinstance(cells, np.ndarray)
        else type(cells)(map(cells.__getitem__, rows.tolist()))
    )


def format_numbers(numbers: NDArray[np.float64]) -> list[str]:
    """Return the shortest text of every number that reads back as the same float.

    Whole numbers are written without ".0".
    """
    if not len(numbers):
        return []
    distinct, at = np.unique(numbers, return_inverse=True)
    if len(distinct) > len(numbers) // 2:
        return _format_numbers(numbers)
    known = _format_numbers(distinct)
    return [known[i] for i in at.tolist()]


def _format_numbers(numbers: NDArray[np.float64]) -> list[str]:
    written = list(map(repr, numbers.tolist()))
    if not (numbers == np.floor(numbers)).any():
        return written
    return [text.removesuffix(".0") for text in written]
