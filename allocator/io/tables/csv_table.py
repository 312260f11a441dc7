"""Read one CSV file as a Table of text, and write rows as CSV text.

Reading reports everything that is wrong with the form of the file: encoding, quotes, rows of a
wrong length.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from allocator.domain.findings import quote
from allocator.domain.snapshot import Table
from allocator.errors import Fault

LINE_END = re.compile(rb"\r\n|\r|\n")
SEPARATORS = (";", "\t", "|")
BLANKS = " \t\v\f\x1c\x1d\x1e\x1f"  # of ASCII, besides the ends of lines
SLICE = 500  # rows
FEW = 2_000  # different texts of a column
MOST_CELLS = 10_000  # of a row: a line of commas takes a hundred times its size in memory


def csv_text(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV with line feeds; None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


@dataclass
class ReadingLog:
    """What was found while one file was read."""

    file: str
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    def fault(self, line: int | None, message: str) -> None:
        self.faults.append(Fault(self.file, line, message))

    def warn(self, line: int | None, message: str) -> None:
        self.warnings.append(Fault(self.file, line, message))


def decode(content: bytes, reading: ReadingLog) -> str | None:
    """Return the text of a UTF-8 file with or without a byte order mark; None if it is not text.

    A line that is not UTF-8 is a fault. Its invalid bytes become U+FFFD, so that the rest of the
    file can be checked.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        reading.fault(1, "is UTF-16; save it as UTF-8")
        return None
    if b"\0" in content:
        before = content[: content.index(b"\0")]
        reading.fault(len(LINE_END.findall(before)) + 1, "has a NUL byte; is it really UTF-8 text?")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    lines: list[bytes] = LINE_END.split(content)
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as why:
            reading.fault(
                number,
                f"byte 0x{line[why.start]:02x} at place {why.start + 1} is not UTF-8; "
                "save the file as UTF-8",
            )
    return content.decode("utf-8-sig", errors="replace")


def parse_csv(content: bytes, reading: ReadingLog) -> Table | None:
    """Return the table of a CSV file; None if the file has no table.

    Rows of a wrong length are faults, and are left out.
    """
    text = decode(content, reading)
    if text is None:
        return None
    if re.split(r"[\r\n]", text, maxsplit=1)[0].count(",") >= MOST_CELLS:
        reading.fault(1, f"has more than {MOST_CELLS} columns")
        return None
    regular = _split_regular(text)
    if regular is not None:
        header, columns = regular
        first = 1
        lines: Sequence[int] = range(2, len(columns[0]) + 2)
    else:
        rows, at = _records(text, reading)
        if not rows:
            if not reading.faults:
                reading.fault(None, "is empty; its first line must name the columns")
            return None
        header = list(map(str.strip, rows[0]))
        first = at[0]
        columns, lines = _columns(len(header), rows[1:], at[1:], reading)
    odd = next((s for s in SEPARATORS if s in header[0]), None) if len(header) == 1 else None
    if odd is not None:
        reading.fault(first, f"cells are separated by {quote(odd)}; separate them by commas")
        return None
    columns, lines = _without_empty_rows(columns, lines, reading)
    return _named_columns(header, columns, lines, first, reading)


def _split_regular(text: str) -> tuple[list[str], list[list[str]]] | None:
    """Return header and stripped columns of a file with one row per line, all of one length.

    None for any other file. Three things make this and all later steps faster: the text is split in
    slices of a few hundred rows, so that few temporary rows exist at once, equal texts of a column
    with few different ones share one object, and cells are stripped only if the text has blanks.
    """
    has_blanks = not text.isascii() or any(blank in text for blank in BLANKS)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        columns: list[list[str]] = [[] for _ in header]
        seen: list[dict[str, str]] = [{} for _ in header]
        while rows := list(itertools.islice(reader, SLICE)):
            if set(map(len, rows)) != {len(header)}:
                return None
            for column, known, cells in zip(columns, seen, zip(*rows, strict=True), strict=True):
                texts: Sequence[str] = list(map(str.strip, cells)) if has_blanks else cells
                column.extend(map(known.setdefault, texts, texts) if len(known) < FEW else texts)
    except csv.Error:
        return None
    if not header or reader.line_num != 1 + len(columns[0]):
        return None
    return list(map(str.strip, header)), columns


