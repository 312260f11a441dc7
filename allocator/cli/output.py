"""What commands print: results on standard output, messages on standard error.

Every command has --json, --quiet and --verbose (docs/reference/commands.md). What they choose
is kept here for the whole process, because a command line is one process.

A terminal gets tables by rich. A pipe, a file and a long table get plain aligned text that is never
cut.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from allocator import AllocatorError, Fault, Infeasible, InvalidInput, NoPlanInTime, UsageError
from allocator.cli.termination import Terminated
from allocator.report.visible import show_hidden

if TYPE_CHECKING:
    from rich.progress import Progress

Value = TypeVar("Value")
Values: TypeAlias = dict[str, Any]
"""What is shown of one thing: values by name."""
Lazy: TypeAlias = Value | str | Callable[[], Value | str]
"""A value or a text of it, or what makes either where it is asked for."""
Columns: TypeAlias = dict[str, str | Callable[[Any], Any]]
"""Titles of a table, and what is below: a value of each record by its name, or made of it."""
SCHEMA_VERSION = 1
CODES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidInput, "invalid_input"),
    (Infeasible, "infeasible"),
    (NoPlanInTime, "no_plan_in_time"),
    (UsageError, "usage"),
    (KeyboardInterrupt, "interrupted"),
    (Terminated, "terminated"),
    (AllocatorError, "failed"),
    (OSError, "failed"),
)
"""Kinds of errors, and the code that programs read; the first kind that fits counts."""
LONG = 500  # rows above which a terminal gets plain text too, because rich would take seconds


@dataclass
class OutputMode:
    """What the options of the command line ask for.

    `is_json`: the result and an error are JSON. `is_quiet`: no notes and no progress. `is_verbose`:
    what is read and how long it takes, too.
    """

    is_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False


MODE = OutputMode()


def set_mode(is_json: bool = False, is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Choose what this process prints from now on."""
    MODE.is_json, MODE.is_quiet, MODE.is_verbose = is_json, is_quiet, is_verbose


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of values, which `text` makes cells of.

    A column whose name begins with ">" is aligned to the right. `droppable` are the columns that a
    narrow terminal does not show, the first of them dropped first.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Iterable[Any]]
    droppable: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        title: str,
        records: Sequence[Any],
        columns: Columns | None = None,
        droppable: Sequence[str] = (),
    ) -> Table:
        """Return a table of records.

        By default the columns are what a record has; what is no text is aligned to the right.
        """
        columns = columns or {
            name if any(isinstance(row[name], str) for row in records) else f">{name}": name
            for name in (records[0] if records else ())
            if any(row[name] not in (None, "") for row in records)
        }
        rows = [
            [record[of] if isinstance(of, str) else of(record) for of in columns.values()]
            for record in records
        ]
        return cls(title, [*columns], rows, droppable)


class Answer(NamedTuple):
    """What a command found, in each form in which it can be printed; main.py prints one of them.

    Attributes
    ----------
    document : for JSON; several are a line each, and a text is the JSON itself.
    shown : for people: a text, or lines and tables.
    csv : rows, or the text of CSV.
    exit_code : of the command.
    notes : what else was done, told after the result.
    files : what --out writes, by name; values are JSON.
    """

    document: Lazy[Values | Sequence[Values]]
    shown: str | Iterable[str | Table] = ""
    csv: Lazy[Sequence[Values]] = ""
    exit_code: int = 0
    notes: Sequence[str] = ()
    files: Mapping[str, Lazy[Values | bytes]] = {}


def format_json(document: Values) -> str:
    """Return a result as one line of strict JSON with the version of its form."""
    from allocator.io.plans import dumps

    return dumps({"schema_version": SCHEMA_VERSION, **document})


def text(value: Any, digits: int = 4) -> str:
    """Return a cell: "-" for no value, few digits for fractions, control characters visible."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    cell = str(value)
    return cell if cell.isprintable() else cell.encode("unicode_escape").decode("ascii")


def percent(gap: float) -> str:
    """Return a relative gap: exact zero, or enough digits to distinguish it from zero."""
    return "0 %" if gap == 0 else f"{100 * gap:.{'2g' if abs(gap) < 0.995 else '0f'}} %"


def pick(record: object, *names: str) -> Values:
    """Return attributes of an object by name."""
    return {name: getattr(record, name) for name in names}


def text_of(lines: Iterable[str]) -> str:
    """Return lines of a result as a text, with control characters visible."""
    return "".join(f"{show_hidden(line)}\n" for line in lines)


def note(*lines: str) -> None:
    """Print what was done or could be done next, unless --quiet."""
    if not MODE.is_quiet:
        _print_message(*lines)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings."""
    _print_message(*(f"warning: {warning}" for warning in warnings))


def tell_details(*lines: str) -> None:
    """Print what was read or decided and how long it took, with --verbose."""
    if MODE.is_verbose:
        _print_message(*lines)


def has_progress() -> bool:
    """Return whether progress is shown: on a terminal, unless --quiet."""
    return sys.stderr.isatty() and not MODE.is_quiet


