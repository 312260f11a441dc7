"""Where colocated jobs start: on shared GPUs, on their own GPUs, or not yet.

What is wanted of a job includes its primary job (`want_host`; "" means its own GPUs). Only these
rules start two jobs together:

    1. A secondary job starts on the GPUs of its primary job once the primary job runs where it is
       wanted and no other job is on its GPUs.
    2. A primary job joins its secondary job on the GPUs where the secondary job already runs as
       wanted. From then on the primary job holds these GPUs.
    3. A secondary job whose primary job is not wanted in the same place gets its own GPUs, if
       enough are free that no other job needs.
    4. If both run and only their roles are to be exchanged, the two exchange roles and neither
       moves.

When one of the two ends, the other one holds the GPUs (holdings.py). A want is met by an open
allocation with that pool and size that is not older than `want_generation`. So a secondary job that
has to leave for other GPUs of the same pool wants a newer allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.queue.database.bulk import query, query_of
from allocator.queue.database.schema import OPEN
from allocator.queue.holdings import Held, held, read_secondaries, write

# CROSS JOIN: SQLite begins with the colocations, which are few
_WANTED = "SELECT job_id, want_host FROM jobs WHERE want_host <> ''"
_MEMBERS = (
    "SELECT j.job_id, j.state, j.request, j.want_pool, j.want_gpus, j.want_nodes, j.want_host,"
    " j.want_generation, COALESCE(a.generation, 0), COALESCE(a.phase, ''), COALESCE(a.pool, ''),"
    " COALESCE(a.gpus, 0), COALESCE(a.nodes, ''), COALESCE(a.host, '') FROM jobs j"
    f" LEFT JOIN allocations a ON a.job_id = j.job_id AND a.phase IN {OPEN}"
    " WHERE j.job_id IN ({names})"
)
_COLOCATED = (
    "SELECT g.job_id, g.generation, g.phase, h.job_id, h.generation FROM allocations g CROSS JOIN"
    f" allocations h WHERE g.phase IN {OPEN} AND g.host <> '' AND h.job_id = g.host AND h.phase IN"
    f" {OPEN}"
)


class StartPlacement(Enum):
    """Where a job may start."""

    OWN_GPUS = "on GPUs of its own"
    PRIMARY = "on those of its primary job"
    SECONDARY = "on those of its secondary job"
    WAIT = "not yet"


class ColocatedJob(NamedTuple):
    """The other allocation on the same GPUs. needed: the start has to wait for it."""

    job_id: str
    generation: int
    needed: bool


class _ColocatedMember(NamedTuple):
    """A job that is wanted in a colocation, with its open allocation; generation 0: it has none."""

    job_id: str
    state: str
    request: str
    want_pool: str
    want_gpus: int
    want_nodes: str
    want_host: str
    want_generation: int
    generation: int
    phase: str
    pool: str
    gpus: int
    nodes: str
    host: str

    @property
    def wanted(self) -> tuple[str, int, str] | None:
        """The pool, GPUs and nodes that are wanted of the job; None: nothing."""
        fine = self.request == "" and self.state in ("queued", "paused", "running")
        wanted = self.want_pool, self.want_gpus, self.want_nodes
        return wanted if fine and self.want_gpus else None

    @property
    def is_wanted(self) -> bool:
        """Whether the open allocation meets the want."""
        return (
            self.phase in ("ordered", "running")
            and self.wanted == (self.pool, self.gpus, self.nodes)
            and self.generation >= self.want_generation
        )


@dataclass
class Colocations:
    """All jobs that are wanted in a colocation.

    `wanted_secondary` has the wanted secondary job by primary job, and `secondary` the recorded one
    of open allocations. `started` has the primary jobs whose start is being ordered now, on GPUs of
    their own.
    """

    members: dict[str, _ColocatedMember] = field(default_factory=dict)
    wanted_secondary: dict[str, str] = field(default_factory=dict)  # by primary job
    secondary: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, connection: Connection) -> Colocations:
        """Read the wanted and the open colocations from the database."""
        wanted = {str(primary): str(secondary) for secondary, primary in query(connection, _WANTED)}
        if not wanted:
            return cls()
        members = {
            row[0]: _ColocatedMember(*row)
            for row in query_of(connection, _MEMBERS, sorted({*wanted, *wanted.values()}))
        }
        return cls(members, wanted, read_secondaries(connection))

    def placement(self, job_id: str, want_host: str) -> StartPlacement:
        """Return where a job that holds nothing may start."""
        if want_host:
            return self._place_secondary(job_id, want_host)
        secondary = self.members.get(self.wanted_secondary.get(job_id, ""))
        if secondary is None or not secondary.is_wanted:
            return StartPlacement.OWN_GPUS
        alone = (
            secondary.phase == "running"
            and not secondary.host
            and secondary.job_id not in self.secondary
        )
        return StartPlacement.SECONDARY if alone else StartPlacement.WAIT

    def _place_secondary(self, job_id: str, want_host: str) -> StartPlacement:
        me = self.members[job_id]
        primary = self.members.get(want_host)
        if primary is None or primary.wanted != me.wanted:
            return StartPlacement.OWN_GPUS
        if want_host in self.started:
            return StartPlacement.PRIMARY
        return (
            StartPlacement.PRIMARY
            if primary.is_wanted and not primary.host and want_host not in self.secondary
            else StartPlacement.WAIT
        )

    def find_exchanges(self) -> list[tuple[str, str]]:
        """Return the colocations that exchange roles, as (primary, secondary) afterwards."""
        return [
            (m.want_host, m.job_id)
            for m in self.members.values()
            if m.want_host
            and m.is_wanted
            and self.secondary.get(m.job_id) == m.want_host
            and self.members[m.want_host].is_wanted
        ]


def find_colocated_jobs(connection: Connection) -> dict[str, ColocatedJob]:
    """Return the colocated job of every open allocation that has one, by job.

    A secondary job always needs its primary job. A primary job has an entry only once its secondary
    job was seen to run, and does not need it: until then the secondary job comes to the primary
    job.
    """
    out: dict[str, ColocatedJob] = {}
    for secondary, secondary_generation, phase, primary, primary_generation in query(
        connection, _COLOCATED
    ):
        out[secondary] = ColocatedJob(primary, primary_generation, True)
        if phase != "ordered":
            out[primary] = ColocatedJob(secondary, secondary_generation, False)
    return out


def join(connection: Connection, pairs: Sequence[tuple[str, str]], at_s: float) -> None:
    """Let the secondary job of each pair run on the GPUs of the primary job from at_s on.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Names of the primary and the secondary job. Both have an open allocation, or one that is
        ordered in the same transaction.
    at_s : float
        Time of the change in seconds.
    """
    names = {name for pair in pairs for name in pair}
    before: dict[str, Held] = held(connection, names) if names else {}
    now = dict(before)
    for primary, secondary in pairs:
        now[primary], now[secondary] = (
            now[primary].move_to("", at_s),
            now[secondary].move_to(primary, at_s),
        )
    # write primary jobs first: no job ever has two secondary jobs, not even for a moment
    first = [name for name in names if now[name].host == ""]
    for some in (first, [name for name in names if name not in first]):
        write(
            connection,
            {name: now[name] for name in some},
            [(name, at_s) for name in some if now[name].host != before[name].host],
        )
