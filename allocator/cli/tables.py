"""Print the answers of commands, and draw their tables for people.

A terminal gets tables by rich. A pipe, a file and a long table get plain aligned text that is never
cut.
"""

import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allocator.cli.output import Answer, Table, format_csv, format_json, note, text

LONG = 500  # rows above which a terminal gets plain text too, because rich would take seconds


def show_answer(answer: Answer, args: Namespace) -> int:
    """Print an answer as its command line asks, write its files, and return the exit code."""
    if answer.files and args.out is not None:
        from allocator.io.plans import write_files

        made = {n: found() if callable(found) else found for n, found in answer.files.items()}
        texts = {n: f"{format_json(f)}\n" if isinstance(f, dict) else f for n, f in made.items()}
        write_files(Path(args.out), texts)
        note(f"written to {args.out}: {', '.join(texts)}")
    if args.format == "json":
        found = answer.document() if callable(answer.document) else answer.document
        if isinstance(found, str):
            sys.stdout.write(found)
        else:
            for document in [found] if isinstance(found, Mapping) else found:
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


def show(found: Iterable[str | Table]) -> None:
    """Print lines, and tables below an empty line each, on standard output.

    A terminal gets lines broken between words, unless a text has lines of its own.
    """
    is_terminal = sys.stdout.isatty()
    for one in found:
        if isinstance(one, str):
            print(wrap(one) if is_terminal and "\n" not in one else one)
            continue
        print()
        values = zip(*one.rows, strict=True) if one.rows else [()] * len(one.columns)
        columns = [
            _Column(name.removeprefix(">"), name.startswith(">"), list(map(text, cells)))
            for name, cells in zip(one.columns, values, strict=True)
        ]
        if not is_terminal or len(one.rows) > LONG:
            _plain(one.title, columns)
            continue
        width = shutil.get_terminal_size().columns
        for name in one.droppable:
            if _drawn_width(c.width for c in columns) <= width:
                break
            columns = [column for column in columns if column.name != name]
        if _drawn_width(column.longest_word for column in columns) > width:
            _show_records(one.title, columns)
        else:
            _rich(one.title, columns)


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
