"""Allocations of jobs: the starts and stops that a controller orders.

The module `observations` records what executors report about allocations. An allocation goes
through the phases

    ordered -> running -> stopping -> stopped

and may end in each of them as finished, failed or lost.

GPUs count as used until the end of their allocation is recorded, and a start is ordered only if it
fits next to all used GPUs. So no GPU is promised twice, in whatever order things happen. The GPUs
of two colocated jobs count once, as those of the primary job.

Colocated jobs start on shared GPUs, on their own GPUs, or not yet. What is wanted of a job includes
its primary jobs (`want_host`; "" means its own GPUs). They may have fewer GPUs together than the
secondary job, which holds the others itself. Only these rules start jobs together:

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

Every function works inside one transaction of its caller and may be repeated. Functions that write
check the fencing token first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.domain.problem import split_names
from allocator.loop.executor import JOBS_PER_GPU, ColocatedAllocation, NodePart, Order
from allocator.queue import cluster_tables, lease
from allocator.queue.database.rows import PART, execute_many, named_rows, query, query_of
from allocator.queue.database.schema import OPEN
from allocator.queue.holdings import (
    Held,
    NodeSpace,
    held,
    parse_parts,
    read_others,
    read_secondaries,
    write,
)

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
        primaries = [member for member in wanted if member is not None and member.place == me.place]
        if not all(
            member.job_id in self.started
            or (member.is_wanted and not member.host and member.job_id not in self.secondary)
            for member in primaries
        ):
            return None
        own_gpus = me.want_gpus - sum(member.want_gpus for member in primaries)
        return StartPlacement(own_gpus, tuple(member.job_id for member in primaries))

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


class Allocation(NamedTuple):
    """GPUs that were given to one job, known by (job_id, generation).

    `host` names the primary jobs on whose GPUs this job runs, as shared_with of jobs.csv; it is ""
    where the job holds its own GPUs. `nodes` is the text of holdings.py; "" where the pool has no
    nodes. Work is in the job's unit. `running_s` and `observed_s` are the times of the first and of
    the latest observation, None before that.
    """

    job_id: str
    generation: int
    pool: str
    gpus: int
    gpu_type: str
    phase: str
    work_at_start: float
    host: str
    nodes: str
    running_s: float | None
    observed_s: float | None
    work_done: float
    detail: str

    @property
    def key(self) -> tuple[str, int]:
        """Its job and its generation."""
        return self.job_id, self.generation

    @property
    def parts(self) -> tuple[NodePart, ...]:
        """Its GPUs by node."""
        return parse_parts(self.nodes)


_COLUMNS = ", ".join(f"a.{name}" for name in Allocation._fields)
_JOINED = "FROM allocations a JOIN jobs j ON j.job_id = a.job_id"
# statements that run at every poll of the controller, built once; phases are written out and not
# bound, because only then the databases use the indexes of open allocations
_OPEN_ONES = (
    f"SELECT {_COLUMNS} {_JOINED} WHERE a.phase IN {OPEN} AND a.phase IN ({{names}}) ORDER BY j.seq"
)
_HELD = f"SELECT {_COLUMNS} FROM allocations a WHERE a.phase IN {OPEN}"
_HELD_OF = f"{_HELD} AND a.job_id IN ({{names}})"
_STARTS = (
    "SELECT a.job_id, a.generation, a.pool, a.gpus, a.gpu_type, a.work_at_start, j.command,"
    " j.environment, j.want_environment, j.workdir, j.first_generation, a.nodes "
    f"{_JOINED} WHERE a.phase IN {OPEN} AND a.phase = ? ORDER BY a.host <> '', j.seq"
)
_SETTINGS = (
    f"SELECT a.job_id, a.generation, j.want_environment {_JOINED} "
    f"WHERE a.phase IN {OPEN} AND a.phase = 'running'"
)
_STOPPING = f"SELECT job_id FROM allocations WHERE phase IN {OPEN} AND phase = 'stopping'"
_UNWANTED = (
    "SELECT a.job_id FROM allocations a JOIN jobs j ON j.job_id = a.job_id"
    f" WHERE a.phase IN {OPEN} AND a.phase IN ('ordered', 'running') AND (j.request <> ''"
    " OR j.want_pool <> a.pool OR j.want_gpus <> a.gpus OR j.want_nodes <> a.nodes"
    " OR a.generation < j.want_generation)"
)
_COUNT_RESIZE = (
    "UPDATE jobs SET resizes = resizes + 1, version = version + 1"
    " WHERE want_pool <> '' AND request = '' AND job_id = ?"
)
_STOP = (
    "UPDATE allocations SET phase = 'stopping', stop_ordered_s = ?"
    f" WHERE phase IN {OPEN} AND phase IN ('ordered', 'running') AND job_id = ?"
)
_START = (
    "UPDATE jobs SET state = 'running', generation = generation + 1, retry_at_s = NULL, "
    "version = version + 1, updated_s = ? WHERE job_id = ?"
)
# with the pool and the GPUs that are wanted of the job
_OPEN = (
    "INSERT INTO allocations (job_id, generation, pool, gpus, gpu_type, phase, ordered_s, "
    "work_at_start, nodes, held_gpus, memory_gb) SELECT j.job_id, j.generation, j.want_pool, "
    "j.want_gpus, p.gpu_type, 'ordered', ?, j.remaining_work, j.want_nodes, j.want_gpus, "
    "j.want_memory_gb FROM jobs j JOIN pools p ON p.pool = j.want_pool WHERE j.job_id = ?"
)
_DOWN = "SELECT node FROM nodes WHERE state = 'down'"


class _WantingJob(NamedTuple):
    """A job that wants GPUs and holds none."""

    job_id: str
    want_pool: str
    want_gpus: int
    want_host: str
    want_nodes: str
    cpus_per_gpu: float | None
    host_memory_gb_per_gpu: float | None


_WANTING = (
    f"SELECT {', '.join(_WantingJob._fields)} FROM jobs"
    " WHERE state IN ('queued', 'paused') AND want_gpus > 0"
    " AND (retry_at_s IS NULL OR retry_at_s <= ?) ORDER BY seq"
)


def list_open_allocations(connection: Connection, phases: Sequence[str] = OPEN) -> list[Allocation]:
    """Return the allocations in these phases, in the order of submission of their jobs."""
    return list(named_rows(Allocation, query_of(connection, _OPEN_ONES, phases)))


def read_held(
    connection: Connection, names: Collection[str] | None = None
) -> dict[str, Allocation]:
    """Return the open allocations by job.

    `names` restricts them to these jobs; it is ignored if there are many of them.
    """
    rows = (
        query(connection, _HELD)
        if names is None or len(names) > PART
        else query_of(connection, _HELD_OF, list(names))
    )
    return {allocation.job_id: allocation for allocation in named_rows(Allocation, rows)}


def list_starts(connection: Connection, token: int, phase: str = "ordered") -> list[Order]:
    """Return the order of every allocation of a phase.

    The executor is given it again if need be. Primary jobs come before secondary jobs.

    Parameters
    ----------
    token : int
        Fencing token of the controller.
    phase : str
        "ordered": not yet seen running. "running": running as far as the queue knows.
    """
    rows = query(connection, _STARTS, phase)
    beside = find_colocated_jobs(connection) if rows else {}
    return [
        Order(
            job_id,
            generation,
            token,
            pool,
            gpus,
            gpu_type,
            work,
            tuple(json.loads(command)),
            json.loads(environment) | json.loads(wanted or "{}"),
            workdir,
            beside.get(job_id, ()),
            int(first),
            parse_parts(nodes),
        )
        for (
            job_id,
            generation,
            pool,
            gpus,
            gpu_type,
            work,
            command,
            environment,
            wanted,
            workdir,
            first,
            nodes,
        ) in rows
    ]


@lru_cache
def _settings_of(environment: str, is_colocated: bool) -> Mapping[str, str]:
    """Return the settings of a job by what it was told; most jobs have the same."""
    settings: dict[str, str] = json.loads(environment or "{}")
    settings.pop(JOBS_PER_GPU, None)
    return settings | ({JOBS_PER_GPU: "2"} if is_colocated else {})


def read_wanted_settings(
    connection: Connection,
) -> dict[tuple[str, int], Mapping[str, str] | None]:
    """Return the settings with which running jobs are wanted to run, by (job, generation).

    A job counts as colocated from the moment at which the start of the other job is ordered until
    the end of one of the two is recorded. While another job on its GPUs is stopping, its settings
    are None: that job still needs the memory that the present settings leave to it.
    """
    others = read_others(connection)
    stopping = {row[0] for row in query(connection, _STOPPING)} if others else set()
    return {
        (name, generation): _settings_of(environment, name in others)
        if stopping.isdisjoint(others.get(name, ()))
        else None
        for name, generation, environment in query(connection, _SETTINGS)
    }


def order_stops(connection: Connection, token: int, now_s: float) -> list[Allocation]:
    """Order the stop of every allocation that is no longer wanted of its job.

    An allocation that is ordered but was never seen running is stopped in the same way, because its
    start may be under way.

    Returns
    -------
    list of Allocation
        All allocations that are stopping now, with those that were ordered to stop earlier. The
        executor is given each of them, once more if need be.

    Raises
    ------
    LeaseLost
        If the token is not the current one.
    """
    lease.check(connection, token)
    unwanted = query(connection, _UNWANTED)
    execute_many(connection, _COUNT_RESIZE, unwanted)
    execute_many(connection, _STOP, [(now_s, *job) for job in unwanted])
    return list_open_allocations(connection, ("stopping",))


def find_on_down_nodes(connection: Connection) -> list[Allocation]:
    """Return the open allocations that have GPUs of a node that is down."""
    down = {row[0] for row in query(connection, _DOWN)}
    if not down:
        return []
    return [
        allocation
        for allocation in list_open_allocations(connection)
        if not down.isdisjoint(part.node for part in allocation.parts)
    ]


def order_stops_on_down_nodes(connection: Connection, token: int, now_s: float) -> list[Allocation]:
    """Order the stop of every open allocation on a node that is down, and return all of them.

    Their jobs have lost what they hold there. Raises LeaseLost if the token is not the current one.
    """
    lease.check(connection, token)
    on_down_nodes = find_on_down_nodes(connection)
    execute_many(connection, _STOP, [(now_s, allocation.job_id) for allocation in on_down_nodes])
    return on_down_nodes


def order_starts(
    connection: Connection, token: int, now_s: float, capacity: Mapping[str, int]
) -> list[Order]:
    """Order the start of every job that wants GPUs, holds none, and fits next to all used GPUs.

    Jobs start in the order of submission, primary jobs before secondary jobs.

    Parameters
    ----------
    token : int
        Fencing token of the controller.
    now_s : float
        Time of the orders, in seconds on the clock of the queue.
    capacity : mapping of str to int
        GPUs of pools that are available right now, where they are fewer than the queue says.

    Returns
    -------
    list of Order
        All starts that are ordered now. The executor is given each of them, once more if need be.

    Raises
    ------
    LeaseLost
        If the token is not the current one.
    """
    lease.check(connection, token)
    rows = list(named_rows(_WantingJob, query(connection, _WANTING, now_s)))
    colocations = Colocations.of(connection)
    new_colocations = colocations.find_exchanges()
    if rows:
        space = _FreeGpus(connection, capacity)
        jobs_to_start = []
        for job in sorted(rows, key=lambda job: job.want_host != ""):  # primary jobs first
            placement = colocations.placement(job.job_id, job.want_gpus, job.want_host)
            if placement is None or not space.take(job, placement):
                continue
            if placement.primaries:
                new_colocations.append((placement.primaries, job.job_id))
            elif placement.secondary:
                new_colocations.append(((job.job_id,), placement.secondary))
            else:
                colocations.started.add(job.job_id)
            jobs_to_start.append(job)
        starting = [(now_s, job.job_id) for job in jobs_to_start]
        execute_many(connection, _START, starting)
        execute_many(connection, _OPEN, starting)
    join(connection, new_colocations, now_s)
    return list_starts(connection, token)


class _FreeGpus:
    """Free GPUs of pools, and of nodes where pools have nodes."""

    def __init__(self, connection: Connection, capacity: Mapping[str, int]) -> None:
        self._of_pools = count_free_gpus(connection, capacity)
        self._with_nodes = cluster_tables.read_pools_with_nodes(connection)
        self._of_nodes = NodeSpace(connection)
        self._most_primaries = cluster_tables.read_max_primaries(connection)

    def take(self, job: _WantingJob, placement: StartPlacement) -> bool:
        """Take the GPUs that the job would hold itself if they are free.

        In a pool with nodes a round has to name those of all GPUs that the job wants, and no job
        runs on the GPUs of several jobs. The shares of a GPU are counted by the nodes, as a job
        with a share adds no GPU to a pool if another one has its GPU already.
        """
        gpus = placement.own_gpus
        if placement.primaries:
            needed = cluster_tables.count_needed_primaries(len(placement.primaries), gpus)
            if needed > (1 if job.want_pool in self._with_nodes else self._most_primaries):
                return False  # the settings changed since the round
        if not gpus:
            return True
        is_on_nodes = job.want_pool in self._with_nodes
        new = self._of_nodes.count_new_gpus(job.want_nodes) if is_on_nodes else gpus
        each = (job.cpus_per_gpu, job.host_memory_gb_per_gpu)
        fits = new <= self._of_pools.get(job.want_pool, 0) and (
            not is_on_nodes or (job.want_nodes != "" and self._of_nodes.take(job.want_nodes, *each))
        )
        if fits:
            self._of_pools[job.want_pool] -= new
        return fits


def count_free_gpus(connection: Connection, capacity: Mapping[str, int]) -> dict[str, int]:
    """Count the GPUs of each pool that no allocation holds; negative where machines were lost.

    GPUs of nodes count in any state, as jobs on a drained node still hold theirs.
    """
    held = cluster_tables.held(connection)
    return {
        pool: min(int(number), capacity.get(pool, int(number))) - held.get(pool, 0)
        for pool, number in query(connection, cluster_tables.PRESENT)
    }
