"""Jobs with their open allocations, and which job holds the GPUs of colocated jobs.

They are read together, changed as values, and written back together.

Of two jobs on the same GPUs, the *primary job* holds the GPUs and is billed for them, and the
*secondary job* runs on them. A secondary job may have several primary jobs, and GPUs of its own
besides theirs. When the allocation of one of two jobs ends, the other job holds the GPUs from that
moment on. Both are recorded in the same transaction, so exactly one open allocation holds a GPU at
any time. The table `turns` has every such change, for bills and histories.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.domain.problem import Ints
from allocator.domain.schema.colocation import join_names, split_names
from allocator.queue.database.rows import execute_many, insert, query, query_of
from allocator.queue.database.schema import OPEN, allocations


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
