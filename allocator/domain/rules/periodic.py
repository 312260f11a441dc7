"""Rows of a workload that become several jobs: periodic jobs, and sessions of cells.

A row with every_s becomes one job for each of its `times`. A row with `cells` becomes one job for
each cell of the session (cells.py). The second job is called NAME@2, and so on. Each is submitted
every_s after the one before, or when its cell starts. It runs after that one, and after the job of
the same number of each predecessor of several jobs. The time from submission to deadline is the
same for all.
"""

from dataclasses import replace

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.grid import ParsedTable
from allocator.domain.rules.cells import read_sessions
from allocator.domain.schema.cells import ParsedColumn


def expand_rows(table: ParsedTable) -> ParsedTable:
    """Return workload.csv with every job of such rows; what is wrong with one is a fault."""
    sessions = read_sessions(table)
    ok = table.ok("every_s", "times", "submitted_s", "deadline_s", "job_id", "after")
    every = ok & table.given("every_s")
    periodic = every & table.given("times")
    table.faults(every & ~periodic, "every_s needs times, as a workload ends")
    if not periodic.any() and not sessions:
        return table
    times = np.where(periodic, table["times"], 1)
    for i, cells in sessions.items():
        times[i] = len(cells.starts_s)
    row = np.repeat(np.arange(len(table)), times)
    number = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times) + 1
    later = np.where(number > 1, (number - 1) * np.nan_to_num(table["every_s"])[row], 0.0)
    out = table.take(row)
    columns = dict(out.columns)
    work = columns["total_work"].value.copy()
    begin = np.cumsum(times) - times
    for i, cells in sessions.items():
        rows = slice(begin[i], begin[i] + times[i])
        later[rows], work[rows] = cells.starts_s, cells.work
    columns["total_work"] = replace(columns["total_work"], value=work)
    for name in ("submitted_s", "deadline_s"):
        columns[name] = replace(columns[name], value=columns[name].value + later)
    count = dict(zip(table["job_id"], times.tolist(), strict=True))
    ids: list[str] = table["job_id"]
    names = [_number_name(ids[i], n) for i, n in zip(row.tolist(), number.tolist(), strict=True)]
    columns["job_id"] = replace(columns["job_id"], value=names)
    after = [
        (
            *((_number_name(ids[i], n - 1),) if n > 1 else ()),
            *(_number_name(name, min(n, count.get(name, 1))) for name in table["after"][i]),
        )
        for i, n in zip(row.tolist(), number.tolist(), strict=True)
    ]
    columns["after"] = ParsedColumn(after, np.array([bool(a) for a in after]), columns["after"].ok)
    for name, nothing in (("every_s", np.nan), ("times", -1)):
        old, is_single = columns[name], ~periodic[row]
        value = np.where(is_single, old.value, nothing)
        columns[name] = replace(old, value=value, given=old.given & is_single)
    out = replace(out, columns=columns)
    single = set(ids)
    for i in np.flatnonzero(number > 1).tolist():
        if names[i] in single:
            table.fault(
                int(row[i]),
                f"its time number {number[i]} is called {quote(names[i])}, as another job is",
            )
    return out


def _number_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}@{number}"
