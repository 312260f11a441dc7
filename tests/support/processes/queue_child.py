"""What the processes of tests/queue/test_queue_crashes.py do: ROLE QUEUE NAME NUMBER.

    submit   submits NAME-0, NAME-1 ... NUMBER of them, by key; prints each name when it was
             acknowledged
    die      the same, but is killed (-9) after a number of statements that depends on NAME,
             wherever that is
    verbs    holds, releases, cancels and retries shared jobs at random
    claim    wants the shared jobs as a controller, takes the lease from the others again and again,
             orders starts

Run as a program it loads what they need once and then forks one for every line of standard input:
FILE ROLE QUEUE NAME NUMBER. FILE gets what that one prints; standard output gets "ended CODE" of
each. It never opens a queue itself: SQLite does not stand being forked.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from typing import Any

from queues import observe
from sqlalchemy import Connection

from allocator.errors import AllocatorError
from allocator.loop.executor import Observation, Phase
from allocator.queue import allocations, lease, round_journal
from allocator.queue.database import rows
from allocator.queue.errors import LeaseLost
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 10, "max_gpus": 8}


def submit(queue: Queue, name: str, number: int) -> None:
    for i in range(number):
        done = queue.submit(key=f"{name}-{i}", job_id=f"{name}-{i}", **JOB)
        print(done.job_id, flush=True)


def die(queue: Queue, name: str, number: int) -> None:
    """Also between COMMIT and the acknowledgement, and in the middle of a transaction."""
    from sqlalchemy import event

    left = random.Random(name).randrange(1, 40)

    @event.listens_for(queue.store.engine, "before_cursor_execute")
    @event.listens_for(queue.store.engine, "after_cursor_execute")
    def count(*_args: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listens_for(queue.store.engine, "commit")(count)
    driver = rows._driver

    def counted(connection: Connection) -> Any:
        count()
        return driver(connection)

    rows._driver = counted
    submit(queue, name, number)


def verbs(queue: Queue, name: str, number: int) -> None:
    chance = random.Random(name)
    for _ in range(number):
        verb = chance.choice((queue.hold, queue.release, queue.cancel, queue.retry))
        try:
            verb(f"shared-{chance.randrange(6)}")
        except AllocatorError as error:
            assert error.exit_code == 2, error


def claim(queue: Queue, name: str, number: int) -> None:
    chance = random.Random(name)
    for _ in range(number):
        try:
            now = time.time()
            with queue.store.write() as connection:
                held = lease.take(connection, name, 0.02, now)
            if held is None:
                time.sleep(0.01)
                continue
            for _ in range(chance.randrange(1, 4)):
                wanted = {
                    f"shared-{i}": round_journal.Want("a", chance.randrange(1, 5))
                    for i in range(6)
                    if chance.random() < 0.5
                }
                with queue.store.write() as connection:
                    round_journal.append(
                        connection,
                        held.token,
                        round_journal.JournalRound(now, name, None, "test", "ok"),
                        wanted,
                    )
                with queue.store.write() as connection:
                    allocations.order_stops(connection, held.token, now)
                    allocations.order_starts(connection, held.token, now, {})
                with queue.store.write() as connection:
                    for one in allocations.list_open_allocations(connection):
                        phase = {"ordered": "running", "stopping": "stopped"}.get(
                            one.phase, "running"
                        )
                        observe(
                            connection,
                            held.token,
                            [Observation(one.job_id, one.generation, now, Phase(phase), 0.0)],
                        )
        except LeaseLost:
            print("lost", flush=True)


ROLES = {"submit": submit, "die": die, "verbs": verbs, "claim": claim}


def act(file: str, role: str, name: str, own: str, number: str) -> int:
    """Play one role with standard output and error in a file; the exit code."""
    target = os.open(file, os.O_WRONLY | os.O_CREAT)
    os.dup2(target, 1)
    os.dup2(target, 2)
    try:
        with Queue(name) as queue:
            ROLES[role](queue, own, int(number))
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()


def serve() -> None:
    """See above."""
    children = []
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            os._exit(act(*line.rstrip("\n").split("\t")))
        children.append(process)
    for process in children:
        print("ended", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


if __name__ == "__main__":
    serve()
