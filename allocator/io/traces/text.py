"""Read the files of traces: plain or gzip, CSV with named columns, times.

Every fault has its file and line.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.findings import (
    did_you_mean,
    input_error as input_error,  # noqa: PLC0414  traces take it from here
    quote,
)
from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import Cells, parse, picked
from allocator.domain.schema.columns import Column, ColumnKind
from allocator.domain.times import parse_date
from allocator.errors import Fault, InvalidInput
from allocator.io.shipped import describe_copy
from allocator.io.tables.csv_table import ReadingLog, decode, parse_csv
from allocator.objects import Json, Record

MOST_BYTES = 1 << 30  # of one file, unpacked
# largest ratio of unpacked to packed bytes; tables of numbers shrink to a twentieth at most
MOST_RATIO = 200
FREE_BYTES = 1 << 24  # unpacked, whatever the ratio
SHOWN = 20  # faults of one file that are listed
GZIP = b"\x1f\x8b"
STANDARD_INPUT = Path("-")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")


def number(name: str, required: bool = True) -> Column:
    """Return a column of numbers; an empty cell is a fault if required, else nan."""
    return Column(name, ColumnKind.NUMBER, "", required=required)


def integer(name: str, required: bool = True) -> Column:
    """Return a column of whole numbers; an empty cell is a fault if required, else -1."""
    return Column(name, ColumnKind.INTEGER, "", required=required)


def text(name: str, required: bool = True) -> Column:
    """Return a column of texts."""
    return Column(name, ColumnKind.TEXT, "", required=required, default="")


@dataclass(frozen=True)
class CsvRows:
    """The selected columns of a CSV file with n rows, and the line of each row.

    The values are those of domain.cells.Parsed.
    """

    file: str
    values: Record
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def select(self, rows: Ints) -> CsvRows:
        """Return some rows, by their numbers."""
        values = {name: picked(cells, rows) for name, cells in self.values.items()}
        return CsvRows(self.file, values, picked(list(self.lines), rows))


def content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if they are gzip under any name, or of standard input.

    Raises InvalidInput.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else open(path, "rb") as file:
            raw = file.read(MOST_BYTES + 1)
            if raw.startswith(GZIP):
                most = max(FREE_BYTES, MOST_RATIO * len(raw))
                with gzip.open(io.BytesIO(raw)) as packed:
                    raw = packed.read(min(MOST_BYTES, most) + 1)
                if len(raw) > most:
                    raise input_error(path, f"unpacks to more than {MOST_RATIO} times its size")
    except FileNotFoundError:
        raise input_error(
            path, f"there is no such file{describe_copy(path) or _sibling(path)}"
        ) from None
    except IsADirectoryError:
        raise input_error(path, "is a folder, not a file") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise input_error(path, f"is a damaged gzip file: {error}") from None
    except (OSError, ValueError) as error:
        raise input_error(
            path, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(raw) > MOST_BYTES:
        raise input_error(path, f"is larger than {MOST_BYTES >> 20} MiB")
    return raw


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8. Raises InvalidInput."""
    reading = ReadingLog(str(path))
    text = decode(content(path), reading)
    raise_if(path, reading.faults)
    return text or ""


def _sibling(path: Path) -> str:
    try:
        return did_you_mean(path.name, [p.name for p in path.absolute().parent.iterdir()])
    except OSError:
        return ""


def read_first_lines(path: Path) -> list[str]:
    """Return the first lines of a file as far as they can be read, else none. Never raises."""
    try:
        with open(path, "rb") as file:
            raw = file.read(1 << 14)
        if raw.startswith(GZIP):
            raw = zlib.decompressobj(wbits=31).decompress(raw, 1 << 14)
    except (OSError, ValueError, zlib.error):
        return []
    return raw.decode("utf-8-sig", "replace").splitlines()[:50]


