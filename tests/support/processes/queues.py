"""Queues for tests: empty ones on SQLite and on PostgreSQL, a small cluster, and an executor's
word.

    @pytest.fixture(params=BACKENDS)
    def queue(request, tmp_path): with fresh(request.param, tmp_path) as queue: yield queue
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import postgres_server
from sqlalchemy import Connection

from allocator.domain.snapshot import Snapshot
from allocator.queue import allocations, cluster_tables, lease, observations, round_journal
from allocator.queue.database import identity
from allocator.queue.database.connection import create_queue, open_queue
from allocator.queue.database.schema import SCHEMA, SCHEMA_KEY, metadata
from allocator.queue.holdings import Retries, format_parts
from allocator.queue.queue import Queue

BACKENDS = ("sqlite", "postgresql")
NOW = 1_700_000_000.0


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Seen:
    """An observation."""

    job_id: str
    generation: int
    at_s: float
    phase: str
    work_done: float = 0.0
    detail: str = ""
    reported: Mapping[str, float] = field(default_factory=dict)


def cluster(jobs: str = "", **more: str) -> Snapshot:
    """Two pools (8 GPUs "a" of type A, 4 GPUs "b" of type B) and two models (m on both types, n on
    A only); jobs: rows of jobs.csv without a header: job_id, model, submitted_s, remaining_work,
    max_gpus, state, pool, gpus."""
    from allocator.io.snapshots import parse_snapshot

    files = {
        "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus,state,pool,gpus\n" + jobs,
        "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na,A,8,2.5\nb,B,4,1\n",
        "rates.csv": (
            "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,A,2,1.9\nm,A,4,3.5\nm,B,1,0.5\nn,A,1,2\n"
        ),
        "tenants.csv": "tenant,weight,max_gpus\nred,2,6\nblue,1,\n",
        "config.toml": f"now_s = {NOW}\ninterval_s = 60\n",
        **more,
    }
    return parse_snapshot("small", {name: text.encode() for name, text in files.items()})


@contextmanager
def place(backend: str, folder: Path) -> Iterator[str]:
    """The name of a queue that does not exist yet."""
    if backend == "sqlite":
        yield str(folder / "queue.db")
        return
    url = postgres_server.new_database()
    try:
        yield url
    finally:
        postgres_server.drop(url)


@cache
def _shared() -> str:
    """URL of one database for all tests that only need an empty queue: making one takes half a
    second.
    """
    url = postgres_server.new_database()
    create_queue(url)[0].close()
    return url


@cache
def _empty_file() -> Path:
    """An SQLite queue with its tables and nothing in them."""
    path = Path(tempfile.mkdtemp(prefix="queue-")) / "queue.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    create_queue(path)[0].close()
    return path


@contextmanager
def empty(backend: str, folder: Path) -> Iterator[str]:
    """The name of a queue with nothing in it; making its tables would take longer. One at a time
    on PostgreSQL.
    """
    if backend == "sqlite":
        yield str(shutil.copy(_empty_file(), folder / "queue.db"))
        return
    store = open_queue(_shared())
    with store.write() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
        cluster_tables.put_meta(connection, SCHEMA_KEY, SCHEMA)
        identity.make_id(connection)
    store.close()
    yield _shared()


@contextmanager
def fresh(
    backend: str,
    folder: Path,
    source: Snapshot | None = None,
    clock: Callable[[], float] | None = None,
) -> Iterator[Queue]:
    """A queue with the small cluster, without jobs unless `source` has some."""
    with (
        empty(backend, folder) as name,
        Queue.create(
            name, source if source is not None else cluster(), clock=clock or Clock()
        ) as queue,
    ):
        yield queue


def build_command(queue: str, every_s: float, executor: str, *more: str) -> list[str]:
    """Return the words of a controller as a process of its own."""
    words = ("-m", "allocator", "run", queue, "--every", str(every_s), "--executor", executor)
    return [sys.executable, *words, *more]


def observe(
    connection: Connection,
    token: int,
    seen: Sequence[Any],
    retries: Retries = Retries(),  # noqa: B008
) -> list[observations.Ended]:
    """Record observations; those of allocations that have ended or never existed change nothing."""
    known = allocations.read_held(connection)
    given = [
        (one, mark)
        for one in seen
        if (mark := known.get(one.job_id)) is not None and mark.generation == one.generation
    ]
    return observations.record(connection, token, given, retries, history=True)


class Controller:
    """The verbs of a controller, each in a transaction of its own."""

    def __init__(self, queue: Queue, holder: str = "test", ttl_s: float = 1e6) -> None:
        self.queue = queue
        with queue.store.write() as connection:
            held = lease.take(connection, holder, ttl_s, queue.clock())
        assert held is not None
        self.lease = held

    def want(self, **wanted: Sequence[Any]) -> int:
        """A round that wants exactly this: pool, GPUs, and perhaps the primary job and whether
        anew."""
        entry = round_journal.JournalRound(self.queue.clock(), "digest", None, "test", "optimal")
        with self.queue.store.write() as connection:
            return round_journal.append(
                connection,
                self.lease.token,
                entry,
                {n: round_journal.Want(*w) for n, w in wanted.items()},
            )

    def stops(self) -> list[tuple[str, int]]:
        with self.queue.store.write() as connection:
            return [
                (a.job_id, a.generation)
                for a in allocations.order_stops(connection, self.lease.token, self.queue.clock())
            ]

    def starts(self, **capacity: int) -> list[tuple[str, int]]:
        with self.queue.store.write() as connection:
            return [
                (s.job_id, s.generation)
                for s in allocations.order_starts(
                    connection, self.lease.token, self.queue.clock(), capacity
                )
            ]

    def see(self, *seen: Seen, **more: Any) -> list[observations.Ended]:
        with self.queue.store.write() as connection:
            return observe(connection, self.lease.token, seen, **more)

    def say(
        self, job_id: str, phase: str, work: float = 0.0, generation: int | None = None
    ) -> list[observations.Ended]:
        """One observation of the job's last allocation, now."""
        number = self.queue.job(job_id).generation if generation is None else generation
        return self.see(Seen(job_id, number, self.queue.clock(), phase, work))


