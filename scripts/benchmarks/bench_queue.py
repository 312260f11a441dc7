"""Measure the CPU time of each call of the queue at a number of active jobs.

    python scripts/benchmarks/bench_queue.py [QUEUE] [--jobs N] [--repeat N] > table.md

QUEUE is an SQLite file or the URL of a PostgreSQL database. It must not exist, or be empty. The
default is a file in a temporary folder. The CPU time is that of this process, without that of a
PostgreSQL server. A busy machine changes it little; the median counts. Standard output is Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from allocator.domain.rules.snapshot_rules import validate
from allocator.io.snapshots import parse_snapshot
from allocator.loop.executor import Observation, Phase
from allocator.queue import allocations, lease, observations, round_journal
from allocator.queue.queue import Queue
from allocator.queue.snapshot import pack_snapshot


class QueueBench:
    """One queue; every call is a line of the table."""

    def __init__(self, queue: Queue, jobs: int, repeat: int) -> None:
        self.queue, self.names, self.repeat = queue, [f"job-{i:06d}" for i in range(jobs)], repeat
        self.rows: list[tuple[str, float]] = []
        with queue.store.write() as connection:
            held = lease.take(connection, "bench", 1e6, time.time())
        assert held is not None
        self.token = held.token

    def time(self, what: str, call: Callable[[], Any], repeat: int | None = None) -> Any:
        """Record the median CPU time of a call in milliseconds; return its last result."""
        took: list[float] = []
        for _ in range(repeat or self.repeat):
            begin = time.process_time()
            out = call()
            took.append(1e3 * (time.process_time() - begin))
        self.rows.append((what, statistics.median(took)))
        return out

    def write(self, call: Callable[..., Any], *args: Any) -> Any:
        """Make a call in its own transaction."""
        with self.queue.store.write() as connection:
            return call(connection, self.token, *args)

    def run(self) -> None:
        """Take the jobs from submission to their end, once."""
        job = {"model": "m", "total_work": 1e6, "max_gpus": 8}
        n, now = len(self.names), time.time()
        self.time(
            f"submit {n} jobs in one call",
            lambda: self.queue.submit_many({"job_id": name, **job} for name in self.names),
            1,
        )
        counter = iter(range(10**6))
        self.time("submit one job", lambda: self.queue.submit(job_id=f"one-{next(counter)}", **job))
        snapshot = self.time("snapshot", self.queue.snapshot)
        self.time("validate it", lambda: validate(snapshot))
        self.time("compress it for the journal", lambda: pack_snapshot(snapshot))
        entry = round_journal.JournalRound(
            now, snapshot.digest, pack_snapshot(snapshot), "bench", "optimal"
        )
        wanted = dict.fromkeys(self.names, round_journal.Want("a", 2))
        self.time(
            f"round that changes what all {n} want",
            lambda: self.write(round_journal.append, entry, wanted),
            1,
        )
        self.time(
            "round that changes nothing", lambda: self.write(round_journal.append, entry, wanted)
        )
        self.time(f"order {n} starts", lambda: self.write(allocations.order_starts, now), 1)

        def see(phase: Phase, at_s: float) -> Any:
            return self.write(
                observations.observe,
                [Observation(name, 1, now + at_s, phase, at_s) for name in self.names],
            )

        self.time(f"first sight of {n} running", lambda: see(Phase.RUNNING, 1), 1)
        clock = iter(range(2, 10**6))
        self.time(f"progress of {n} running", lambda: see(Phase.RUNNING, next(clock)))
        self.time(
            "look for stops and starts",
            lambda: (
                self.write(allocations.order_stops, now),
                self.write(allocations.order_starts, now),
            ),
        )
        self.time(f"end of {n}", lambda: see(Phase.FINISHED, 10**6), 1)
        self.time(f"list {n} jobs", self.queue.jobs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queue", nargs="?")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()
    rates = "".join(f"m,A,{k},{k**0.9}\n" for k in (1, 2, 4, 8))
    cluster = parse_snapshot(
        "bench",
        {
            "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
            "pools.csv": f"pool,gpu_type,gpus\na,A,{4 * args.jobs}\n".encode(),
            "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}".encode(),
        },
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Queue.create(args.queue or os.path.join(folder, "queue.db"), cluster) as queue,
    ):
        bench = QueueBench(queue, args.jobs, args.repeat)
        bench.run()
        kind = queue.store.engine.dialect.name
    print(
        f"{kind}, Python {platform.python_version()}, {os.cpu_count()} CPUs\n\n| call | CPU ms"
        " |\n|---|---:|"
    )
    for what, took_ms in bench.rows:
        print(f"| {what} | {took_ms:.1f} |")


if __name__ == "__main__":
    main()
