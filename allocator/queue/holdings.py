"""Jobs with their open allocations: what they hold, their states, and what they leave free.

They are read together, changed as values, and written back together.

Of two jobs on the same GPUs, the *primary job* holds the GPUs and is billed for them, and the
*secondary job* runs on them. A secondary job may have several primary jobs, and GPUs of its own
besides theirs. When the allocation of one of two jobs ends, the other job holds the GPUs from that
moment on. Both are recorded in the same transaction, so exactly one open allocation holds a GPU at
any time. The table `turns` has every such change, for bills and histories.

Pure functions say what each command and each end of an allocation changes in the state of a job:

    queued      the job has never run
    running     an allocation of the job is open
    paused      the job has run and holds nothing
    held        its owner holds it back; it gets nothing
    done        all its work is done
    cancelled   its owner cancelled it; "retry" brings it back
    failed      it failed too often and is parked; "retry" brings it back

A job with an open allocation stays "running" until the end of the allocation is known. What its
owner asks for in the meantime is in `request` ("hold", "cancel") and takes effect then. So a job is
in one state at any time, and a job in any state other than running holds no GPUs.

The nodes of an allocation are stored as the JSON list that a job of plan.json has in `nodes`,
sorted by node, so that equal places are equal texts. The text is empty where the pool has no nodes,
and where the nodes of a running job are not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.domain.problem import Floats, Ints, Placements, Problem, join_names, split_names
from allocator.loop.executor import NodePart
from allocator.objects import Json, Record
from allocator.queue.database.rows import execute_many, insert, query, query_of
from allocator.queue.database.schema import OPEN, allocations
from allocator.queue.errors import Refused


class Held(NamedTuple):
    """A job and its open allocation.

    `received` is a JSON object: seconds held by GPU type. `host` names the primary jobs on whose
    GPUs the job runs, as shared_with of jobs.csv, "" where it holds its own; `held_gpus` are those
    that it holds itself. `since_s` is the time up to which the job was credited for what it holds;
    None means that nothing was credited yet, and it counts from `running_s`.
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
    held_gpus: int
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

        It gets the seconds on its GPU type, and the GPU-seconds of the GPUs that it holds itself.
        """
        since = self.running_s if self.since_s is None else self.since_s
        if since is None or to_s <= since:
            return self
        had = json.loads(self.received)
        seconds = to_s - since
        received = json.dumps(
            {**had, self.gpu_type: had.get(self.gpu_type, 0.0) + seconds}, sort_keys=True
        )
        attained = self.attained_gpu_s + seconds * self.held_gpus
        return self._replace(attained_gpu_s=attained, received=received, since_s=to_s)

    def join(self, primaries: Iterable[Held], at_s: float) -> Held:
        """Return the job on the GPUs of these jobs from at_s on; none: it holds all GPUs itself."""
        primaries = list(primaries)
        return self.credit(at_s)._replace(
            host=join_names(primary.job_id for primary in primaries),
            held_gpus=self.gpus - sum(primary.gpus for primary in primaries),
        )

    def outlive(self, primary: Held, at_s: float) -> Held:
        """Return the job as it goes on from at_s on, when one of its primary jobs has ended."""
        names = [name for name in split_names(self.host) if name != primary.job_id]
        return self.credit(at_s)._replace(
            host=join_names(names), held_gpus=self.held_gpus + primary.gpus
        )

    def turn(self, at_s: float) -> Turn:
        """Return the row of `turns` that says who holds its GPUs from at_s on."""
        return Turn(self.job_id, self.generation, at_s, self.host, self.held_gpus)


class Turn(NamedTuple):
    """A row of `turns`: the primary jobs of an allocation, and its own GPUs, from at_s on."""

    job_id: str
    generation: int
    at_s: float
    host: str
    held_gpus: int


_OF_JOB = tuple(name for name in Held._fields if name not in allocations.c)
_OF_ALLOCATION = tuple(
    name for name in Held._fields if name in allocations.c and not allocations.c[name].primary_key
)
_read_allocation = attrgetter(*_OF_ALLOCATION)
_read_job = attrgetter(*_OF_JOB)
# statements that run at every poll of the controller, built once
_HELD = (
    f"SELECT {', '.join(f'j.{name}' if name in _OF_JOB else f'a.{name}' for name in Held._fields)}"
    f" FROM allocations a JOIN jobs j ON j.job_id = a.job_id WHERE a.phase IN {OPEN} AND a.job_id"
    " IN ({names})"
)
_SECONDARIES = f"SELECT host, job_id FROM allocations WHERE phase IN {OPEN} AND host <> ''"


def read_secondaries(connection: Connection) -> dict[str, str]:
    """Return the secondary job of every primary job whose GPUs are shared."""
    return {
        primary: secondary
        for primaries, secondary in query(connection, _SECONDARIES)
        for primary in split_names(primaries)
    }


def read_others(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Return the other jobs on the GPUs of each colocated job: its secondary or primary jobs.

    Primary jobs are in the order of their names.
    """
    out: dict[str, tuple[str, ...]] = {}
    for primary, secondary in sorted(read_secondaries(connection).items()):
        out[primary] = (secondary,)
        out[secondary] = (*out.get(secondary, ()), primary)
    return out


