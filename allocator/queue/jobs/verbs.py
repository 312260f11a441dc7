"""Read the jobs of the queue, and change them as their owners ask.

Every change compares the version of the job and swaps it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.cells import text_of
from allocator.domain.schema.columns import JOBS, ColumnKind
from allocator.domain.schema.workload_columns import FILTERS
from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.queue.database.rows import (
    LISTS,
    as_columns,
    execute_many,
    named_rows,
    query,
    query_of,
    values_of,
)
from allocator.queue.database.schema import (
    ACTIVE,
    DEFAULT_TENANT,
    OPEN,
    OWNED,
    STATES,
    allocations,
    jobs,
    observations,
    turns,
)
from allocator.queue.errors import QueueUnavailable
from allocator.queue.holdings import VERBS
from allocator.queue.jobs import purged_names

MOST_NAMES = 5000  # number of job_ids that are searched for a similar name


class Job(NamedTuple):
    """A job as the queue knows it.

    `values` has the columns that its owner set (OWNED); None or "" is the default. Work is in the
    model's unit, times are in seconds. `received` has the seconds that the job has held GPUs, by
    GPU type, up to its last allocation. `want_nodes` is the text of holdings.py.
    """

    job_id: str
    state: str
    request: str
    values: Record
    command: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str
    submission_key: str | None
    submitted_s: float
    first_started_s: float | None
    finished_s: float | None
    remaining_work: float
    generation: int
    want_pool: str
    want_gpus: int
    want_host: str
    want_nodes: str
    attained_gpu_s: float
    restarts: int
    resizes: int
    largest_gpus: int
    received: Mapping[str, float]
    failures: int
    retry_at_s: float | None
    park_reason: str
    next_s: float | None
    version: int
    seq: int
    updated_s: float

    @property
    def cells(self) -> dict[str, str]:
        """The columns that the owner set, as text; "" is the default."""
        return {name: text_of(value) for name, value in self.values.items()}

    @property
    def total_work(self) -> float:
        return float(self.values["total_work"])

    @property
    def progress(self) -> float:
        """The share of the work that is done."""
        return 1.0 - self.remaining_work / self.total_work

    def to_dict(self) -> Json:
        """Return the job as one flat object for JSON, without empty cells."""
        own = self._asdict()
        given = {
            name: cell
            for name, value in own.pop("values").items()
            if value is not None
            and (cell := value if type(value) in (float, int) else text_of(value)) != ""
        }
        return {
            **dict.fromkeys(("job_id", "state", "request")),  # first
            **given,
            **own,
            "request": self.request or None,
            "command": list(self.command),
            "want_pool": self.want_pool or None,
            "want_host": self.want_host or None,
            "want_nodes": nodes_as_json(self.want_nodes),
            "park_reason": self.park_reason or None,
        }


def nodes_as_json(text: str) -> list[Json] | None:
    """Return the nodes of a stored text as plan.json has them, None without nodes."""
    return json.loads(text) if text else None


_STORED = [*OWNED, *(n for n in Job._fields if n not in ("values", "remaining_work"))]
# while a job has an open allocation, its row has the remaining work at the start of that
_NAMED = (
    f"SELECT {', '.join(f'j.{name}' for name in _STORED)},"
    " COALESCE(a.work_at_start - a.work_done, j.remaining_work) FROM jobs j"
    f" LEFT JOIN allocations a ON a.job_id = j.job_id AND a.phase IN {OPEN}"
    " WHERE j.job_id IN ({names})"
)
_CONVERTED = [n for n in OWNED if JOBS.column(n).kind in (*LISTS, ColumnKind.BOOLEAN)]


def read_jobs(connection: Connection, names: Sequence[str]) -> dict[str, Job]:
    """Return the jobs with these names; names of no job are left out."""
    rows = query_of(connection, _NAMED, [name for name in names if is_storable(name)])
    # by column, because a list may have hundreds of jobs
    columns = as_columns(rows, len(_STORED) + 1)
    c: Json = dict(zip((*_STORED, "remaining_work"), columns, strict=True))
    c |= {name: values_of(JOBS.column(name), c[name]) for name in _CONVERTED}
    c |= {name: list(map(json.loads, c[name])) for name in ("environment", "received")}
    c["command"] = [tuple(json.loads(text)) for text in c["command"]]
    owned = zip(*(c[name] for name in OWNED), strict=True)
    c["values"] = [dict(zip(OWNED, row, strict=True)) for row in owned]
    built = named_rows(Job, zip(*(c[name] for name in Job._fields), strict=True))
    return {job.job_id: job for job in built}


def show(connection: Connection, job_id: str) -> Job:
    """Return one job. Raises UsageError if there is no such job."""
    for job in read_jobs(connection, [job_id]).values():
        return job
    raise unknown_job_error(connection, job_id)


def is_storable(name: str) -> bool:
    """Return whether a database can hold the text: it has no NUL and no lone surrogate."""
    return "\0" not in name and not any("\ud800" <= c <= "\udfff" for c in name)


def unknown_job_error(connection: Connection, job_id: str, tenant: str | None = None) -> UsageError:
    """Return the error for a name that is no job, with the most similar name that is one.

    With a tenant, only names of its jobs are told.
    """
    query = sa.select(jobs.c.job_id).order_by(jobs.c.seq.desc()).limit(MOST_NAMES)
    if tenant is not None:
        query = query.where(jobs.c.tenant == tenant)
    known = connection.execute(query).scalars().all()
    return UsageError(f"the queue has no job {quote(job_id)}{did_you_mean(job_id, known)}")


def find_tenants(
    connection: Connection, names: Sequence[str], keys: Sequence[str] = ()
) -> dict[str, str]:
    """Return the tenant ("": the default one) of the jobs that have these names, or these keys."""
    by_name = query_of(
        connection,
        "SELECT job_id, tenant FROM jobs WHERE job_id IN ({names})",
        [name for name in dict.fromkeys(names) if is_storable(name)],
    )
    by_key = query_of(
        connection,
        "SELECT submission_key, tenant FROM jobs WHERE submission_key IN ({names})",
        [key for key in dict.fromkeys(keys) if is_storable(key)],
    )
    return dict((*by_name, *by_key))


def is_of_tenant(tenant: str) -> sa.ColumnElement[bool]:
    """Return the condition of jobs of a tenant; those that name no tenant have the default one."""
    names = ("", tenant) if tenant == DEFAULT_TENANT else (tenant,)
    return jobs.c.tenant.in_(names)


def list_names_of_others(connection: Connection, tenant: str) -> list[str]:
    """Return the names of jobs that are not over and not of a tenant."""
    active = jobs.c.state.in_(ACTIVE)
    names = sa.select(jobs.c.job_id).where(active, ~is_of_tenant(tenant))
    return list(connection.execute(names).scalars())


def match(wanted: Mapping[str, str | None]) -> list[sa.ColumnElement[bool]]:
    """Return conditions of jobs that have these values of FILTERS; "" and None are any.

    Raises UsageError for another name.
    """
    for name in wanted.keys() - {*FILTERS}:
        raise UsageError(f"no filter {quote(name)}{did_you_mean(name, FILTERS)}")
    given = {name: value for name, value in wanted.items() if value}
    if not all(map(is_storable, given.values())):
        return [sa.false()]
    return [
        is_of_tenant(value) if name == "tenant" else jobs.c[name] == value
        for name, value in given.items()
    ]


def list_jobs(
    connection: Connection,
    /,
    *,
    states: Sequence[str] = (),
    limit: int | None = None,
    **wanted: str | None,
) -> list[Job]:
    """Return jobs in the order of submission.

    Parameters
    ----------
    states : sequence of str
        Only jobs in these states; "active" is every state of jobs that are not over. Default: all.
    limit : int, optional
        Only the latest so many.
    **wanted : str
        Only jobs with these values of FILTERS.

    Raises
    ------
    UsageError
        For an unknown state or filter.
    """
    query = sa.select(jobs.c.job_id).where(*match(wanted))
    known = [s for state in states for s in (ACTIVE if state == "active" else (state,))]
    strange = next((s for s in known if s not in STATES), None)
    if strange is not None:
        raise UsageError(
            f"no state {quote(strange)}{did_you_mean(strange, (*STATES, 'active'))}; known:"
            f" active, {', '.join(STATES)}"
        )
    if known:
        query = query.where(jobs.c.state.in_(known))
    query = query.order_by(jobs.c.seq.desc())
    names = connection.execute(query.limit(limit)).scalars().all()[::-1]
    by_name = read_jobs(connection, names)
    return [by_name[name] for name in names]


def counts(connection: Connection, tenant: str | None = None) -> dict[str, int]:
    """Count the jobs, all or those of a tenant, by state; every state is named."""
    if tenant is None:
        rows: Any = query(connection, "SELECT state, COUNT(*) FROM jobs GROUP BY state")
    else:
        chosen = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
        rows = connection.execute(chosen.where(is_of_tenant(tenant))).all()
    number = dict(rows)
    return {state: number.get(state, 0) for state in STATES}


def history(connection: Connection, job_id: str) -> list[Json]:
    """Return all allocations of the job, the oldest first, as rows of the table."""
    return [
        row | {"nodes": nodes_as_json(row["nodes"])}
        for row in _read_story(connection, allocations, job_id, "generation")
    ]


def read_observations(connection: Connection, job_id: str) -> list[Json]:
    """Return the kept observations of a job, the oldest first, as rows without id and job_id."""
    return _read_story(connection, observations, job_id, "id", "job_id")


def read_turns(connection: Connection, job_id: str) -> list[Json]:
    """Return when allocations of the job changed their primary jobs, the oldest first.

    `host` names the primary jobs from then on, "" where the job held all of its GPUs itself, and
    `held_gpus` are the GPUs that it held itself.
    """
    return _read_story(connection, turns, job_id, "id", "job_id")


def _read_story(
    connection: Connection, table: sa.Table, job_id: str, order: str, *without: str
) -> list[Json]:
    """Return the rows of a job in order, with what it reported as a mapping."""
    columns = [c for c in table.c if c.name not in ("id", *without)]
    chosen = sa.select(*columns).where(table.c.job_id == job_id).order_by(table.c[order])
    rows = [dict(row._mapping) for row in connection.execute(chosen)]
    for row in rows:
        if "reported" in row:
            row["reported"] = json.loads(row["reported"] or "{}")
    return rows


_OVER = (
    "SELECT job_id FROM jobs WHERE state IN ('done', 'cancelled') AND finished_s < ?"
    " AND (next_s IS NULL OR state = 'cancelled')"
)
_AWAITED = "SELECT after FROM jobs WHERE after IS NOT NULL AND state NOT IN ('done', 'cancelled')"


def purge(connection: Connection, before_s: float) -> int:
    """Forget jobs that were done or cancelled before a time, and return how many.

    Everything about them is removed. Jobs that are predecessors of other jobs stay, and so does the
    latest job of a periodic series. Forgotten names and keys may be submitted again; the last
    generation of each name is kept (purged_names.py).
    """
    needed = {name for row in query(connection, _AWAITED) for name in json.loads(row[0])}
    gone = [row[0] for row in query(connection, _OVER, before_s) if row[0] not in needed]
    purged_names.remember_jobs(connection, gone)
    for table in ("observations", "turns", "allocations", "losses", "jobs"):
        rows = [(name,) for name in gone]
        execute_many(connection, f"DELETE FROM {table} WHERE job_id = ?", rows)
    return len(gone)


def change_state(
    connection: Connection, verb: str, job_ids: Sequence[str], now_s: float
) -> list[Job]:
    """Hold, release, cancel or retry jobs, all or none.

    Repeating the call changes nothing more.

    Parameters
    ----------
    verb : str
        "hold", "release", "cancel" or "retry".
    job_ids : sequence of str
        Names of the jobs.
    now_s : float
        Time of the change in seconds.

    Returns
    -------
    list of Job
        The jobs afterwards, in the given order.

    Raises
    ------
    UsageError
        For an unknown job.
    Refused
        If the state of a job does not allow it.
    """
    out = []
    for job_id in dict.fromkeys(job_ids):
        job = show(connection, job_id)
        changes = VERBS[verb](job, now_s)
        if changes:
            update_if_unchanged(connection, job, changes, now_s)
            job = show(connection, job_id)
        out.append(job)
    return out


def update_if_unchanged(connection: Connection, job: Job, changes: Record, now_s: float) -> None:
    """Write the changes of a job if its version is still the one that was read."""
    done = connection.execute(
        sa.update(jobs)
        .where(jobs.c.job_id == job.job_id, jobs.c.version == job.version)
        .values(**changes, version=job.version + 1, updated_s=now_s)
    )
    if done.rowcount != 1:
        raise QueueUnavailable(
            f"job {quote(job.job_id)} was changed by somebody else at the same time; try again"
        )
