"""Jobs of the queue as CSV text and as flat records, for import, export and lists."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from allocator.domain.findings import HINTED, quote, suggest_setting
from allocator.domain.schema.columns import JOBS
from allocator.domain.schema.workload_columns import FILTERS
from allocator.domain.snapshot import Table
from allocator.errors import Fault, InvalidInput, UsageError
from allocator.io.tables.csv_table import ReadingLog, csv_text, parse_csv
from allocator.objects import Json, Record
from allocator.queue.allocations import Allocation, read_held
from allocator.queue.database.schema import DEFAULT_TENANT, OF_QUEUE
from allocator.queue.jobs.submit import EXTRA, SET, Submission, build_submission
from allocator.queue.jobs.verbs import Job, nodes_as_json

EXPORTED = (*(c.name for c in JOBS.columns), *EXTRA)
"""Columns of `export_jobs`: those of jobs.csv, and what only the queue knows of a job."""
FIELDS = (
    "job_id",
    "state",
    *FILTERS,
    "pool",
    "gpus",
    "shared_with",
    "phase",
    "want_pool",
    "want_gpus",
    "want_host",
    "progress",
    "remaining_work",
    "total_work",
    "submitted_s",
    "first_started_s",
    "finished_s",
    "restarts",
    "failures",
    "retry_at_s",
    "request",
    "park_reason",
    "nodes",
    "want_nodes",
)
"""Columns of `queue list --format csv`."""


def parse_submissions(content: bytes, file: str) -> tuple[list[Submission], tuple[str, ...]]:
    """Parse the jobs of a CSV file.

    The file has columns of workload.csv or jobs.csv, and may have key, command, environment (a JSON
    object) and workdir. A command is a JSON list, or a line as for a shell. A job without
    total_work gets its remaining_work as total_work.

    Returns
    -------
    tuple of (list of Submission, tuple of str)
        The jobs, and warnings.

    Raises
    ------
    InvalidInput
        If the file is not a CSV table, or a cell cannot be read. `submit` checks whether the jobs
        fit the models and pools of the queue.
    """
    reading = ReadingLog(file)
    table = parse_csv(content, reading)
    if table is None or reading.faults:
        raise InvalidInput(reading.faults)
    known = (*SET, *EXTRA, *OF_QUEUE)
    strange = [name for name in table.columns if name not in known]
    absent = [name for name in (*SET, *EXTRA) if name not in table.columns]
    warnings = [
        *map(str, reading.warnings),
        *(
            f"{file}:1: column {quote(name)} is not known and is"
            f" ignored{suggest_setting(name, absent) if i < HINTED else ''}"
            for i, name in enumerate(strange)
        ),
    ]
    ignored_columns = [
        name for name in OF_QUEUE if name in table.columns and name != "remaining_work"
    ]
    if ignored_columns:
        warnings.append(
            f"{file}:1: {', '.join(ignored_columns)}: a submitted job starts "
            f"with nothing held; ignored"
        )
    out = []
    faults = []
    for i, line in enumerate(table.lines):
        try:
            out.append(_parse_submission(table, i, line))
        except (UsageError, ValueError) as error:
            faults.append(Fault(file, line, str(error)))
    if faults:
        raise InvalidInput(faults, warnings)
    return out, tuple(warnings)


def _parse_submission(table: Table, i: int, line: int) -> Submission:
    cells = {name: table.texts(name)[i] for name in table.columns}
    values: Json = {name: cells[name] for name in (*SET, "key", "workdir") if cells.get(name)}
    if not values.get("total_work") and cells.get("remaining_work"):
        values["total_work"] = cells["remaining_work"]
    values["command"] = _parse_command(cells.get("command", ""))
    values["environment"] = _parse_json(cells.get("environment", ""), dict, "environment") or {}
    return build_submission(values, line)


def _parse_command(text: str) -> list[Any]:
    if text.startswith("["):
        return list(_parse_json(text, list, "command"))
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"command {quote(text)}: {str(error).lower()}") from None


def _parse_json(text: str, kind: type, name: str) -> Any:
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ValueError(f"{name} {quote(text)} is no JSON {'object' if kind is dict else 'list'}")
    return value


def job_records(connection: Connection, jobs: Sequence[Job]) -> list[Json]:
    """Return each job as a flat record with the GPUs that it holds.

    Besides the fields of the job, a record has pool and gpus (None and 0 if it holds nothing),
    shared_with (the job whose GPUs it shares, None if it holds its own GPUs), the phase of its
    allocation, and the nodes of its GPUs (None if the pool has no nodes).
    """
    allocations = read_held(connection, [job.job_id for job in jobs])
    return [job_record(job, allocations.get(job.job_id)) for job in jobs]


def job_record(job: Job, allocation: Allocation | None) -> Json:
    """Return one job as a flat record (see `job_records`)."""
    place = (
        {
            "pool": allocation.pool,
            "gpus": allocation.gpus,
            "shared_with": allocation.host or None,
            "phase": allocation.phase,
            "nodes": nodes_as_json(allocation.nodes),
        }
        if allocation
        else {"pool": None, "gpus": 0, "shared_with": None, "phase": None, "nodes": None}
    )
    return {
        "job_id": job.job_id,
        "state": job.state,
        **{name: job.values[name] or None for name in FILTERS},
        "tenant": DEFAULT_TENANT,
        **place,
        "progress": job.progress,
        **job.to_dict(),
    }


def format_csv(columns: Sequence[str], rows: Iterable[Record]) -> str:
    """Return rows as CSV text; None is an empty cell, lists and mappings are JSON."""
    return csv_text(columns, ([_format_cell(row.get(name)) for name in columns] for row in rows))


def _format_cell(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def export_jobs(connection: Connection, jobs: Sequence[Job]) -> str:
    """Return jobs as CSV text that import-csv can read.

    It has the columns of jobs.csv, and key, command, environment and workdir.
    """
    rows = []
    for job, flat in zip(jobs, job_records(connection, jobs), strict=True):
        rows.append(
            {
                **flat,
                **job.cells,
                "gpus": flat["gpus"] or None,
                "key": job.submission_key,
                "command": list(job.command) or None,
                "environment": dict(job.environment) or None,
            }
        )
    return format_csv(EXPORTED, rows)
