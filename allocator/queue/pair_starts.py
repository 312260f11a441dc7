"""Where colocated jobs start: on shared GPUs, on their own GPUs, or not yet.

What is wanted of a job includes its primary jobs (`want_host`; "" means its own GPUs). They may
have fewer GPUs together than the secondary job, which holds the others itself. Only these rules
start jobs together:

    1. A secondary job starts on the GPUs of its primary jobs once each of them runs where it is
       wanted, no other job is on their GPUs, and the other GPUs that it wants are free.
    2. A primary job joins its secondary job on the GPUs where the secondary job already runs as
       wanted. From then on the primary job holds these GPUs. A secondary job with several primary
       jobs, or with GPUs besides theirs, is joined by none: a round has to start it anew.
    3. A secondary job gets its own GPUs in place of those of a primary job that is not wanted in
       the same place, if enough are free that no other job needs.
    4. If two jobs run and only their roles are to be exchanged, the two exchange roles and neither
       moves.

When one of two jobs ends, the other one holds the GPUs (holdings.py). A want is met by an open
allocation with that pool and size that is not older than `want_generation`. So a secondary job that
has to leave for other GPUs of the same pool wants a newer allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.domain.schema.colocation import split_names
from allocator.loop.executor import ColocatedAllocation
from allocator.queue.database.bulk import query, query_of
from allocator.queue.database.schema import OPEN
from allocator.queue.holdings import Held, held, read_others, read_secondaries, write

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
    "SELECT a.job_id, a.generation, a.phase, a.gpus, a.host <> '' FROM allocations a"
    f" WHERE phase IN {OPEN} AND job_id IN ({{names}})"
)


class StartPlacement(NamedTuple):
    """Where a job may start.

    It holds `own_gpus` itself, and runs on the GPUs of `primaries`, or on those where its secondary
    job runs already ("": there is none).
    """

    own_gpus: int
    primaries: tuple[str, ...] = ()
    secondary: str = ""


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
    def place(self) -> tuple[str, str] | None:
        """The pool and the nodes that are wanted of the job; None: nothing is wanted."""
        fine = self.request == "" and self.state in ("queued", "paused", "running")
        return (self.want_pool, self.want_nodes) if fine and self.want_gpus else None

    @property
    def is_wanted(self) -> bool:
        """Whether the open allocation meets the want."""
        return (
            self.phase in ("ordered", "running")
            and self.place == (self.pool, self.nodes)
            and self.want_gpus == self.gpus
            and self.generation >= self.want_generation
        )


@dataclass
class Colocations:
    """All jobs that are wanted in a colocation.

    `wanted_secondary` has the wanted secondary job by primary job, and `secondary` the recorded one
    of open allocations. `started` has the jobs whose start is being ordered now, on GPUs of their
    own.
    """

    members: dict[str, _ColocatedMember] = field(default_factory=dict)
    wanted_secondary: dict[str, str] = field(default_factory=dict)  # by primary job
    secondary: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, connection: Connection) -> Colocations:
        """Read the wanted and the open colocations from the database."""
        wanted = {
            primary: str(secondary)
            for secondary, primaries in query(connection, _WANTED)
            for primary in split_names(primaries)
        }
        if not wanted:
            return cls()
        members = {
            row[0]: _ColocatedMember(*row)
            for row in query_of(connection, _MEMBERS, sorted({*wanted, *wanted.values()}))
        }
        return cls(members, wanted, read_secondaries(connection))

    def placement(self, job_id: str, want_gpus: int, want_host: str) -> StartPlacement | None:
        """Return where a job that holds nothing may start, None = not yet."""
        if want_host:
            return self._place_secondary(self.members[job_id])
        secondary = self.members.get(self.wanted_secondary.get(job_id, ""))
        if secondary is None or not secondary.is_wanted:
            return StartPlacement(want_gpus)
        can_join = (
            secondary.want_gpus == want_gpus
            and secondary.phase == "running"
            and not secondary.host
            and secondary.job_id not in self.secondary
        )
        return StartPlacement(0, secondary=secondary.job_id) if can_join else None

    def _place_secondary(self, me: _ColocatedMember) -> StartPlacement | None:
        wanted = [self.members.get(name) for name in split_names(me.want_host)]
        primaries = [one for one in wanted if one is not None and one.place == me.place]
        if not all(
            one.job_id in self.started
            or (one.is_wanted and not one.host and one.job_id not in self.secondary)
            for one in primaries
        ):
            return None
        own_gpus = me.want_gpus - sum(one.want_gpus for one in primaries)
        return StartPlacement(own_gpus, tuple(one.job_id for one in primaries))

    def find_exchanges(self) -> list[tuple[tuple[str, ...], str]]:
        """Return the colocations that exchange roles, as (primary jobs, secondary) afterwards."""
        return [
            ((m.want_host,), m.job_id)
            for m in self.members.values()
            if m.want_host
            and m.is_wanted
            and self.secondary.get(m.job_id) == m.want_host
            and self.members[m.want_host].is_wanted
            and self.members[m.want_host].gpus == m.gpus
        ]


def find_colocated_jobs(connection: Connection) -> dict[str, tuple[ColocatedAllocation, ...]]:
    """Return the colocated jobs of every open allocation that has some, by job.

    A secondary job always needs its primary jobs. A primary job of as many GPUs has an entry only
    once its secondary job was seen to run, and does not need it: until then the secondary job comes
    to the primary job. Other primary jobs have none: they never start on GPUs of their secondary
    job.
    """
    others = read_others(connection)
    rows = query_of(connection, _COLOCATED, sorted(others)) if others else []
    known = {job_id: tuple(rest) for job_id, *rest in rows}
    out: dict[str, tuple[ColocatedAllocation, ...]] = {}
    for job_id, (generation, phase, gpus, shared) in known.items():
        if not shared:
            continue
        primaries = [name for name in others[job_id] if name in known]
        out[job_id] = tuple(ColocatedAllocation(name, known[name][0], True) for name in primaries)
        for name in primaries:
            if phase != "ordered" and known[name][2] == gpus:
                out[name] = (ColocatedAllocation(job_id, generation, False),)
    return out


def join(
    connection: Connection, colocations: Sequence[tuple[Sequence[str], str]], at_s: float
) -> None:
    """Let secondary jobs run on the GPUs of their primary jobs from at_s on.

    Parameters
    ----------
    colocations : sequence of (sequence of str, str)
        Names of the primary jobs and of the secondary job. All have an open allocation, or one that
        is ordered in the same transaction.
    at_s : float
        Time of the change in seconds.
    """
    names = {name for primaries, secondary in colocations for name in (*primaries, secondary)}
    before: dict[str, Held] = held(connection, names) if names else {}
    now = dict(before)
    for primaries, secondary in colocations:
        for primary in primaries:
            now[primary] = now[primary].join((), at_s)
        now[secondary] = now[secondary].join([now[name] for name in primaries], at_s)
    # write primary jobs first: no job ever has two secondary jobs, not even for a moment
    first = [name for name in names if now[name].host == ""]
    for some in (first, [name for name in names if name not in first]):
        write(
            connection,
            {name: now[name] for name in some},
            [now[name].turn(at_s) for name in some if now[name].host != before[name].host],
        )