def progress_bar(is_counted: bool) -> Progress:
    """Return a bar on standard error: of things that are counted, or of a share of 1."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn() if is_counted else progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        disable=not has_progress(),
    )


def format_csv(rows: Sequence[Values], digits: int | None = None) -> str:
    """Return rows as CSV; a cell is empty where a row has no value of that name.

    A mapping becomes a column per key, KEY:NAME; `digits` are those of fractions, by default all.
    """
    from allocator.io.tables.csv_table import csv_text

    def cell(value: Any) -> Any:
        match value:
            case bool():
                return str(value).lower()
            case list():
                return "|".join(value)
            case float() if not math.isfinite(value):
                return ""
            case float() if digits is not None:
                return f"{value:.{digits}g}"
        return value

    flat = [
        {
            f"{key}:{name}" if name else key: cell(value)
            for key, given in row.items()
            for name, value in (given.items() if isinstance(given, dict) else (("", given),))
        }
        for row in rows
    ]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    return csv_text(columns, ([row.get(name) for name in columns] for row in flat))


def _print_message(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def print_error(error: BaseException | None, text: str, exit_code: int) -> int:
    """Print an error and return its exit code; with --json it is one line of JSON."""
    if MODE.is_json:
        text = json.dumps(describe_error(error, text, exit_code), ensure_ascii=False)
    with suppress(OSError, ValueError):
        _print_message(text)
    return exit_code


def describe_fault(fault: Fault | str) -> Values:
    """Return a fault as JSON values; an audit describes its faults by sentences alone."""
    if isinstance(fault, str):
        return {"message": fault}
    return pick(fault, "file", "line", "message") | {"subject": fault.subject or None}


def describe_error(error: BaseException | None, text: str, exit_code: int) -> Values:
    """Return an error as JSON values."""
    code = next((code for kind, code in CODES if isinstance(error, kind)), "internal")
    faults = getattr(error, "faults", ())
    return {
        "schema_version": SCHEMA_VERSION,
        "error": {
            "code": code,
            "exit_code": exit_code,
            "message": text,
            "faults": [describe_fault(fault) for fault in faults],
            "warnings": list(getattr(error, "warnings", ())),
        },
    }


def show_answer(answer: Answer, args: Namespace) -> int:
    """Print an answer as its command line asks, write its files, and return the exit code."""
    if answer.files and args.out is not None:
        from allocator.io.plans import write_files

        files = {n: f() if callable(f) else f for n, f in answer.files.items()}
        texts = {n: f"{format_json(f)}\n" if isinstance(f, dict) else f for n, f in files.items()}
        write_files(Path(args.out), texts)
        note(f"written to {args.out}: {', '.join(texts)}")
    if args.format == "json":
        result = answer.document() if callable(answer.document) else answer.document
        if isinstance(result, str):
            sys.stdout.write(result)
        else:
            for document in [result] if isinstance(result, Mapping) else result:
                print(format_json(document), flush=True)
    elif args.format == "csv":
        rows = answer.csv() if callable(answer.csv) else answer.csv
        sys.stdout.write(rows if isinstance(rows, str) else format_csv(rows))
    elif isinstance(answer.shown, str):
        sys.stdout.write(answer.shown)
    else:
        show(answer.shown)
    note(*answer.notes)
    return answer.exit_code


class _Column(NamedTuple):
    name: str
    is_right: bool
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(len, [self.name, *self.cells]))

    @property
    def longest_word(self) -> int:
        return max((len(w) for c in [self.name, *self.cells] for w in c.split()), default=0)


def show(parts: Iterable[str | Table]) -> None:
    """Print lines, and tables below an empty line each, on standard output.

    A terminal gets lines broken between words, unless a text has lines of its own.
    """
    is_terminal = sys.stdout.isatty()
    for part in parts:
        if isinstance(part, str):
            print(wrap(part) if is_terminal and "\n" not in part else part)
            continue
        print()
        values = zip(*part.rows, strict=True) if part.rows else [()] * len(part.columns)
        columns = [
            _Column(name.removeprefix(">"), name.startswith(">"), list(map(text, cells)))
            for name, cells in zip(part.columns, values, strict=True)
        ]
        if not is_terminal or len(part.rows) > LONG:
            _plain(part.title, columns)
            continue
        width = shutil.get_terminal_size().columns
        for name in part.droppable:
            if _drawn_width(c.width for c in columns) <= width:
                break
            columns = [column for column in columns if column.name != name]
        if _drawn_width(column.longest_word for column in columns) > width:
            _show_records(part.title, columns)
        else:
            _rich(part.title, columns)


def _drawn_width(widths: Iterable[int]) -> int:
    return sum(width + 3 for width in widths) - 1  # as _rich draws a table


def _show_records(title: str, columns: Sequence[_Column]) -> None:
    """Print a table that is too wide for the terminal as a block of lines for each row."""
    width = max(len(column.name) for column in columns)
    print(wrap(title if columns[0].cells else f"{title}: none"))
    for row in zip(*(column.cells for column in columns), strict=True):
        print()
        for column, cell in zip(columns, row, strict=True):
            if cell.strip(" -"):
                print(wrap(f"{column.name:<{width}}  {cell}"))


def wrap(line: str) -> str:
    """Return a line broken between words, as wide as the terminal and indented as it begins."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        max(40, shutil.get_terminal_size().columns),
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rich(title: str, columns: Sequence[_Column]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Any = "right" if column.is_right else "left"
        grid.add_column(
            column.name, justify=justify, min_width=column.longest_word, overflow="fold"
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*map(Text, row))
    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as drawn:
        console.print(grid)
    print(wrap(title), *(line for line in drawn.get().splitlines() if line.strip()), sep="\n")


def _plain(title: str, columns: Sequence[_Column]) -> None:
    padded = []
    for column in columns:
        form = f"%{'' if column.is_right else '-'}{column.width}s"
        padded.append([form % cell for cell in (column.name, *column.cells)])
    rows = map("  ".join, zip(*padded, strict=True))
    print("\n".join([title, *map(str.rstrip, rows)]))
