"""The journal of rounds, and what each round wants of jobs; both change in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.errors import UsageError
from allocator.queue import lease
from allocator.queue.database.bulk import execute_many, query
from allocator.queue.database.schema import rounds


@dataclass(frozen=True)
class JournalRound:
    """One round of the journal; number 0: it is not written yet.

    `snapshot` and `plan` are compressed. They are None if they are no longer kept, and `plan` is
    None too if the round had none. `seconds` has the time of each part of the round. `outcome` is
    decided, applied or failed, and `detail` says why it failed.
    """

    at_s: float
    snapshot_digest: str
    snapshot: bytes | None
    policy: str
    status: str
    outcome: str = "decided"
    options: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    plan: bytes | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""
    number: int = 0
    token: int = 0


_FIELDS = tuple(f.name for f in fields(JournalRound))
_APPEND = f"INSERT INTO rounds ({', '.join(_FIELDS)}) VALUES ({', '.join('?' for _ in _FIELDS)})"


class Want(NamedTuple):
    """What a job shall hold.

    `primary` is the job on whose GPUs it shall run, "" for its own GPUs. `has_to_move`: it shall
    have other GPUs than now, even if pool and size are the same. `nodes` is the text of
    node_space.py, "" where the pool has no nodes. `environment` is a JSON object of variables that
    tell the job how to run, "" where there is nothing to tell. `memory_gb` is what it pays for of
    each GPU, 0 where the pool has no price of memory. A job that runs is not started again for
    another of these two.
    """

    pool: str
    gpus: int
    primary: str = ""
    has_to_move: bool = False
    nodes: str = ""
    environment: str = ""
    memory_gb: float = 0.0


NOTHING = Want("", 0)
_JSON = ("options", "seconds")
_NUMBER = "SELECT COALESCE(MAX(number), 0) FROM rounds"
_WANTS = (
    "SELECT job_id, want_pool, want_gpus, want_host, want_generation, want_nodes, want_environment,"
    " want_memory_gb, generation, request FROM jobs WHERE state IN ('queued', 'paused', 'running')"
)
_LIGHT = [c for c in rounds.c if c.name not in ("snapshot", "plan")]


def count_rounds(connection: Connection) -> int:
    """Return the number of the last round, 0 before the first one."""
    return int(query(connection, _NUMBER)[0][0])


def append(
    connection: Connection, token: int, entry: JournalRound, wants: Mapping[str, Want] | None
) -> int:
    """Write a round and what it wants of jobs, and return its number, one more than the last.

    Parameters
    ----------
    token : int
        Fencing token of the controller.
    entry : JournalRound
        The round.
    wants : mapping of str to Want, or None
        What is wanted, by job_id; every other job shall hold nothing. None: the wants of the round
        before stay. Jobs that are over, held, or being held or cancelled get nothing in any case.

    Raises
    ------
    LeaseLost
        If the token is not the current one.
    """
    lease.check(connection, token)
    number = count_rounds(connection) + 1
    values = vars(entry) | {"number": number, "token": token}
    values |= {name: json.dumps(dict(values[name]), sort_keys=True) for name in _JSON}
    execute_many(connection, _APPEND, [tuple(values[name] for name in _FIELDS)])
    if wants is not None:
        _write_wants(connection, wants, entry.at_s)
    return number


def _write_wants(connection: Connection, wants: Mapping[str, Want], at_s: float) -> None:
    changed = []
    for row in query(connection, _WANTS):
        job_id = row[0]
        generation = row[-2]
        request = row[-1]
        want = wants.get(job_id, NOTHING) if request == "" else NOTHING
        if want.gpus < 1:
            want = NOTHING
        newest = generation + 1 if want.has_to_move else 0
        after = (want.pool, want.gpus, want.primary, newest, *want[4:])
        if after != row[1:-2]:
            changed.append((*after, at_s, job_id))
    execute_many(
        connection,
        "UPDATE jobs SET want_pool = ?, want_gpus = ?, want_host = ?, want_generation = ?, "
        "want_nodes = ?, want_environment = ?, want_memory_gb = ?, version = version + 1, "
        "updated_s = ? WHERE job_id = ?",
        changed,
    )


def mark(
    connection: Connection,
    token: int,
    number: int,
    outcome: str,
    detail: str = "",
    seconds: Mapping[str, float] | None = None,
) -> None:
    """Record whether a round was applied or failed.

    `seconds` is added to the times that the round has. Raises LeaseLost.
    """
    lease.check(connection, token)
    values: dict[str, Any] = {"outcome": outcome, "detail": detail}
    if seconds is not None:
        values["seconds"] = json.dumps(
            {**read(connection, number).seconds, **seconds}, sort_keys=True
        )
    connection.execute(sa.update(rounds).where(rounds.c.number == number).values(**values))


def read(connection: Connection, number: int | None = None) -> JournalRound:
    """Return a round with its snapshot and plan; number None: the last round.

    Raises UsageError if there is no such round.
    """
    query = sa.select(rounds).order_by(rounds.c.number.desc()).limit(1)
    row = connection.execute(
        query if number is None else query.where(rounds.c.number == number)
    ).first()
    if row is None:
        raise UsageError(
            "the journal has no round yet"
            if number is None
            else f"the journal has no round {number}"
        )
    return _build_round(row)


def read_plans(connection: Connection, last: int = 1) -> list[tuple[int, float, bytes]]:
    """Return number, time and plan of the latest rounds whose plans are kept, the oldest first."""
    c = rounds.c
    rows = connection.execute(
        sa.select(c.number, c.at_s, c.plan)
        .where(c.plan.is_not(None))
        .order_by(c.number.desc())
        .limit(last)
    ).all()
    return [(number, at_s, bytes(plan)) for number, at_s, plan in reversed(rows)]


def history(connection: Connection, *, limit: int | None = None) -> list[JournalRound]:
    """Return the rounds, the oldest first, without snapshots and plans.

    `limit` restricts them to the latest so many.
    """
    query = sa.select(*_LIGHT).order_by(rounds.c.number.desc())
    rows = connection.execute(query if limit is None else query.limit(limit)).all()
    return [_build_round(row) for row in reversed(rows)]


def read_light(connection: Connection, first: int, last: int) -> list[JournalRound]:
    """Return the rounds from one number to another, without snapshots and plans."""
    chosen = rounds.c.number.between(first, last)
    query = sa.select(*_LIGHT).where(chosen).order_by(rounds.c.number)
    return [_build_round(row) for row in connection.execute(query)]


def _build_round(row: Any) -> JournalRound:
    values = dict(row._mapping)
    for name in ("snapshot", "plan"):
        content = values.get(name)
        values[name] = None if content is None else bytes(content)
    return JournalRound(**values | {name: json.loads(values[name]) for name in _JSON})


def prune(connection: Connection, token: int, keep: int) -> int:
    """Drop snapshots and plans of all but the last `keep` rounds; the rounds themselves stay.

    Returns how many were dropped. Raises LeaseLost.
    """
    lease.check(connection, token)
    done = connection.execute(
        sa.update(rounds)
        .where(rounds.c.number <= count_rounds(connection) - keep, rounds.c.snapshot.is_not(None))
        .values(snapshot=None, plan=None)
    )
    return int(done.rowcount)
