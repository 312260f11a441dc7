"""From cells to checked values, and values as the text of cells.

Whole columns are parsed at once. Single cells are read only if there is a fault. Cells are text, as
in CSV files, or values, as in data frames and databases. The same rules hold for both. Everything
follows the Column (domain/schema/columns.py): kind, range, default, choices. A number is plain
decimal text, "8", "8.0" or "1e3": no nan, no infinity, no "1_000", no digits of other scripts.

No other module writes cells. Two kinds of values have a notation of their own: ways to keep the
workers of a job in step, as jobs.csv names them (bulk, backup:2, replicated:3;
formulations/transient/synchronisation.py), and revocations by age of a server, as pools.csv and
clusters.csv write them ("0:0.08|1:0.02").
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.objectives import normalise
from allocator.domain.schema.columns import (
    LEAST_NUMBER,
    MOST_INTEGER,
    MOST_NUMBER,
    RULE,
    Column,
    ColumnKind,
)
from allocator.objects import Json
from formulations.model.linear import Bools, Floats, Ints
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


NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
PLAIN = b"0123456789eE+.-"  # characters of most numbers
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
DTYPES: Mapping[ColumnKind, Any] = {
    ColumnKind.NUMBER: np.float64,
    ColumnKind.INTEGER: np.int64,
    ColumnKind.CHOICE: np.int64,
    ColumnKind.BOOLEAN: np.bool_,
}
"""Types of the columns that are arrays."""
NOTHING: Mapping[ColumnKind, Any] = {
    ColumnKind.NUMBER: math.nan,
    ColumnKind.INTEGER: -1,
    ColumnKind.CHOICE: -1,
    ColumnKind.BOOLEAN: False,
    ColumnKind.TEXT: "",
    ColumnKind.JSON: {},
}
"""Values of empty cells without a default; () for all other kinds."""
Complaint = tuple[int, str]  # row, message


@dataclass(frozen=True)
class ParsedColumn:
    """One column of n rows.

    Attributes
    ----------
    value : array or list
        NUMBER (n,) floats, nan = no value; INTEGER (n,) int64, -1 = no value; BOOLEAN (n,) bools;
        CHOICE (n,) index into the choices; TEXT, INTEGERS, TEXTS, JSON a list of str, of tuples
        ascending and distinct, of tuples, of dicts. Without meaning where not ok.
    given : (n,)
        True where the cell is not empty.
    ok : (n,)
        True where the cell is valid, or empty and may be.
    """

    value: Any
    given: Bools
    ok: Bools

    @cached_property
    def factors(self) -> tuple[list[Any], Ints]:
        """Distinct values of a list in order of first appearance, and the number of each, (n,)."""
        number = {value: i for i, value in enumerate(dict.fromkeys(self.value))}
        codes = map(number.__getitem__, self.value)
        return list(number), np.fromiter(codes, dtype=np.int64, count=len(self.value))

    def codes(self, known: Mapping[str, int]) -> Ints:
        """Return the number of each name of a list among the known ones, (n,), -1 = none."""
        distinct, code = self.factors
        return np.array([known.get(name, -1) for name in distinct], dtype=np.int64)[code]

    def take(self, rows: Ints) -> ParsedColumn:
        """Return the column of these rows, in their order."""
        return ParsedColumn(picked(self.value, rows), self.given[rows], self.ok[rows])


def parse(column: Column, cells: Cells) -> tuple[ParsedColumn, list[Complaint]]:
    """Return the column's values and the faults of its cells, by row."""
    wrong: dict[int, str] = {}
    if column.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        number, given = _floats(column, cells, wrong)
        value: Any = _numbers(column, cells, number, given, wrong)
    elif (
        isinstance(cells, np.ndarray)
        and column.kind is ColumnKind.BOOLEAN
        and cells.dtype == np.bool_
    ):
        value = cells
        given = np.ones(len(cells), dtype=bool)
    else:
        lists = column.kind in (ColumnKind.TEXTS, ColumnKind.INTEGERS) and not isinstance(
            cells, np.ndarray
        )
        read = cells if lists else texts_of(cells)
        value = _objects(column, read, wrong)
        given = _given(read)
    if column.required:
        wrong |= {int(i): f"{column.name} is empty" for i in np.flatnonzero(~given)}
    ok = all_true(len(cells))
    if wrong:
        ok = ok.copy()
        ok[list(wrong)] = False
    return ParsedColumn(value, given, ok), sorted(wrong.items())


def _given(cells: Cells) -> Bools:
    """Return where a cell is not empty, (n,)."""
    if all(cells):
        return all_true(len(cells))
    return np.fromiter(map(bool, cells), dtype=bool, count=len(cells))


