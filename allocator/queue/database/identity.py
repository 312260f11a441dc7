"""The id of a queue, and which executor's state its allocations are about.

Both are values of the table `meta`. The id is made with the queue and is in every backup of it. The
state is written once, by the first controller that acts, and changes only by
`allocator queue adopt`.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from allocator.queue.cluster_tables import get_meta, put_meta, read_meta, write_meta
from allocator.queue.database.rows import query
from allocator.queue.database.schema import OPEN

ID = "queue_id"
EXECUTOR = "executor"
_SEEN = f"SELECT job_id FROM allocations WHERE phase IN {OPEN} AND observed_s IS NOT NULL LIMIT 1"


@dataclass(frozen=True)
class State:
    """The durable state of an executor.

    `kind` is the name of the executor, and `state` is the random name of the state. `place` is the
    machine and folder where it was last seen, for messages.
    """

    kind: str
    state: str
    place: str


def queue_id(connection: Connection) -> str:
    """Return the random name of the queue."""
    return get_meta(connection, ID) or ""


def make_id(connection: Connection) -> None:
    """Give a new queue its random name."""
    put_meta(connection, ID, secrets.token_hex(16))


def state(connection: Connection) -> State | None:
    """Return the state that the allocations are about, or None if no controller has acted yet."""
    record = read_meta(connection, EXECUTOR)
    return None if record is None else State(**record)


def remember_state(connection: Connection, executor_state: State) -> None:
    """Record that the allocations of the queue are about this state from now on."""
    write_meta(connection, EXECUTOR, asdict(executor_state))


def has_run(connection: Connection) -> bool:
    """Return whether a controller has seen an open allocation running."""
    return bool(query(connection, _SEEN))
