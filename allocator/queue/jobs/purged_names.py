"""The last generation of job names that no job of the queue has any more.

An executor knows an allocation by (job, generation) and refuses for ever what it has seen. So a job
that is submitted under a forgotten name goes on counting where the earlier job ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from allocator.queue.database.bulk import execute_many, query_of

_OF_NAMES = "SELECT job_id, generation FROM forgotten WHERE job_id IN ({names})"
_KEEP = "INSERT INTO forgotten (job_id, generation)"
_NEWEST = (
    "ON CONFLICT (job_id) DO UPDATE SET generation = CASE WHEN forgotten.generation <"
    " excluded.generation THEN excluded.generation ELSE forgotten.generation END"
)
_OF_JOBS = "SELECT job_id, generation FROM jobs WHERE job_id IN ({names})"


def read_forgotten_generations(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the last generation of those of the names that were forgotten."""
    return {str(name): int(last) for name, last in query_of(connection, _OF_NAMES, list(names))}


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
    asked = list(names)
    jobs = {str(name): int(last) for name, last in query_of(connection, _OF_JOBS, asked)}
    return {**read_forgotten_generations(connection, asked), **jobs}