def is_json_of(path: Path, key: str) -> bool:
    """Return whether a file begins as a JSON object with a key. Never raises."""
    begin = "".join(read_first_lines(path))[:400].lstrip()
    return begin.startswith("{") and f'"{key}"' in begin


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a file that are not blank, stripped, with their numbers.

    Raises InvalidInput.
    """
    # a line ends as in every text file, and not at U+0085 or U+2028
    lines = io.StringIO(content(path).decode("utf-8-sig", "replace"), newline=None)
    return [(n, line.strip()) for n, line in enumerate(lines, start=1) if line.strip()]


def first_line(path: Path) -> str:
    """Return the first line of a file, "" if it cannot be read. Never raises."""
    return next(iter(read_first_lines(path)), "")


def read_header(path: Path) -> list[str]:
    """Return the names in the first line of a CSV file, none if it cannot be read. Never raises."""
    lines = read_first_lines(path)
    return [name.strip().strip('"') for name in lines[0].split(",")] if lines else []


@contextmanager
def form_of(path: Path, form: str) -> Iterator[None]:
    """Turn what goes wrong with a document of another form into InvalidInput, which says it."""
    try:
        yield
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
        *(SyntaxError, TypeError, ValueError),
    ) as error:
        why = f"{error} is missing" if isinstance(error, LookupError) else error
        if isinstance(error, AttributeError | TypeError):
            why = "a value is of another type"
        line = getattr(error, "lineno", None) if isinstance(error, ValueError) else None
        raise input_error(path, f"is no {form}: {why}", line) from None


def find_packed(folder: Path, *names: str) -> Path | None:
    """Return the first of some files that is in a folder, as it is or as gzip."""
    paths = (folder / f"{name}{end}" for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def missing_columns(path: Path, columns: Sequence[str]) -> str:
    """Return "" if the first line of a CSV file has all these columns, else which are missing.

    Never raises.
    """
    there = read_header(path)
    if not there:
        return "has no first line that could be read"
    missing = [c for c in columns if c not in there]
    return f"has no column {', '.join(map(quote, missing))}" if missing else ""


def csv_rows(path: Path, columns: Sequence[Column]) -> CsvRows:
    """Read the selected columns of a CSV file with a header, plain or gzip.

    Other columns are ignored. A column that is not required may be absent. Raises InvalidInput.
    """
    reading = ReadingLog(str(path))
    table = parse_csv(content(path), reading)
    faults = list(reading.faults)
    if table is None:
        raise InvalidInput(faults)
    for column in columns:
        if column.required and column.name not in table.columns:
            hint = did_you_mean(column.name, table.columns)
            there = ", ".join(list(table.columns)[:12])
            words = f"has no column {quote(column.name)}; it has {there}{hint}"
            faults.append(Fault(str(path), 1, words))
    if not faults and not len(table):
        faults.append(Fault(str(path), None, "has a header and no rows"))
    return parse_columns(path, columns, table.columns, table.lines, faults)


def parse_columns(
    path: Path,
    columns: Sequence[Column],
    cells: Mapping[str, Cells],
    lines: Sequence[int],
    faults: Sequence[Fault],
) -> CsvRows:
    """Return columns of a file from their cells; one that is not there is empty.

    Raises InvalidInput with what was found before and with every cell that is wrong.
    """
    values: Json = {}
    wrong: list[Fault] = [*faults]
    for column in columns:
        parsed, complaints = parse(column, cells.get(column.name, [""] * len(lines)))
        values[column.name] = parsed.value
        is_there = column.name in cells or not column.required
        wrong += [Fault(str(path), lines[i], words) for i, words in complaints if is_there]
    raise_if(path, wrong)
    return CsvRows(str(path), values, lines)


def raise_if(path: Path, faults: Sequence[Fault]) -> None:
    """Raise InvalidInput with the first faults of a file, and how many more there are."""
    if not faults:
        return
    some = sorted(faults, key=lambda f: (f.line or 0, f.message))
    if len(some) > SHOWN:
        more = len(some) - SHOWN
        some = [*some[:SHOWN], Fault(str(path), None, f"and {more} more faults")]
    raise InvalidInput(some)


def parse_seconds(rows: CsvRows, column: str) -> tuple[Floats, bool]:
    """Return the seconds of a TEXT column, shape (n,), and whether they are dates.

    The column holds numbers or, in most rows, dates such as "2017-10-09 08:00:05". A date may have
    a T for the space, and fractions of a second. Without a zone it counts as UTC. Dates become
    seconds since 1970. An empty cell becomes nan. Raises InvalidInput.
    """
    cells: list[str] = rows[column]
    if 2 * sum(map(bool, map(DATE.match, cells))) <= len(cells) - cells.count(""):
        parsed, wrong = parse(number(column, required=False), cells)
        faults = [Fault(rows.file, rows.lines[i], f"{why}, and no date") for i, why in wrong]
        raise_if(Path(rows.file), faults)
        return parsed.value, False
    if all(map(DATE.fullmatch, cells)):
        try:
            return np.array(cells, dtype="datetime64[us]").astype(np.float64) / 1e6, True
        except ValueError:  # such as the 31st of April
            pass

    def date(cell: str) -> float:
        try:
            return parse_date(cell) if cell else np.nan
        except ValueError:
            words = f"{column} {quote(cell)} is not a date like 2017-10-09 08:00:05"
            raise ValueError(words) from None

    return np.array(parse_cells(rows, cells, date), dtype=np.float64), True


def parse_cells(rows: CsvRows, cells: Sequence[str], parse: Callable[[str], Any]) -> list[Any]:
    """Return what a function makes of the cells, each of which it sees once.

    Raises InvalidInput with the errors of the function.
    """
    known: Json = {}
    faults = []
    for line, cell in zip(rows.lines, cells, strict=True):
        try:
            if cell not in known:
                known[cell] = parse(cell)
        except ValueError as error:
            faults.append(Fault(rows.file, line, str(error)))
    raise_if(Path(rows.file), faults)
    return [known[cell] for cell in cells]
