"""Tables for people.

A terminal gets tables by rich. A pipe, a file and a long table get plain aligned text that is never
cut.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from allocator.domain.plan import EXPECTED_FIELDS, Plan
from allocator.engine.expected_words import describe_next

LONG = 500  # rows above which a terminal gets plain text too, because rich would take seconds


class Rows(Sequence[tuple[str, ...]]):
    """The rows of a table that is kept by its columns, because there may be thousands."""

    def __init__(self, columns: Sequence[Sequence[str]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, at: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> Rows: ...
    def __getitem__(self, at: int | slice) -> tuple[str, ...] | Rows:
        if isinstance(at, slice):
            return Rows([column[at] for column in self.columns])
        return tuple(column[at] for column in self.columns)


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of texts; columns of numbers are aligned to the right.

    `droppable` are the columns that a narrow terminal does not show, the first of them dropped
    first.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    droppable: tuple[str, ...] = ()


def show(tables: Iterable[Table], head: Sequence[str] = ()) -> None:
    """Print lines and tables on standard output."""
    for line in head:
        print(_wrap_line(line) if sys.stdout.isatty() else line)
    for table in tables:
        print()
        if not sys.stdout.isatty() or len(table.rows) > LONG:
            _plain(table)
            continue
        width = shutil.get_terminal_size().columns
        fitted = fit_to_width(table, width)
        widths = choose_widths(fitted, width)
        if widths is None:
            _show_records(table)
        else:
            _rich(fitted, widths)


def text(value: Any, digits: int = 4) -> str:
    """Return a cell: "-" for no value, few digits for fractions, control characters visible."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    said = str(value)
    return said if said.isprintable() else said.encode("unicode_escape").decode("ascii")


def texts(values: Iterable[Any]) -> list[str]:
    """Return the cells of a column, checked together because there may be thousands."""
    cells = list(values)
    sorts = set(map(type, cells))
    if sorts == {float}:
        return [("%.4g" if abs(cell) < 10_000 else "%.0f") % cell for cell in cells]
    if sorts <= {str, type(None)}:
        said = ["-" if cell is None else cell for cell in cells]
        if "".join(said).isprintable():
            return said
    return [text(cell) for cell in cells]


def fit_to_width(table: Table, width: int) -> Table:
    """Drop droppable columns until the table is at most `width` characters wide."""
    left = list(table.columns)
    widths = dict(zip(table.columns, (max(map(len, c)) for c in _cells(table)), strict=True))
    for name in table.droppable:
        if _drawn_width(widths[kept] for kept in left) <= width:
            break
        left.remove(name)
    at = [table.columns.index(name) for name in left]
    return replace(table, columns=tuple(left), rows=[[row[i] for i in at] for row in table.rows])


def choose_widths(table: Table, width: int) -> list[int] | None:
    """Return the widths of columns that break no word, None if there are none within `width`."""
    widths = [max(map(len, cells)) for cells in _cells(table)]
    least = [max((len(w) for c in cells for w in c.split()), default=0) for cells in _cells(table)]
    while _drawn_width(widths) > width:
        spare = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not spare:
            return None
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _cells(table: Table) -> Iterable[Sequence[str]]:
    """Return the cells of each column, its name first."""
    if isinstance(table.rows, Rows):
        named = zip(table.columns, table.rows.columns, strict=True)
        return ([name, *cells] for name, cells in named)
    return zip(table.columns, *table.rows, strict=True)


def _drawn_width(widths: Iterable[int]) -> int:
    return sum(width + 3 for width in widths) - 1  # as _rich draws a table


def _show_records(table: Table) -> None:
    """Print a table that is too wide for the terminal as a block of lines for each row."""
    width = max(map(len, table.columns))
    print(_wrap_line(table.title if table.rows else f"{table.title}: none"))
    for row in table.rows:
        print()
        for name, cell in zip(table.columns, row, strict=True):
            if cell.strip(" -"):
                print(_wrap_line(f"{name:<{width}}  {cell}"))