def name_primaries(names: Sequence[str], secondary: Ints) -> list[str]:
    """Return the primary jobs of each job as they are stored, from the secondary job of each."""
    out = [""] * len(names)
    for h in np.flatnonzero(secondary >= 0).tolist():
        j = secondary[h]
        out[j] = join_names([*split_names(out[j]), names[h]])
    return out


def held(connection: Connection, names: Collection[str]) -> dict[str, Held]:
    """Return the jobs with these names that have an open allocation."""
    return {row[0]: Held._make(row) for row in query_of(connection, _HELD, sorted(names))}


def write(connection: Connection, changed: Mapping[str, Held], turns: Sequence[Turn]) -> None:
    """Write all changes at once.

    Parameters
    ----------
    changed : mapping of str to Held
        The changed jobs by name.
    turns : sequence of Turn
        Changes of primary jobs, in the order of time.
    """
    execute_many(
        connection,
        f"UPDATE allocations SET {_set(_OF_ALLOCATION)} WHERE job_id = ? AND generation = ?",
        [(*_read_allocation(job), name, job.generation) for name, job in changed.items()],
    )
    execute_many(
        connection,
        f"UPDATE jobs SET {_set(_OF_JOB)}, version = version + 1 WHERE job_id = ?",
        [(*_read_job(job), name) for name, job in changed.items()],
    )
    insert(connection, "turns", [turn._asdict() for turn in turns])


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


Changes = dict[str, Any]
NOTHING: Changes = {"want_pool": "", "want_gpus": 0, "want_host": "", "want_nodes": ""}
FRESH: Changes = {"failures": 0, "retry_at_s": None}
WAITING, NOW = "waiting", "now"  # stand for the state of a job that waits, and for the time
MOVES: Mapping[str, Mapping[str, Changes]] = {
    "hold": {
        "queued paused held": {"state": "held", **NOTHING},
        "running hold": {"request": "hold"},
    },
    "release": {"held": {"state": WAITING}, "queued paused running hold": {"request": ""}},
    "retry": {
        "failed cancelled": {"state": WAITING, "finished_s": None, "park_reason": "", **FRESH},
        "queued paused running hold": {"park_reason": "", **FRESH},
    },
    "cancel": {
        "queued paused held failed": {"state": "cancelled", "finished_s": NOW, **NOTHING},
        "running hold cancel": {"request": "cancel"},
        "cancelled": {},
    },
}
"""What each command changes, by states; "hold" and "cancel" are those of running jobs of which that
was asked. A command is refused in all other states."""
REFUSED = {"hold": "held", "release": "released", "retry": "retried", "cancel": "cancelled"}
WHY = {
    "done": "it is done",
    "cancelled": 'it is cancelled; "retry" brings it back',
    "failed": 'it is parked; "retry" brings it back',
    "held": 'it is held; "release" it first',
    "cancel": "it is being cancelled",
}


