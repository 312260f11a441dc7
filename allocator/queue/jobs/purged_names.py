"""The last generation of job names that no job of the queue has any more.

An executor knows an allocation by (job, generation) and refuses for ever what it has seen. So a job
that is submitted under a forgotten name goes on counting where the earlier job ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from allocator.objects import Record
from allocator.queue.database.rows import execute, execute_many, insert, query_of

_NEWEST_OF = (
    "SELECT job_id, MAX(generation) FROM (SELECT job_id, generation FROM jobs UNION ALL"
    " SELECT job_id, generation FROM forgotten) AS known WHERE job_id IN ({names}) GROUP BY job_id"
)
_GO_ON = (
    "UPDATE jobs SET generation = jobs.generation + f.generation,"
    " first_generation = jobs.first_generation + f.generation"
    " FROM forgotten f WHERE f.job_id = jobs.job_id AND jobs.seq >= ?"
)
_KEEP = "INSERT INTO forgotten (job_id, generation)"
_NEWEST = (
    "ON CONFLICT (job_id) DO UPDATE SET generation = CASE WHEN forgotten.generation <"
    " excluded.generation THEN excluded.generation ELSE forgotten.generation END"
)


def insert_jobs(connection: Connection, rows: Sequence[Record]) -> None:
    """Insert new jobs, in the order of `seq`; they count on where earlier ones of a name ended."""
    insert(connection, "jobs", rows)
    for first in rows[:1]:
        execute(connection, _GO_ON, first["seq"])


def remember(connection: Connection, last: Mapping[str, int]) -> None:
    """Keep the last generation of names that are not, or will soon not be, jobs of the queue."""
    execute_many(connection, f"{_KEEP} VALUES (?, ?) {_NEWEST}", list(last.items()))


def remember_jobs(connection: Connection, names: Sequence[str]) -> None:
    """Keep the last generation of jobs that are about to be removed, if they have one."""
    execute_many(
        connection,
        f"{_KEEP} SELECT job_id, generation FROM jobs WHERE job_id = ? AND generation > 0"
        f" {_NEWEST}",
        [(name,) for name in names],
    )


def read_newest_generations(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the last generation that the queue has given to each of the names that it knows."""
    return dict(query_of(connection, _NEWEST_OF, list(names)))
