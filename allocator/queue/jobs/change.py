"""Change what the owner of a job said about it: its weight, its sizes and its deadline.

The changed job is checked by the rules of a submission. The next round counts with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.columns import JOBS
from allocator.errors import InvalidInput, UsageError
from allocator.queue.database.bulk import query
from allocator.queue.database.values import value_of
from allocator.queue.errors import Refused
from allocator.queue.jobs.submit import CHANGED, build_submission, check_submissions
from allocator.queue.jobs.verbs import Job, show, update_if_unchanged

PLACE = "change"  # what a fault names as the file
CHANGEABLE = ("weight", "min_gpus", "max_gpus", "requested_gpus", "sizes", "deadline_s")


def change_jobs(
    connection: Connection, job_ids: Sequence[str], values: Mapping[str, Any], now_s: float
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


def _change(connection: Connection, job_id: str, values: Mapping[str, Any], now_s: float) -> Job:
    job = show(connection, job_id)
    if job.state in ("done", "cancelled"):
        raise Refused(f"job {quote(job_id)} cannot be changed: it is {job.state}")
    given = {
        **job.values,
        **{name: None if value == "" else value for name, value in values.items()},
    }
    said = build_submission({"job_id": job_id, "submitted_s": job.submitted_s, **given})
    rows, faults, _ = check_submissions(connection, [said], now_s, PLACE)
    if faults:
        raise InvalidInput(faults)
    after = {name: rows[0][name] for name in values}
    if all(value_of(JOBS.column(name), value) == job.values[name] for name, value in after.items()):
        return job
    ((content,),) = query(connection, "SELECT content FROM jobs WHERE job_id = ?", job_id)
    changed = f"{content.partition(CHANGED)[0]}{CHANGED}{job.version}"
    update_if_unchanged(connection, job, {**after, "content": changed}, now_s)
    return show(connection, job_id)