class Story(Controller):
    """A controller and the owners of jobs, told in lines of words:

    want j=a/4 k=a/2      a round that wants this: pool/GPUs/primary jobs/anew; with
                          @n1:4,n2:0.5#0 after it on these nodes, the second part half of GPU 0
    starts a=3 -> j.1     job and generation of each start, where pool a has 3 GPUs; also `stops`
    say j running 15 -> 15
                          phase and work of its last allocation now, or of j.2; the work recorded
    wait 10               seconds
    states -> running queued
    used -> 6 0           GPUs of each pool
    nodes -> 4:j 2:k+l    GPUs of each node, and the jobs on it
    hold j                or another verb of the queue
    """

    def play(self, text: str) -> None:
        """Carry out the lines, and compare what each gives with what is behind its arrow."""
        for line in filter(str.strip, text.splitlines()):
            words, arrow, expected = line.partition("->")
            found = self._carry_out(*words.split())
            assert not arrow or found == expected.split(), f"{line.strip()}: {found}"

    def _carry_out(self, verb: str, *words: str) -> list[str]:
        match verb:
            case "want":
                named = (word.split("=") for word in words)
                self.want(**{name: as_want(text) for name, text in named})
            case "starts" | "stops":
                named = (word.split("=") for word in words)
                orders = getattr(self, verb)(**{pool: int(gpus) for pool, gpus in named})
                return [f"{name}.{number}" for name, number in orders]
            case "say":
                name, _, number = words[0].partition(".")
                work = float(words[2]) if len(words) > 2 else 0.0
                known = [job for job in self.queue.jobs() if job.job_id == name]
                self.say(name, words[1], work, int(number) if number else None)
                left = (self.queue.job(job.job_id).remaining_work for job in known)
                done = (job.remaining_work - x for job, x in zip(known, left, strict=True))
                return [f"{x:g}" for x in done if x]
            case "wait":
                self.queue.clock.now += float(words[0])  # type: ignore[attr-defined]
            case "states":
                return [job.state for job in self.queue.jobs()]
            case "used":
                with self.queue.store.read() as connection:
                    return [*map(str, cluster_tables.used(connection).values())]
            case "nodes":
                return [f"{node['used']}:{'+'.join(node['jobs'])}" for node in self.queue.nodes()]
            case _:
                getattr(self.queue, verb)(*words)
        return []


def as_want(text: str) -> tuple[Any, ...]:
    """A want, of pool/GPUs/primary jobs/anew@nodes."""
    what, _, nodes = text.partition("@")
    pool, gpus, *more = what.split("/")
    primary, anew = [*more, "", ""][:2]
    parts = [as_part(*part.split(":")) for part in nodes.split(",") if part]
    return pool, int(gpus), primary, anew == "anew", format_parts(parts)


def as_part(node: str, amount: str) -> dict[str, Any]:
    """A part of the nodes of a want: GPUs, or a share#GPU."""
    share, _, gpu = amount.partition("#")
    if not gpu:
        return {"node": node, "gpus": int(share)}
    return {"node": node, "gpus": 1, "gpu": int(gpu), "fraction": float(share)}
