"""Periodic jobs: a job with every_s is submitted again, exactly once, at each of its times.

The latest job of a series has the time of the next one in `next_s`. Submitting the next one clears
`next_s` of the latest one in the same transaction. The next one is called NAME@2, NAME@3 and so on
(NAME@2-2 where NAME@2 is taken). It comes after the latest one, and after those jobs of its
predecessors' series that have the same number. Its deadline is as long after its time as that of
the first.

Times that passed while no controller ran are missed: only the latest of them is submitted, so that
numbers are left out. A series ends with `times`, or when its latest job is cancelled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from operator import itemgetter

from sqlalchemy import Connection

from allocator.domain.schema.columns import JOBS
from allocator.objects import Json, Record
from allocator.queue.database.rows import execute, query, value_of
from allocator.queue.database.schema import OWNED, jobs
from allocator.queue.jobs import purged_names
from allocator.queue.jobs.submit import Submission, build_row, next_number

_COLUMNS = tuple(jobs.c.keys())
# not ordered: SQLite would read all jobs in that order, and not the few that repeat
_DUE = (
    f"SELECT {', '.join(_COLUMNS)} FROM jobs"
    " WHERE next_s <= ? AND state <> 'cancelled' AND request <> 'cancel'"
)
_SERIES = "SELECT series, every_s FROM jobs WHERE job_id = ?"
_SAME = "SELECT job_id FROM jobs WHERE series = ? AND number = ?"


@dataclass(frozen=True)
class SubmittedRun:
    """A job that was submitted because its time had come.

    `missed` counts the times of the series before it that passed without a submission.
    """

    job_id: str
    series: str
    due_s: float
    missed: int


def is_due(connection: Connection, now_s: float) -> bool:
    """Return whether `submit_due` would submit anything."""
    return bool(query(connection, _DUE, now_s))


def submit_due(connection: Connection, now_s: float) -> list[SubmittedRun]:
    """Submit the periodic jobs that are due, in the order of the jobs that they repeat.

    Calling it again submits nothing more.
    """
    out = []
    for values in sorted(query(connection, _DUE, now_s), key=itemgetter(_COLUMNS.index("seq"))):
        row = dict(zip(_COLUMNS, values, strict=True))
        every = row["every_s"]
        times = row["times"]
        missed = math.floor((now_s - row["next_s"]) / every)
        number = int(row["number"]) + 1 + missed
        if times is not None and number > times:
            missed -= number - times
            number = times
        due_s = row["next_s"] + missed * every
        series = row["series"] or row["job_id"]
        name = _free_name(connection, f"{series}@{number}")
        run = _next_run(connection, row, name, series, number, due_s, now_s)
        purged_names.insert_jobs(connection, [run])
        out.append(SubmittedRun(name, series, due_s, missed))
        execute(connection, "UPDATE jobs SET next_s = NULL WHERE job_id = ?", row["job_id"])
    return out


def _free_name(connection: Connection, wanted: str) -> str:
    """Return the name, or NAME-2, NAME-3 ... if it is taken: a taken name cannot stop a run."""
    names = chain([wanted], (f"{wanted}-{k}" for k in count(2)))
    taken = "SELECT job_id FROM jobs WHERE job_id = ?"
    return next(name for name in names if not query(connection, taken, name))


def _next_run(
    connection: Connection,
    row: Record,
    name: str,
    series: str,
    number: int,
    due_s: float,
    now_s: float,
) -> Json:
    """Return the row of the job that repeats another one."""
    values = {column: row[column] for column in OWNED} | {"submitted_s": due_s}
    before = json.loads(row["after"] or "[]")
    after = [row["job_id"], *_predecessors(connection, before, series, number)]
    values["after"] = json.dumps(after)
    if values["deadline_s"] is not None:
        values["deadline_s"] += due_s - row["submitted_s"]
    cells = {column: value_of(JOBS.column(column), value) for column, value in values.items()}
    submission = Submission(
        {"job_id": name, **cells},
        tuple(json.loads(row["command"])),
        json.loads(row["environment"]),
        row["workdir"],
    )
    new = build_row(
        submission, submission.content(), values, now_s, next_number(connection), number
    )
    return new | {"series": series}


def _predecessors(
    connection: Connection, after: Sequence[str], series: str, number: int
) -> list[str]:
    """Return the predecessors of job `number` of a series.

    A predecessor that has a series is replaced by the job of that series with the same number, if
    there is one. Single jobs that the queue still knows are kept.
    """
    out = []
    for name in after:
        for own_series, every_s in query(connection, _SERIES, name):
            own = own_series or name
            if own != series:
                same = query(connection, _SAME, own, number) if every_s else []
                out.append(same[0][0] if same else name)
    return list(dict.fromkeys(out))
