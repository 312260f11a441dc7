"""One CSV file as a Table of text, with everything that is wrong with its form: encoding, quotes, ragged rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator.domain.findings import quoted
from allocator.domain.snapshot import Table
from allocator.errors import Fault

LINE_END = re.compile(rb"\r\n|\r|\n")
SEPARATORS = (";", "\t", "|")


@dataclass
class Reading:
    """What was met while reading one file."""

    file: str
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    def fault(self, line: int | None, message: str) -> None:
        self.faults.append(Fault(self.file, line, message))

    def warn(self, line: int | None, message: str) -> None:
        self.warnings.append(Fault(self.file, line, message))


def decode(content: bytes, reading: Reading) -> str | None:
    """The text of a file that should be UTF-8, with or without a byte order mark; None if it is no text at all.

    A line that is not UTF-8 is a fault; its odd bytes become U+FFFD so that the rest can be judged.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        reading.fault(1, "is UTF-16; save it as UTF-8")
        return None
    if b"\0" in content:
        reading.fault(len(LINE_END.findall(content[: content.index(b"\0")])) + 1, "has a NUL byte; is it really UTF-8 text?")
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
            reading.fault(number, f"byte 0x{line[why.start]:02x} at place {why.start + 1} is not UTF-8; "
                          "save the file as UTF-8")
    return content.decode("utf-8-sig", errors="replace")


def parse_csv(content: bytes, reading: Reading) -> Table | None:
    """The table of a CSV file; None if there is none to speak of. Rows of a wrong length are faults and left out."""
    text = decode(content, reading)
    if text is None:
        return None
    rows, lines = _records(text, reading)
    if not rows:
        if not reading.faults:
            reading.fault(None, "is empty; its first line must name the columns")
        return None
    header = [name.strip() for name in rows[0]]
    odd = next((s for s in SEPARATORS if s in header[0]), None) if len(header) == 1 else None
    if odd is not None:
        reading.fault(lines[0], f"cells are separated by {quoted(odd)}; separate them by commas")
        return None
    columns = _columns(header, rows[1:], lines[1:], reading)
    return _named(header, columns, lines[0], reading)


def _records(text: str, reading: Reading) -> tuple[list[list[str]], Sequence[int]]:
    """All records that are not blank lines, and the line each starts in; up to the first that has broken quotes."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        rows.extend(reader)
        if reader.line_num == len(rows) and [] not in rows:
            return rows, range(1, len(rows) + 1)
    except csv.Error:
        pass
    return _records_one_by_one(text, reading)


def _records_one_by_one(text: str, reading: Reading) -> tuple[list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
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
        return f"a cell is longer than {csv.field_size_limit()} characters; is a closing quote missing?"
    if "expected after" in message:
        return "a quoted cell goes on after its closing quote; write a quote inside quotes twice"
    return f"is not CSV: {message}"


def _columns(header: list[str], rows: list[list[str]], lines: Sequence[int],
             reading: Reading) -> tuple[list[list[str]], Sequence[int]]:
    """Stripped cells by column, and the line of each row."""
    width = len(header)
    if any(length != width for length in set(map(len, rows))):
        rows, lines = _of_width(width, rows, lines, reading)
    columns = [list(map(str.strip, column)) for column in zip(*rows, strict=True)] if rows else [[] for _ in header]
    if "" in columns[0]:
        full = [any(column[i] for column in columns) for i in range(len(lines))]
        blank = [line for line, keep in zip(lines, full, strict=True) if not keep]
        if blank:
            more = f", and {len(blank) - 1} more" if len(blank) > 1 else ""
            reading.warn(blank[0], f"the row has only empty cells and is ignored{more}")
            columns = [[cell for cell, keep in zip(column, full, strict=True) if keep] for column in columns]
            lines = [line for line, keep in zip(lines, full, strict=True) if keep]
    return columns, lines


def _of_width(width: int, rows: list[list[str]], lines: Sequence[int],
              reading: Reading) -> tuple[list[list[str]], list[int]]:
    good: list[list[str]] = []
    at: list[int] = []
    for row, line in zip(rows, lines, strict=True):
        extra = len(row) - width
        if extra == 0 or (extra > 0 and not any(cell.strip() for cell in row[width:])):
            if extra:
                reading.warn(line, f"the row has {len(row)} cells, the header {width}; the empty ones at its end are "
                             "ignored")
            good.append(row[:width])
            at.append(line)
        else:
            hint = "; a cell with a comma in it needs quotes" if extra > 0 else ""
            reading.fault(line, f"the row has {len(row)} cells, the header {width}{hint}")
    return good, at


def _named(header: list[str], body: tuple[list[list[str]], Sequence[int]], line: int, reading: Reading) -> Table:
    columns: dict[str, list[str]] = {}
    cells, lines = body
    for place, (name, column) in enumerate(zip(header, cells, strict=True), start=1):
        if name == "":
            if any(column):
                reading.fault(line, f"column {place} has no name")
            else:
                reading.warn(line, f"column {place} has no name and only empty cells and is ignored")
        elif name in columns:
            reading.fault(line, f"column {quoted(name)} appears twice")
        else:
            columns[name] = column
    return Table(reading.file, columns, lines)