@dataclass(frozen=True)
class Retries:
    """The pauses after failures.

    After the n-th failure in a row a job waits first_s x factor^(n-1) seconds, at most most_s.
    After `most` failures in a row it is parked. An allocation that did some work and stopped as
    ordered ends the row.
    """

    most: int = 5
    first_s: float = 30.0
    factor: float = 2.0
    most_s: float = 3600.0

    def wait_s(self, failures: int) -> float:
        """Return the seconds between this failure in a row (1, 2 ...) and the next try."""
        return float(min(self.most_s, self.first_s * self.factor ** min(failures - 1, 60)))


def waiting_state(job: Any) -> str:
    """Return the state of the job while it waits for GPUs."""
    return "queued" if job.first_started_s is None else "paused"


def move(verb: str, job: Any, now_s: float) -> Changes:
    """Return what a command changes of a job: nothing if it was given before. Raises Refused."""
    stands_for = {WAITING: waiting_state(job), NOW: now_s}
    for states, changes in MOVES[verb].items():
        if (job.request or job.state) in states.split():
            after = {name: stands_for.get(value, value) for name, value in changes.items()}
            return {name: value for name, value in after.items() if getattr(job, name) != value}
    why = WHY.get(job.request or job.state, f"it is {job.state}")
    raise Refused(f'job "{job.job_id}" cannot be {REFUSED[verb]}: {why}')


VERBS = {verb: partial(move, verb) for verb in MOVES}


def state_after_end(
    job: Held, phase: str, at_s: float, worked: bool, detail: str, retries: Retries
) -> Changes:
    """Return the changes of a job whose open allocation has ended.

    Parameters
    ----------
    job : Held
        The job before the end.
    phase : str
        How the allocation ended: stopped, finished, failed or lost. A lost machine does not count
        as a failure of the job.
    at_s : float
        Time of the end in seconds.
    worked : bool
        The allocation did some work.
    detail : str
        Reason of the end, for a parked job.
    retries : Retries
        The pauses after failures.
    """
    if phase == "finished":
        over = {"state": "done", "finished_s": at_s, "remaining_work": 0.0, "request": ""}
        return {**over, **FRESH, **NOTHING}
    changes: Changes = {"state": waiting_state(job), "request": ""}
    if phase == "failed":
        failures = job.failures + 1
        changes |= {"failures": failures, "retry_at_s": at_s + retries.wait_s(failures)}
        if failures >= retries.most:
            words = f"; the last time: {detail}" if detail else ""
            reason = f"failed {failures} times in a row{words}"
            changes |= {"state": "failed", "retry_at_s": None, "park_reason": reason, **NOTHING}
    elif phase == "stopped" and worked and job.failures:
        changes |= FRESH
    if job.request == "cancel":
        over = {"state": "cancelled", "finished_s": at_s, "park_reason": "", "retry_at_s": None}
        changes |= {**over, **NOTHING}
    elif job.request == "hold" and changes["state"] != "failed":
        changes |= {"state": "held", **NOTHING}
    return changes


TOLERANCE = 1e-6  # CPUs, GB and shares of a GPU that sums may miss by
_UP = "SELECT node, gpus, cpus, host_memory_gb FROM nodes WHERE state = 'up'"
_TAKEN = (
    "SELECT a.nodes, j.cpus_per_gpu, j.host_memory_gb_per_gpu FROM allocations a JOIN jobs j"
    f" ON j.job_id = a.job_id WHERE a.phase IN {OPEN} AND a.host = '' AND a.nodes <> ''"
)


