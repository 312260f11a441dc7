"""Submit jobs to the queue.

Submissions are checked by the rules of snapshots, and all faults are reported at once. A job is
kept once, however often it is sent: a submission is known by its key, or by its job_id if it has no
key. The same submission again finds the existing job. A different content under the same key is a
fault.

Owners may change some of what they said later. The changed job is checked by the same rules, and
the next round counts with it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from allocator.domain.findings import did_you_mean, quote, suggest_names
from allocator.domain.records import USER
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.cells import text_of
from allocator.domain.schema.columns import JOBS
from allocator.domain.schema.workload_columns import CHANGEABLE
from allocator.domain.snapshot import Snapshot, Table, values_as_cells
from allocator.domain.times import parse_duration, parse_time
from allocator.errors import Fault, InvalidInput, UsageError
from allocator.io.progress_sources import read_source
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.database.rows import as_rows, query, query_of, to_sql, value_of
from allocator.queue.database.schema import OWNED
from allocator.queue.errors import Refused
from allocator.queue.jobs import purged_names
from allocator.queue.jobs.verbs import Job, is_storable, show, update_if_unchanged

MOMENTS = ("submitted_s", "deadline_s")
DURATIONS = ("restart_s", "checkpoint_s", "checkpoint_every_s", "every_s", "time_limit_s")
"""Columns that may be written as domain/times.py reads them, such as 2h."""
SET = ("job_id", "submitted_s", *OWNED)
"""Columns of jobs.csv and workload.csv that a submission may have."""
EXTRA = ("key", "command", "environment", "workdir")
PLACE = "submission"
# in jobs.content, between the digest of the submission and the number of a later change
CHANGED = "~"
# file and lines at the head of a warning
OF_JOBS = re.compile(r"^jobs\.csv((?::[0-9,.-]+)?): ")
# first characters of spreadsheet formulas, with which exported names must not begin
FORMULAS = ("=", "+", "-", "@")


@dataclass(frozen=True)
class Submission:
    """One job to submit.

    `cells` has text or values (domain/schema/cells.py) by column of SET. job_id may be empty if
    there is a key; the queue then names the job. `line` is the line of the job in its file.
    """

    cells: Record
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    key: str | None = None
    line: int | None = None

    def content(self) -> str:
        """Return a digest of all that was given but the user; equal submissions have equal ones."""
        parts = [
            sorted((k, text) for k, v in self.cells.items() if (text := text_of(v))),
            list(self.command),
            sorted((k, v) for k, v in self.environment.items() if k != USER),
            self.workdir,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def text(self, column: str) -> str:
        """Return the text of a cell, "" if it is not given."""
        return text_of(self.cells.get(column))


@dataclass(frozen=True)
class Submitted:
    """The result of a submission: the job that is in the queue, and whether this call added it."""

    job_id: str
    new: bool


def build_submission(values: Record, line: int | None = None) -> Submission:
    """Build a submission from Python values by name.

    The names are the columns of SET, and key, command, environment and workdir. None and "" are the
    default, and lists become cells with bars.

    Raises
    ------
    UsageError
        For an unknown name, or a value that no cell can hold.
    """
    strange = next((name for name in values if name not in SET and name not in EXTRA), None)
    if strange is not None:
        raise UsageError(
            f"a job has no {quote(str(strange))}{did_you_mean(str(strange), (*SET, *EXTRA))}"
        )
    command = values.get("command") or ()
    environment = values.get("environment") or {}
    workdir = str(values.get("workdir") or "")
    if isinstance(command, str) or not all(isinstance(part, str) for part in command):
        raise UsageError("command must be a list of texts, the program first")
    if not isinstance(environment, Mapping) or not all(
        isinstance(text, str) for pair in environment.items() for text in pair
    ):
        raise UsageError("environment must be a mapping of text to text")
    if any("\0" in text for text in (*command, *environment, *environment.values(), workdir)):
        raise UsageError("command, environment and workdir cannot hold a NUL")
    if not is_storable(workdir):
        raise UsageError("workdir has bytes that are no UTF-8")
    if any(not name or "=" in name for name in environment):
        raise UsageError('a name in environment is empty or has a "="')
    read_source(environment)  # raises what is wrong with a source of progress
    cells = {
        name: value.item() if hasattr(value, "item") else value
        for name in SET
        if (value := values.get(name)) is not None
    }
    key = None if values.get("key") in (None, "") else str(values["key"])
    return Submission(cells, tuple(command), dict(environment), workdir, key, line)


def submit(
    connection: Connection, submissions: Sequence[Submission], now_s: float, file: str = PLACE
) -> tuple[list[Submitted], tuple[str, ...]]:
    """Put jobs into the queue, all of them or none.

    Parameters
    ----------
    submissions : sequence of Submission
        The jobs.
    now_s : float
        Time of submission, in seconds, of jobs that give none.
    file : str
        What a fault names as the file.

    Returns
    -------
    tuple of (list of Submitted, tuple of str)
        What became of each submission, and warnings.

    Raises
    ------
    InvalidInput
        With every fault, each naming its job.
    """
    present, faults = _find_present(connection, submissions, file)
    new = [s for s, job_id in zip(submissions, present, strict=True) if job_id is None]
    if faults and not new:
        raise InvalidInput(faults)
    named, seq = _name_new(connection, new)
    values, problem_faults, warnings = check_submissions(connection, named, now_s, file)
    faults += [*problem_faults, *_predecessors(connection, named, file)]
    if faults:
        raise InvalidInput(sorted(faults, key=lambda f: f.line or 0))
    rows = [
        build_row(s, given.content(), row, now_s, seq + i)
        for i, (given, s, row) in enumerate(zip(new, named, values, strict=True))
    ]
    purged_names.insert_jobs(connection, rows)
    names = iter(named)
    return [
        Submitted(next(names).text("job_id"), True) if job_id is None else Submitted(job_id, False)
        for job_id in present
    ], warnings


def _find_present(
    connection: Connection, submissions: Sequence[Submission], file: str
) -> tuple[list[str | None], list[Fault]]:
    """Return the existing job of each submission (None: it is new), and faults of conflicts."""
    by_key = _find_known(
        connection, "submission_key", {s.key for s in submissions if s.key is not None}
    )
    by_id = _find_known(connection, "job_id", {s.text("job_id") for s in submissions})
    seen: dict[tuple[str, str], int | None] = {}
    out: list[str | None] = []
    faults: list[Fault] = []

    def fault(s: Submission, message: str) -> None:
        faults.append(Fault(file, s.line, message))

    for s in submissions:
        name = s.text("job_id")
        what, shown, known = (
            ("job_id", name, by_id.get(name))
            if s.key is None
            else ("key", s.key, by_key.get(s.key))
        )
        if not shown:
            fault(s, "job_id is empty, and so is key")
        if known is None and name in by_id:
            fault(s, f"job_id {quote(name)} is already in the queue, submitted with another key")
        elif known is not None and known[1] != s.content():
            fault(
                s,
                f"{what} {quote(shown)} is already in the queue with another content (job"
                f" {quote(known[0])})",
            )
        for place in (("key", s.key or ""), ("job_id", name)):
            if place in seen:
                line = seen[place]
                where = f"is already in line {line}" if line else "is submitted twice"
                fault(s, f"{place[0]} {quote(place[1])} {where}")
            elif place[1]:
                seen[place] = s.line
        out.append(None if known is None else known[0])
    return out, faults


def _find_known(
    connection: Connection, column: str, names: Iterable[str]
) -> dict[str | None, tuple[str, str]]:
    """Return (job_id, content) of the jobs with these names in the column, by that name.

    The content is that of the submission, also if the job was changed since.
    """
    rows = query_of(
        connection,
        f"SELECT {column}, job_id, content FROM jobs WHERE {column} IN ({{names}})",
        sorted(name for name in names if name and is_storable(name)),
    )
    return {name: (job_id, content.partition(CHANGED)[0]) for name, job_id, content in rows}


def next_number(connection: Connection) -> int:
    """Return the number of the next job in the order of submission."""
    ((last,),) = query(connection, "SELECT COALESCE(MAX(seq), 0) FROM jobs")
    return int(last) + 1


def _name_new(connection: Connection, new: Sequence[Submission]) -> tuple[list[Submission], int]:
    """Return the new submissions, each with a job_id, and the sequence number of the first one."""
    seq = next_number(connection)
    names = {s.text("job_id") for s in new}
    out = []
    for i, s in enumerate(new):
        name = s.text("job_id")
        if not name:
            name = base = f"{s.text('model') or 'job'}-{seq + i}"
            for n in itertools.count(2):
                if name not in names and not _find_known(connection, "job_id", [name]):
                    break
                name = f"{base}-{n}"
            names.add(name)
        out.append(replace(s, cells={**s.cells, "job_id": name}))
    return out, seq


def _find_unknown_tenants(
    new: Sequence[Submission], tenants: Iterable[str], file: str
) -> list[Fault]:
    """Find the tenants that submissions name and the queue has not: they would have no limits."""
    known = set(tenants)
    named = [(s, name) for s in new if (name := s.text("tenant")) and name not in known]
    hint = suggest_names([name for _, name in named], known)
    return [
        Fault(
            file,
            s.line,
            f"tenant {quote(name)} is not in tenants.csv, and the queue takes it without limits "
            f"only after `queue config --set unknown_tenants=warn`{hint[name]}",
        )
        for s, name in named
    ]


def check_submissions(
    connection: Connection, new: Sequence[Submission], now_s: float, file: str
) -> tuple[list[Json], list[Fault], tuple[str, ...]]:
    """Check submissions by the rules of snapshots, within the cluster of the queue.

    Returns the values that the database keeps of each (submitted_s and the columns of OWNED), the
    faults and the warnings.
    """
    if not new:
        return [], [], ()
    faults: list[Fault] = [
        Fault(file, s.line, f"key {quote(s.key)} has a character that cannot be kept")
        for s in new
        if s.key is not None and not (s.key.isprintable() and is_storable(s.key))
    ]
    faults += [
        Fault(
            file,
            s.line,
            f"{column} {quote(name)} begins with {quote(name[0])}, which spreadsheets take for a"
            " formula",
        )
        for s, column in itertools.product(new, ("job_id", "tenant"))
        if (name := s.text(column)).startswith(FORMULAS)
    ]
    new, wrong_times = _read_times(new, now_s, file)
    faults += wrong_times
    given = {name: [s.cells.get(name) for s in new] for name in SET}
    given["submitted_s"] = [s.cells["submitted_s"] if s.text("submitted_s") else now_s for s in new]
    given["remaining_work"] = given["total_work"]
    columns = {
        c.name: values_as_cells(c.kind, given[c.name]) for c in JOBS.columns if c.name in given
    }
    around = cluster_tables.tables(connection)
    lined = all(s.line is not None for s in new)
    lines = [s.line or 0 for s in new] if lined else range(len(new))
    config = cluster_tables.config(connection)
    if "tenants.csv" in around and "unknown_tenants" not in config:
        faults += _find_unknown_tenants(new, around["tenants.csv"].columns["tenant"], file)
    raw = Snapshot(
        "queue",
        config,
        {**around, "jobs.csv": Table("jobs.csv", columns, lines)},
    )

    def place(fault: Fault) -> Fault:
        message = fault.message.replace("remaining_work", "total_work")
        return replace(fault, file=file, line=fault.line if lined else None, message=message)

    try:
        problem = validate(raw)
    except InvalidInput as error:
        ours = [
            place(f)
            for f in error.faults
            if f.file == "jobs.csv"
            and not f.message.startswith("total_work ")
            # _find_present reports these, with the right line
            and " is already in line " not in f.message
        ]
        return [], [*faults, *ours, *(f for f in error.faults if f.file != "jobs.csv")], ()
    warnings = tuple(
        OF_JOBS.sub(rf"{file}\1: " if lined else f"{file}: ", w)
        for w in problem.warnings
        if w.startswith("jobs.csv:") and "submitted_s " not in w
    )
    values = {name: to_sql(JOBS.column(name), columns[name]) for name in OWNED}
    values["submitted_s"] = problem.jobs.submitted_s.tolist()
    return as_rows(values), faults, warnings


def _read_times(
    submissions: Sequence[Submission], now_s: float, file: str
) -> tuple[list[Submission], list[Fault]]:
    """Return the submissions with all times in seconds, and a fault for every text that is none."""
    out: list[Submission] = []
    faults: list[Fault] = []
    for s in submissions:
        cells = dict(s.cells)
        for name in (*MOMENTS, *DURATIONS):
            cell = cells.get(name)
            if not isinstance(cell, str) or not cell.strip():
                continue
            try:
                cells[name] = parse_time(cell, now_s) if name in MOMENTS else parse_duration(cell)
            except ValueError as error:
                faults.append(
                    Fault(file, s.line, f"{name} {error}", f"job {quote(s.text('job_id'))}")
                )
                del cells[name]
        out.append(replace(s, cells=cells))
    return out, faults


def _predecessors(connection: Connection, new: Sequence[Submission], file: str) -> list[Fault]:
    """Return a fault for every predecessor that is neither in the queue nor in the same call.

    A misspelt name would otherwise let the job start at once.
    """
    waits = [(s, name.strip()) for s in new for name in s.text("after").split("|") if name.strip()]
    known = set(_find_known(connection, "job_id", {name for _, name in waits}))
    known |= {s.text("job_id") for s in new}
    return [
        Fault(
            file,
            s.line,
            f"after {quote(name)} is no job of the queue"
            f"{did_you_mean(name, [str(k) for k in known])} (job {quote(s.text('job_id'))})",
        )
        for s, name in waits
        if name not in known
    ]


def build_row(
    submission: Submission,
    content: str,
    values: Record,
    now_s: float,
    seq: int,
    number: int = 1,
) -> Json:
    """Return the row of a new job.

    Parameters
    ----------
    submission : Submission
        The job, which has a name.
    content : str
        Digest of what was submitted.
    values : mapping of str to object
        Values for the database of submitted_s and the columns of OWNED.
    seq, number : int
        Its numbers in the queue and in its series.
    """
    repeats = values["every_s"] is not None and (
        values["times"] is None or number < values["times"]
    )
    return {
        "job_id": submission.text("job_id"),
        "seq": seq,
        "submission_key": submission.key,
        "content": content,
        **values,
        "command": json.dumps(submission.command),
        "environment": json.dumps(dict(sorted(submission.environment.items()))),
        "workdir": submission.workdir,
        "remaining_work": values["total_work"],
        "updated_s": now_s,
        "number": number,
        "next_s": values["submitted_s"] + values["every_s"] if repeats else None,
    }


def change_jobs(
    connection: Connection, job_ids: Sequence[str], values: Record, now_s: float
) -> list[Job]:
    """Change columns of jobs, all or none. Repeating the call changes nothing more.

    Parameters
    ----------
    job_ids : sequence of str
        Names of the jobs.
    values : mapping of str to object
        Columns of CHANGEABLE, as text or values; None and "" are the default.
    now_s : float
        Time of the change in seconds.

    Returns
    -------
    list of Job
        The jobs afterwards, in the given order.

    Raises
    ------
    UsageError
        For an unknown job, or a column that cannot be changed.
    Refused
        If a job is over.
    InvalidInput
        With every rule that a changed job would break.
    """
    strange = next((name for name in values if name not in CHANGEABLE), None)
    if strange is not None:
        raise UsageError(
            f"{quote(strange)} of a job cannot be changed{did_you_mean(strange, CHANGEABLE)};"
            f" these can: {', '.join(CHANGEABLE)}"
        )
    return [_change(connection, job_id, values, now_s) for job_id in dict.fromkeys(job_ids)]


def _change(connection: Connection, job_id: str, values: Record, now_s: float) -> Job:
    job = show(connection, job_id)
    if job.state in ("done", "cancelled"):
        raise Refused(f"job {quote(job_id)} cannot be changed: it is {job.state}")
    given = {
        **job.values,
        **{name: None if value == "" else value for name, value in values.items()},
    }
    submission = build_submission({"job_id": job_id, "submitted_s": job.submitted_s, **given})
    rows, faults, _ = check_submissions(connection, [submission], now_s, "change")
    if faults:
        raise InvalidInput(faults)
    after = {name: rows[0][name] for name in values}
    if all(value_of(JOBS.column(name), value) == job.values[name] for name, value in after.items()):
        return job
    ((content,),) = query(connection, "SELECT content FROM jobs WHERE job_id = ?", job_id)
    changed = f"{content.partition(CHANGED)[0]}{CHANGED}{job.version}"
    update_if_unchanged(connection, job, {**after, "content": changed}, now_s)
    return show(connection, job_id)