def _records(text: str, reading: ReadingLog) -> tuple[list[list[str]], list[int]]:
    """Return all records that are not blank lines, with the line on which each starts.

    Records after one with broken quotes are left out.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            if len(row) > MOST_CELLS:
                reading.fault(start, f"the row has {len(row)} cells, more than {MOST_CELLS}")
                break
            if row:
                rows.append(row)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        reading.fault(start, _in_words(str(error)))
    return rows, lines


def _in_words(message: str) -> str:
    if "unexpected end" in message:
        return "a quote that opens in this row is never closed"
    if "field limit" in message:
        return (
            f"a cell is longer than {csv.field_size_limit()} characters; is a closing quote"
            " missing?"
        )
    if "expected after" in message:
        return "a quoted cell goes on after its closing quote; write a quote inside quotes twice"
    return f"is not CSV: {message}"


def _columns(
    width: int, rows: list[list[str]], lines: list[int], reading: ReadingLog
) -> tuple[list[list[str]], list[int]]:
    """Return stripped cells by column, and the line of each row.

    A row of another length is a fault, and is left out.
    """
    good: list[list[str]] = []
    at: list[int] = []
    longer: list[int] = []
    for row, line in zip(rows, lines, strict=True):
        cells = list(map(str.strip, row))
        extra = len(row) - width
        if extra < 0 or any(cells[width:]):
            hint = "; a cell with a comma in it needs quotes" if extra > 0 else ""
            reading.fault(line, f"the row has {len(row)} cells, the header {width}{hint}")
            continue
        if extra > 0:
            longer.append(line)
        good.append(cells[:width])
        at.append(line)
    if longer:
        reading.warn(
            longer[0],
            f"empty cells beyond the {width} of the header are ignored{_list_places(longer)}",
        )
    return [list(column) for column in zip(*good, strict=True)] or [[] for _ in range(width)], at


def _without_empty_rows(
    columns: list[list[str]], lines: Sequence[int], reading: ReadingLog
) -> tuple[list[list[str]], Sequence[int]]:
    """Drop rows of empty cells only, which spreadsheets often leave below a table."""
    if "" not in columns[0]:
        return columns, lines
    full = [any(row) for row in zip(*columns, strict=True)]
    blank = [line for line, keep in zip(lines, full, strict=True) if not keep]
    if not blank:
        return columns, lines
    reading.warn(blank[0], f"the row has only empty cells and is ignored{_list_places(blank)}")
    return [list(itertools.compress(column, full)) for column in columns], list(
        itertools.compress(lines, full)
    )


def _list_places(places: Sequence[int], things: str = "rows") -> str:
    return f", and {len(places) - 1} more {things} like it" if len(places) > 1 else ""


def _named_columns(
    header: list[str], cells: list[list[str]], lines: Sequence[int], line: int, reading: ReadingLog
) -> Table:
    columns: dict[str, list[str]] = {}
    empty: list[int] = []
    for place, (name, column) in enumerate(zip(header, cells, strict=True), start=1):
        if name == "":
            if any(column):
                reading.fault(line, f"column {place} has no name")
            else:
                empty.append(place)
        elif name in columns:
            reading.fault(line, f"column {quote(name)} appears twice")
        else:
            columns[name] = column
    if empty:
        reading.warn(
            line,
            f"column {empty[0]} has no name and only empty cells and is ignored"
            f"{_list_places(empty, 'columns')}",
        )
    return Table(reading.file, columns, lines)