def format_parts(parts: Iterable[Record]) -> str:
    """Return the nodes of a job, as in plan.json, as the text that is stored; "" without nodes."""
    ordered = sorted(parts, key=lambda part: (part["node"], part.get("gpu", -1)))
    return json.dumps(ordered) if ordered else ""


def format_places(problem: Problem, places: Placements) -> list[str]:
    """Return the nodes of each job as the text that is stored, (J,)."""
    parts: list[list[Json]] = [[] for _ in problem.jobs.job_id]
    columns = (places.job, places.node, places.gpus, places.gpu)
    for j, n, gpus, gpu in zip(*(column.tolist() for column in columns), strict=True):
        share = {"gpu": gpu, "fraction": float(problem.jobs.gpu_fraction[j])} if gpu >= 0 else {}
        parts[j].append({"node": problem.nodes.node[n], "gpus": gpus, **share})
    return [format_parts(part) if part else "" for part in parts]


@lru_cache(maxsize=1 << 15)
def parse_parts(text: str) -> tuple[NodePart, ...]:
    """Return the parts of a stored text; the texts of running jobs are read again and again."""
    return tuple(NodePart(**part) for part in json.loads(text)) if text else ()


def count_gpus(texts: Iterable[str]) -> dict[str, int]:
    """Count the GPUs that allocations hold on each node; a GPU of which they have shares is one."""
    parts = [part for text in texts for part in parse_parts(text)]
    shared = {(part.node, part.gpu) for part in parts if part.gpu is not None}
    used: dict[str, int] = {}
    for node, gpus in [
        *((part.node, part.gpus) for part in parts if part.gpu is None),
        *((node, 1) for node, _ in shared),
    ]:
        used[node] = used.get(node, 0) + gpus
    return used


class NodeSpace:
    """Free GPUs, CPUs and GB of memory of the up nodes next to all open allocations."""

    def __init__(self, connection: Connection) -> None:
        self._free = {
            node: np.array([math.inf if amount is None else float(amount) for amount in amounts])
            for node, *amounts in query(connection, _UP)
        }
        # free share of each GPU that is given in shares, by node and number
        self._shares: dict[tuple[str, int | None], float] = {}
        for text, cpus, memory_gb in query(connection, _TAKEN):
            self._take(parse_parts(text), cpus, memory_gb)

    def count_new_gpus(self, nodes: str) -> int:
        """Count the GPUs that a job would take here of which no other job has a share."""
        return sum(map(self._count_new, parse_parts(nodes)))

    def take(self, nodes: str, cpus: float | None, memory_gb: float | None) -> bool:
        """Take these nodes for a job that needs so much for each of its GPUs, if they are free.

        Returns whether they were free. Nodes that are not up, or not there, never are.
        """
        parts = parse_parts(nodes)
        fits = all(
            part.node in self._free
            and (self._needs(part, cpus, memory_gb) <= self._free[part.node] + TOLERANCE).all()
            and (part.fraction or 0.0) <= self._share(part) + TOLERANCE
            for part in parts
        )
        if fits:
            self._take(parts, cpus, memory_gb)
        return fits

    def _share(self, part: NodePart) -> float:
        return self._shares.get((part.node, part.gpu), 1.0)

    def _count_new(self, part: NodePart) -> int:
        return 0 if (part.node, part.gpu) in self._shares else part.gpus

    def _needs(self, part: NodePart, cpus: float | None, memory_gb: float | None) -> Floats:
        each = part.gpus * np.array([cpus or 0.0, memory_gb or 0.0])
        return np.array([self._count_new(part), *each])

    def _take(self, parts: Iterable[NodePart], cpus: float | None, memory_gb: float | None) -> None:
        for part in parts:
            if part.node in self._free:
                self._free[part.node] -= self._needs(part, cpus, memory_gb)
                if part.gpu is not None:
                    left = self._share(part) - (part.fraction or 0.0)
                    self._shares[part.node, part.gpu] = left
