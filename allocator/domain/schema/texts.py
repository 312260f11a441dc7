"""Values as the text of CSV cells: the only module that writes cells.

Two kinds of values have a notation of their own: ways to keep the workers of a job in step, as
jobs.csv names them (bulk, backup:2, replicated:3; formulations/transient/synchronisation.py), and
revocations by age of a server, as pools.csv and clusters.csv write them ("0:0.08|1:0.02").
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.transient.revocations import Hazard
from formulations.transient.synchronisation import Mode

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


FORMS = "bulk, backup:K, replicated:R, asynchronous or asynchronous:E"
_WHOLE = re.compile(r"[1-9][0-9]{0,3}")
_LEAST = {"backup": 1, "replicated": 2}


def parse_mode(text: str) -> Mode:
    """Return the mode of a text. Raises ValueError with what is wrong with it."""
    kind, colon, number = text.partition(":")
    if kind in _LEAST and _WHOLE.fullmatch(number) and int(number) >= _LEAST[kind]:
        return Mode(kind, float(number))
    if kind == "bulk" and not colon:
        return Mode(kind)
    if kind == "asynchronous":
        try:
            share = float(number) if colon else 1.0
        except ValueError:
            share = 0.0
        if 0.0 < share <= 1.0:
            return Mode(kind, share)
    raise ValueError(f"is not {FORMS}, with K from 1, R from 2, and E above 0 and at most 1")


def name_mode(mode: Mode) -> str:
    """Return the text of a mode, from which `parse_mode` makes it again."""
    is_plain = mode.kind == "bulk" or (mode.kind == "asynchronous" and mode.number == 1.0)
    return mode.kind if is_plain else f"{mode.kind}:{mode.number:.15g}"


@lru_cache(maxsize=1024)
def parse_hazard(text: str) -> Hazard:
    """Return the hazard of a text, without a lifetime.

    Raises ValueError with what is wrong with it.

    Examples
    --------
    >>> parse_hazard("0:0.08|1:0.02").per_hour
    array([0.08, 0.02])
    """
    try:
        pairs = [part.split(":") for part in text.split("|")]
        age, rate = np.array([[float(a), float(h)] for a, h in pairs]).T
        is_right = (
            age[0] == 0
            and np.isfinite([age, rate]).all()
            and (np.diff(age) > 0).all()
            and (rate >= 0).all()
        )
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError(
            "is not HOURS:HAZARD|HOURS:HAZARD.. with hours that "
            'ascend from 0 and hazards per hour at least 0, such as "0:0.08|1:0.02"'
        )
    return Hazard(rate, age)


def name_hazard(hazard: Hazard) -> str:
    """Return the text of a hazard, from which `parse_hazard` makes it again, to 6 digits."""
    pieces = zip(hazard.start_h.tolist(), hazard.per_hour.tolist(), strict=True)
    return "|".join(f"{a:.6g}:{h:.6g}" for a, h in pieces)


def pool_hazard(text: str, per_hour: float) -> Hazard:
    """Return the hazard of a pool, by age if a text gives it, else the same at every age."""
    return parse_hazard(text) if text else Hazard.constant(per_hour, math.inf)