@lru_cache(maxsize=128)
def default_column(column: Column, rows: int) -> ParsedColumn:
    """Return a column that the file does not have.

    It has the default in every row, and is not ok if the column is required. Its arrays are shared,
    so they cannot be written to.
    """
    given = np.zeros(rows, dtype=bool)
    given.flags.writeable = False
    ok = given if column.required else all_true(rows)
    if column.kind in DTYPES:
        value = np.full(rows, _default(column), dtype=DTYPES[column.kind])
        value.flags.writeable = False
        return ParsedColumn(value, given, ok)
    out = ParsedColumn((_default(column),) * rows, given, ok)
    if rows and column.kind is not ColumnKind.JSON:
        vars(out)["factors"] = [_default(column)], np.zeros(rows, dtype=np.int64)
    return out


@lru_cache(maxsize=16)
def all_true(rows: int) -> Bools:
    """Return flags that are all true, (rows,); they are shared, so they cannot be written to."""
    out = np.ones(rows, dtype=bool)
    out.flags.writeable = False
    return out


def _numbers(
    column: Column, cells: Cells, value: Floats, given: Bools, wrong: dict[int, str]
) -> Any:
    whole = column.kind is ColumnKind.INTEGER
    if given.any():
        for i, message in _out_of_range(column, cells, value, given, whole):
            wrong.setdefault(i, message)
    value[~given] = _default(column)
    if whole:
        value[~np.isfinite(value) | (np.abs(value) > MOST_INTEGER)] = -1
        return value.astype(np.int64)
    return value + 0.0  # -0.0 becomes 0.0