def _wrap_line(line: str) -> str:
    return textwrap.fill(
        line,
        max(40, shutil.get_terminal_size().columns),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rich(table: Table, widths: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, width in zip(table.columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name in table.numbers else "left"
        grid.add_column(name, justify=justify, width=width, overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as drawn:
        console.print(grid)
    print(
        _wrap_line(table.title),
        *(line for line in drawn.get().splitlines() if line.strip()),
        sep="\n",
    )


def _plain(table: Table) -> None:
    columns: list[Sequence[str]] = []
    for name, cells in zip(table.columns, _cells(table), strict=True):
        is_number = name in table.numbers
        if len(columns) == len(table.columns) - 1 and not is_number:
            columns.append(cells)  # what would be added is stripped again
            continue
        form = f"%{'' if is_number else '-'}{max(map(len, cells))}s"
        columns.append([form % cell for cell in cells])
    rows = map("  ".join, zip(*columns, strict=True))
    print("\n".join([table.title, *map(str.rstrip, rows)]))


def percent(gap: float) -> str:
    """Return a relative gap: exact zero, or enough digits to distinguish it from zero."""
    return "0 %" if gap == 0 else f"{100 * gap:.{'2g' if abs(gap) < 0.995 else '0f'}} %"


def headline(result: Plan) -> list[str]:
    """Return what was decided, how good it is, and which solver proved it."""
    limit = result.budget.per_hour
    spent = f"cost {text(result.budget.spent_per_hour)} $/h" + (
        "" if limit is None else f" of {text(limit)} $/h for all GPUs"
    )
    if result.placement is not None:
        p = result.placement
        spent += (
            f"; nodes cost {text(p.lost)} of the value (gap {percent(p.gap)}): {p.moved} jobs move,"
            f" {p.reduced} get another option"
        )
    by = f"{result.solver} {result.solver_version or ''}".strip() if result.solver else "no solver"
    return [
        f"snapshot {text(result.snapshot)}: policy {result.policy}, objective {result.objective},"
        f" {by}" + (f", fallback {result.fallback}" if result.fallback else ""),
        (
            f"value {text(result.objective_value, 7)}, best possible at most"
            f" {text(result.bound, 7)} (gap {percent(result.gap)}, proven by {result.bound_by}):"
            f" {result.status}, ended by {result.termination}"
        ),
        f"{spent}; decided in {result.seconds['total']:.3f} s",
    ]


def log_lines(result: Plan, notes: Sequence[str]) -> list[str]:
    """Return the lines that --log writes: the headline, the notes of the search, and its end."""
    head, proof, spent = headline(result)
    asked = (
        f"solver: {result.solver_choice or result.solver}"
        if result.solver or result.solver_choice
        else f"solver: none was asked, the policy {result.policy} decides by rules"
    )
    times = ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in result.seconds.items())
    return [
        head,
        *notes,
        asked,
        proof,
        spent,
        f"seconds: {times}",
        *(f"warning: {w}" for w in result.warnings),
    ]


def jobs_table(jobs: Mapping[str, Sequence[Any]], now_s: float) -> Table:
    """Return the jobs of a plan, given by their columns."""
    places = ("pool", "gpus", "shared_with", "variant", "mode")
    expected = zip(*(jobs[name] for name in EXPECTED_FIELDS), strict=True)
    columns: tuple[Iterable[Any], ...] = (
        jobs["job_id"],
        jobs["tenant"],
        jobs["action"],
        _places(*(jobs[name] for name in places)),
        _places(jobs["previous_pool"], jobs["previous_gpus"]),
        jobs["value"],
        jobs["cost_per_hour"],
        (describe_next(dict(zip(EXPECTED_FIELDS, row, strict=True)), now_s) for row in expected),
        map(_why, jobs["reason"], jobs["detail"]),
    )
    return Table(
        "jobs",
        ("job", "tenant", "action", "gets", "held", "value", "$/h", "expected", "reason"),
        Rows(list(map(texts, columns))),
        frozenset({"value", "$/h"}),
    )


def pools_table(result: Plan) -> Table:
    """Return the pools of a plan."""
    rows = [[text(v) for v in (p.pool, p.gpus, p.used, p.marginal_value)] for p in result.pools]
    return Table(
        "pools (price: value of one GPU more)",
        ("pool", "GPUs", "used", "price"),
        rows,
        frozenset({"GPUs", "used", "price"}),
    )


def describe_allocation(job: dict[str, Any]) -> str:
    """Return what one entry of a plan does: "start 2 x a100", "wait"."""
    return text(f"{job['action']} {job['gpus']} x {job['pool']}" if job["pool"] else job["action"])


def plans(named: Mapping[str, Plan], title: str = "policy") -> Table:
    """Return the totals of some plans, a row each."""
    rows = [
        [
            name,
            text(r.objective_value, 5),
            text(r.bound, 5),
            percent(r.gap),
            r.status,
            text(r.budget.spent_per_hour),
            str(sum(p.used for p in r.pools)),
            str(sum(1 for a in r.jobs["pool"] if a is not None)),
            f"{r.seconds['total']:.3f}",
        ]
        for name, r in named.items()
    ]
    return Table(
        "plans",
        (title, "value", "best at most", "gap", "status", "$/h", "GPUs", "jobs", "seconds"),
        rows,
        frozenset({"value", "best at most", "gap", "$/h", "GPUs", "jobs", "seconds"}),
    )


def _places(*columns: Sequence[Any]) -> list[str]:
    """Return what jobs hold, "-" for nothing."""
    return [_place(*held) for held in zip(*columns, strict=True)]


def _place(
    pool: str | None,
    gpus: int,
    colocated_job: str | None = None,
    variant: str | None = None,
    mode: str | None = None,
) -> str:
    if pool is None:
        return "-"
    return (
        f"{gpus} x {pool}"
        + "".join(f", {how}" for how in (variant, mode) if how)
        + (f" next to {colocated_job}" if colocated_job else "")
    )


def _why(code: str | None, detail: str | None) -> str:
    return f"{code}: {detail}" if code and detail else code or detail or ""
