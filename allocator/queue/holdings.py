"""Jobs with their open allocations, and which job holds the GPUs of two colocated jobs.

They are read together, changed as values, and written back together.

Of two jobs on the same GPUs, the *primary job* holds the GPUs and is billed for them, and the
*secondary job* runs on them. When one of the two allocations ends, the other job holds the GPUs
from that moment on. Both are recorded in the same transaction, so exactly one open allocation holds
the GPUs at any time. The table `turns` has every such change, for bills and histories.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.queue.database.bulk import execute_many, query, query_of
from allocator.queue.database.schema import OPEN


class Held(NamedTuple):
    """A job and its open allocation.

    `received` is a JSON object: seconds held by GPU type. `host` is the primary job on whose GPUs
    the job runs, "" where it holds its own. `since_s` is the time up to which the job was credited
    for what it holds; None means that nothing was credited yet, and it counts from `running_s`.
    """

    job_id: str
    generation: int
    gpus: int
    gpu_type: str
    phase: str
    ordered_s: float
    running_s: float | None
    ended_s: float | None
    observed_s: float | None
    work_at_start: float
    work_done: float
    detail: str
    host: str
    since_s: float | None
    state: str
    request: str
    remaining_work: float
    attained_gpu_s: float
    restarts: int
    largest_gpus: int
    first_started_s: float | None
    finished_s: float | None
    failures: int
    retry_at_s: float | None
    park_reason: str
    want_pool: str
    want_gpus: int
    want_host: str
    want_nodes: str
    received: str
    updated_s: float

    def credit(self, to_s: float) -> Held:
        """Return the job with what it has received up to to_s.

        It gets the seconds on its GPU type, and the GPU-seconds too if it holds the GPUs itself.
        """
        since = self.running_s if self.since_s is None else self.since_s
        if since is None or to_s <= since:
            return self
        had = json.loads(self.received)
        seconds = to_s - since
        received = json.dumps(
            {**had, self.gpu_type: had.get(self.gpu_type, 0.0) + seconds}, sort_keys=True
        )
        own = self.gpus if self.host == "" else 0
        return self._replace(
            attained_gpu_s=self.attained_gpu_s + seconds * own, received=received, since_s=to_s
        )

    def move_to(self, primary: str, at_s: float) -> Held:
        """Return the job on the GPUs of `primary` from at_s on ("": it holds the GPUs itself)."""
        return self.credit(at_s)._replace(host=primary)


_OF_ALLOCATION = (
    "phase",
    "running_s",
    "ended_s",
    "observed_s",
    "work_done",
    "detail",
    "host",
    "since_s",
)
_OF_JOB = (
    "state",
    "request",
    "remaining_work",
    "attained_gpu_s",
    "restarts",
    "largest_gpus",
    "first_started_s",
    "finished_s",
    "failures",
    "retry_at_s",
    "park_reason",
    "want_pool",
    "want_gpus",
    "want_host",
    "want_nodes",
    "received",
    "updated_s",
)
_read_allocation = attrgetter(*_OF_ALLOCATION)
_read_job = attrgetter(*_OF_JOB)
# statements that run at every poll of the controller, built once
_HELD = (
    f"SELECT {', '.join(f'j.{name}' if name in _OF_JOB else f'a.{name}' for name in Held._fields)}"
    f" FROM allocations a JOIN jobs j ON j.job_id = a.job_id WHERE a.phase IN {OPEN} AND a.job_id"
    " IN ({names})"
)
# CROSS JOIN: SQLite begins with allocations, of which few are open, not with all turns ever
_TURNS = (
    "SELECT t.job_id, t.generation, t.at_s, t.host FROM allocations a CROSS JOIN turns t WHERE"
    " t.job_id = a.job_id AND t.generation = a.generation AND (a.ended_s IS NULL OR a.ended_s > ?)"
    " ORDER BY t.id"
)
_SECONDARIES = f"SELECT host, job_id FROM allocations WHERE phase IN {OPEN} AND host <> ''"


def read_secondaries(connection: Connection) -> dict[str, str]:
    """Return the secondary job of every primary job whose GPUs are shared."""
    return dict(tuple(row) for row in query(connection, _SECONDARIES))


def held(connection: Connection, names: Collection[str]) -> dict[str, Held]:
    """Return the jobs with these names that have an open allocation."""
    return {row[0]: Held._make(row) for row in query_of(connection, _HELD, sorted(names))}


def write(
    connection: Connection, changed: Mapping[str, Held], move_to: Iterable[tuple[str, float]] = ()
) -> None:
    """Write all changes at once.

    Parameters
    ----------
    changed : mapping of str to Held
        The changed jobs by name.
    move_to : iterable of (str, float)
        Jobs whose allocation got another primary job, with the time of the change.
    """
    execute_many(
        connection,
        f"UPDATE allocations SET {_set(_OF_ALLOCATION)} WHERE job_id = ? AND generation = ?",
        [(*_read_allocation(one), name, one.generation) for name, one in changed.items()],
    )
    execute_many(
        connection,
        f"UPDATE jobs SET {_set(_OF_JOB)}, version = version + 1 WHERE job_id = ?",
        [(*_read_job(one), name) for name, one in changed.items()],
    )
    execute_many(
        connection,
        "INSERT INTO turns (job_id, generation, at_s, host) VALUES (?, ?, ?, ?)",
        [(name, changed[name].generation, at_s, changed[name].host) for name, at_s in move_to],
    )


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


Turns = Mapping[tuple[str, int], Sequence[tuple[float, str]]]
"""By (job, generation): times and primary jobs in order; "" = its own GPUs from then on."""


def read_turns_since(connection: Connection, after_s: float) -> Turns:
    """Return the changes of primary job of all allocations that were open after a time."""
    out: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for job_id, generation, at_s, primary in query(connection, _TURNS, after_s):
        out.setdefault((job_id, generation), []).append((at_s, primary))
    return out


def split_by_holder(
    ordered_s: float, ended_s: float | None, changes: Sequence[tuple[float, str]]
) -> list[tuple[float, float | None, str]]:
    """Split an allocation by the job that held its GPUs.

    Parameters
    ----------
    ordered_s, ended_s : float
        Begin and end of the allocation in seconds; ended_s None: it goes on.
    changes : sequence of (float, str)
        Changes of the primary job, in the order of time, as in `Turns`.

    Returns
    -------
    list of (float, float or None, str)
        (from, to, primary job) in the order of time; "" where the job held its own GPUs.
    """
    at = [(ordered_s, ""), *changes]
    ends = [*(max(begin, since) for (begin, _), (since, _) in itertools.pairwise(at)), ended_s]
    return [
        (begin, end, primary)
        for (begin, primary), end in zip(at, ends, strict=True)
        if end is None or end > begin
    ]