def _floats(column: Column, cells: Cells, wrong: dict[int, str]) -> tuple[Floats, Bools]:
    """Return the numbers of cells, and where a cell is not empty, (n,) each.

    A number is nan where the cell is empty, or no finite number. Numbers of an array and plain
    texts are converted at once, other texts one by one.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu":
        value = cells.astype(np.float64)
        given = ~np.isnan(value)
        for i in np.flatnonzero(np.isinf(value)).tolist():
            wrong[i] = f"{column.name} {quote(text_of(cells[i]))} is not a finite number"
            value[i] = np.nan
        return value, given
    try:
        whole = "".join(cells)
    except TypeError:
        cells = texts_of(cells)
        whole = "".join(cells)
    given = _given(cells)
    if not given.any():
        return np.full(len(cells), np.nan), given
    if not whole.encode("utf-8", "surrogatepass").translate(None, PLAIN):
        try:
            texts = cells if given.all() else [c or "nan" for c in cells]
            return np.fromiter(map(float, texts), dtype=np.float64, count=len(cells)), given
        except ValueError:
            pass
    value = np.full(len(cells), np.nan)
    for i in np.flatnonzero(given).tolist():
        if NUMBER.fullmatch(cells[i]):
            value[i] = float(cells[i])
        else:
            odd = "a whole number" if column.kind is ColumnKind.INTEGER else "a number"
            if cells[i].lower().lstrip("+-") in ("nan", "inf", "infinity"):
                odd = "a finite number"
            wrong[i] = f"{column.name} {quote(cells[i])} is not {odd}"
    return value, given


def _out_of_range(
    column: Column, cells: Cells, value: Floats, given: Bools, whole: bool
) -> Iterator[Complaint]:
    most = MOST_INTEGER if whole else MOST_NUMBER
    size = np.abs(value)
    tests: list[tuple[Any, str, float]] = [
        (value < column.low, "is below {}", column.low),
        (value <= column.above, "must be above {}", column.above),
        (value > column.high, "is above {}", column.high),
        (size > most, "is too large, more than {} in size", most),
        ((size < LEAST_NUMBER) & (size > 0), "is too small, closer to 0 than {}", LEAST_NUMBER),
    ]
    if whole:
        tests.insert(0, ((value != np.floor(value)) & (size < np.inf), "is not a whole number", 0))
    for mask, words, bound in tests:
        if mask.any():
            for i in np.flatnonzero(mask & given).tolist():
                yield (
                    i,
                    f"{column.name} {text_of(cells[i])[:40]} {words.format(format_number(bound))}",
                )


def format_number(number: float) -> str:
    """Return a bound or a default in plain digits: 10000000, 0.5."""
    return (
        str(int(number))
        if float(number).is_integer() and abs(number) < MOST_INTEGER
        else f"{number:g}"
    )


def _objects(column: Column, cells: Cells, wrong: dict[int, str]) -> Any:
    """Read each distinct cell once, because most columns of names repeat a few."""
    if column.kind is ColumnKind.TEXT and "" not in cells and "".join(cells).isprintable():
        return list(cells)  # names without special characters, at once
    read = READERS[column.kind]
    seen: dict[Any, Any] = {}
    bad: dict[Any, str] = {}
    for text in dict.fromkeys(cells):
        try:
            seen[text] = read(column, text) if text else _default(column)
        except ValueError as why:
            bad[text], seen[text] = f"{column.name} {why}", _default(column)
    if bad:
        wrong |= {i: bad[text] for i, text in enumerate(cells) if text in bad}
    values = map(seen.__getitem__, cells)
    if column.kind in DTYPES:
        return np.fromiter(values, dtype=DTYPES[column.kind], count=len(cells))
    return list(values)


def _default(column: Column) -> Any:
    """Return the value of an empty cell."""
    if column.default in (None, RULE):
        return NOTHING.get(column.kind, ())
    if column.kind is ColumnKind.CHOICE:
        return column.choices.index(column.default)
    return column.default + 0.0 if column.kind is ColumnKind.NUMBER else column.default


def _text(_column: Column, text: str) -> str:
    if not text.isprintable() and any(
        unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text
    ):
        raise ValueError(f"{quote(text)} contains a control character")
    return text


def _choice(column: Column, text: str) -> int:
    if text not in column.choices:
        known = did_you_mean(text, column.choices) or f" (known: {', '.join(column.choices)})"
        raise ValueError(f"{quote(text)} is not known{known}")
    return column.choices.index(text)


def _boolean(_column: Column, text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError(f"{quote(text)} is neither true nor false")
    return BOOLEANS[text.lower()]


def _parts(_column: Column, cell: Any) -> list[str]:
    parts = (
        list(map(text_of, cell))
        if isinstance(cell, tuple)
        else [part.strip() for part in cell.split("|")]
    )
    if "" in parts:
        raise ValueError(f"{quote(text_of(cell))} has nothing between two bars, or at an end")
    return parts


def _texts(column: Column, cell: Any) -> tuple[str, ...]:
    return tuple(_text(column, part) for part in dict.fromkeys(_parts(column, cell)))


def _integers(column: Column, cell: Any) -> tuple[int, ...]:
    element = replace(column, kind=ColumnKind.INTEGER, required=False, default=None)
    parsed, complaints = parse(element, _parts(column, cell))
    if complaints:
        why = complaints[0][1].removeprefix(column.name + " ")
        raise ValueError(f"{quote(text_of(cell))}: {why}")
    return tuple(sorted(set(parsed.value.tolist())))


def _json(_column: Column, text: str) -> Json:
    sizes: list[bool] = []

    def members(pairs: list[tuple[str, Any]]) -> Json:
        sizes.append(len(dict(pairs)) == len(pairs))
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{quote(text)} is not JSON: {str(error).splitlines()[0]}") from None
    if not all(sizes):
        raise ValueError(f"{quote(text)} names a key twice")
    if not isinstance(value, dict):
        raise ValueError(f'{quote(text)} is not a JSON object such as {{"rate_1": 2.5}}')
    return value


# a ValueError says why a cell is not valid, without the name of the column
READERS: dict[ColumnKind, Callable[[Column, Any], Any]] = {
    ColumnKind.TEXT: _text,
    ColumnKind.CHOICE: _choice,
    ColumnKind.BOOLEAN: _boolean,
    ColumnKind.TEXTS: _texts,
    ColumnKind.INTEGERS: _integers,
    ColumnKind.JSON: _json,
    ColumnKind.OBJECTIVE: lambda _column, text: normalise(text),
}


def parse_value(column: Column, value: Any) -> tuple[Any, str | None]:
    """Check a value of TOML, JSON or Python by the rules of a column.

    Return (value, None), or (None, fault). Numbers must be numbers, not text. The value is a float,
    int, bool or str. A JSON object may be a table.
    """
    name = column.name
    numeric = column.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER)
    if column.kind is ColumnKind.JSON and isinstance(value, Mapping):
        return dict(value), None
    if column.kind is ColumnKind.TEXTS:
        if not isinstance(value, list | tuple):
            return None, f"{name} {quote(str(value))} is not a list of texts"
        value = "|".join(map(str, value))
    if isinstance(value, bool | np.bool_):
        if column.kind is not ColumnKind.BOOLEAN:
            return None, f"{name} {str(value).lower()} is not {'a number' if numeric else 'text'}"
        return bool(value), None
    if numeric and isinstance(value, str):
        return None, f"{name} {quote(value)} is text, not a number; write it without quotes"
    if not isinstance(value, Real if numeric else str):
        return None, f"{name} is {_sort_of(value)}, not {'a number' if numeric else 'text'}"
    text = _number_text(value) if numeric else str(value).strip()
    parsed, complaints = parse(column, [text])
    if complaints or not text:
        return None, complaints[0][1] if complaints else f"{name} is empty"
    first = parsed.value[0]
    if column.kind is ColumnKind.CHOICE:
        return column.choices[int(first)], None
    return (first.item() if isinstance(first, np.generic) else first), None


def _number_text(value: Any) -> str:
    if isinstance(value, Integral) and abs(int(value)) <= MOST_INTEGER:
        return str(int(value))
    try:
        return repr(float(value))
    except OverflowError:
        return "9e999" if value > 0 else "-9e999"


def _sort_of(value: Any) -> str:
    names = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        type(None): "empty",
        float: "a number",
        int: "a number",
    }
    return names.get(type(value), f"a {type(value).__name__}")
