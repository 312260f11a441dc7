"""The journal of rounds, and what each round wants of jobs; both change in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.errors import UsageError
from allocator.objects import Record
from allocator.queue import lease
from allocator.queue.database.rows import execute, execute_many, insert, query


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
    options: Record = field(default_factory=dict)
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    plan: bytes | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""
    number: int = 0
    token: int = 0


_FIELDS = tuple(f.name for f in fields(JournalRound))


class Want(NamedTuple):
    """What a job shall hold.

    `primary` is the job on whose GPUs it shall run, "" for its own GPUs. `has_to_move`: it shall
    have other GPUs than now, even if pool and size are the same. `nodes` is the text of
    holdings.py, "" where the pool has no nodes. `environment` is a JSON object of variables that
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
_LIGHT = [name for name in _FIELDS if name not in ("snapshot", "plan")]
_PLANS = "SELECT number, at_s, plan FROM rounds WHERE plan IS NOT NULL ORDER BY number DESC LIMIT ?"


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
    insert(connection, "rounds", [values])
    if wants is not None:
        _write_wants(connection, wants, entry.at_s)
    return number


def _write_wants(connection: Connection, wants: Mapping[str, Want], at_s: float) -> None:
    changed = []
    for row in query(connection, _WANTS):
        want = wants.get(row[0], NOTHING) if row[-1] == "" else NOTHING
        if want.gpus < 1:
            want = NOTHING
        # without a move it is 0, as False is
        newest = want.has_to_move and row[-2] + 1
        if (*want[:3], newest, *want[4:]) != row[1:-2]:
            changed.append((*want[:3], int(newest), *want[4:], at_s, row[0]))
    execute_many(
        connection,
        "UPDATE jobs SET want_pool = ?, want_gpus = ?, want_host = ?, want_generation = ?, "
        "want_nodes = ?, want_environment = ?, want_memory_gb = ?, version = version + 1, "
        "updated_s = ? WHERE job_id = ?",
        changed,
    )


def mark_applied(connection: Connection, token: int, number: int) -> None:
    """Record that a round is carried out. Raises LeaseLost."""
    lease.check(connection, token)
    execute(connection, "UPDATE rounds SET outcome = 'applied' WHERE number = ?", number)


def read(connection: Connection, number: int | None = None) -> JournalRound:
    """Return a round with its snapshot and plan; number None: the last round.

    Raises UsageError if there is no such round.
    """
    wanted = count_rounds(connection) if number is None else number
    for entry in _read(connection, _FIELDS, "WHERE number = ?", wanted):
        return entry
    raise UsageError(
        "the journal has no round yet" if number is None else f"the journal has no round {number}"
    )


def read_plans(connection: Connection, last: int = 1) -> list[tuple[int, float, bytes]]:
    """Return number, time and plan of the latest rounds whose plans are kept, the oldest first."""
    rows = query(connection, _PLANS, last)
    return [(number, at_s, bytes(plan)) for number, at_s, plan in reversed(rows)]


def history(connection: Connection, *, limit: int | None = None) -> list[JournalRound]:
    """Return the rounds, the oldest first, without snapshots and plans.

    `limit` restricts them to the latest so many.
    """
    last = count_rounds(connection)
    return read_light(connection, 1 if limit is None else last - limit + 1, last)


def read_light(connection: Connection, first: int, last: int) -> list[JournalRound]:
    """Return the rounds from one number to another, without snapshots and plans."""
    where = "WHERE number BETWEEN ? AND ? ORDER BY number"
    return _read(connection, _LIGHT, where, first, last)


def _read(
    connection: Connection, names: Sequence[str], where: str, *values: int
) -> list[JournalRound]:
    out = []
    for row in query(connection, f"SELECT {', '.join(names)} FROM rounds {where}", *values):
        fields = {"snapshot": None} | dict(zip(names, row, strict=True))
        fields |= {name: json.loads(fields[name]) for name in _JSON}
        out.append(JournalRound(**fields))
    return out


def prune(connection: Connection, token: int, keep: int) -> int:
    """Drop snapshots and plans of all but the last `keep` rounds; the rounds themselves stay.

    Returns how many were dropped. Raises LeaseLost.
    """
    lease.check(connection, token)
    return execute(
        connection,
        "UPDATE rounds SET snapshot = NULL, plan = NULL WHERE number <= ? AND snapshot IS NOT NULL",
        count_rounds(connection) - keep,
    )
