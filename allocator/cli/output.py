"""What commands print: results on standard output, messages on standard error.

Every command has --json, --quiet and --verbose (docs/reference/commands.md). What they choose
is kept here for the whole process, because a command line is one process.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    said = str(value)
    return said if said.isprintable() else said.encode("unicode_escape").decode("ascii")


def percent(gap: float) -> str:
    """Return a relative gap: exact zero, or enough digits to distinguish it from zero."""
    return "0 %" if gap == 0 else f"{100 * gap:.{'2g' if abs(gap) < 0.995 else '0f'}} %"


def pick(found: object, *names: str) -> Values:
    """Return attributes of an object by name."""
    return {name: getattr(found, name) for name in names}


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
