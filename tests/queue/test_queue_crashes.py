"""Several processes on one queue, and some that are killed: nothing acknowledged is lost,
nothing happens twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from examples import series
from queues import BACKENDS, empty

from allocator.queue.database.schema import OPEN, allocations, jobs, rounds
from allocator.queue.jobs.verbs import list_jobs
from allocator.queue.queue import Queue


class Children:
    """Processes of queue_child.py."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        self.codes: dict[str, int] = {}
        self.server = subprocess.Popen(
            [
                sys.executable,
                str(
                    Path(__file__).resolve().parents[1] / "support" / "processes" / "queue_child.py"
                ),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, role: str, queue: str, name: str, number: int) -> tuple[str, int]:
        """Start one; returns the file with what it prints, and its process."""
        assert self.server.stdin is not None
        self.number += 1
        file = str(self.folder / f"said-{self.number}")
        self.server.stdin.write("\t".join((file, role, queue, name, str(number))) + "\n")
        self.server.stdin.flush()
        while True:
            words = self._line()
            if words[0] == file and words[1] != "ended":
                return file, int(words[1])

    def ended(self, file: str, code: int = 0) -> list[str]:
        """The words it printed, once it has ended."""
        while file not in self.codes:
            self._line()
        said = Path(file).read_text(encoding="utf-8")
        assert self.codes[file] == code, said
        return said.split()

    def _line(self) -> list[str]:
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        words = line.split()
        assert len(words) >= 2, f"the server of the child processes said {line!r}"
        if words[1] == "ended":
            self.codes[words[0]] = int(words[2])
        return words


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    children = Children(tmp_path_factory.mktemp("children"))
    yield children
    children.server.kill()
    children.server.communicate()


def made(name: str) -> Queue:
    from queues import cluster

    return Queue.create(name, cluster())


def check(queue: Queue) -> None:
    """What holds at any time: one state per job, one open allocation at most, no pool beyond its
    GPUs, no hole in the journal, generations without holes."""
    with queue.store.read() as connection:
        held = Counter(
            connection.execute(
                sa.select(allocations.c.job_id).where(allocations.c.phase.in_(OPEN))
            ).scalars()
        )
        running = set(
            connection.execute(sa.select(jobs.c.job_id).where(jobs.c.state == "running")).scalars()
        )
        assert set(held) == running and set(held.values()) <= {1}
        used = connection.execute(
            sa.select(sa.func.coalesce(sa.func.sum(allocations.c.gpus), 0)).where(
                allocations.c.phase.in_(OPEN), allocations.c.pool == "a"
            )
        ).scalar_one()
        assert used <= 8
        numbers = list(
            connection.execute(sa.select(rounds.c.number).order_by(rounds.c.number)).scalars()
        )
        assert numbers == list(range(1, len(numbers) + 1))
        for job in list_jobs(connection):
            mine = list(
                connection.execute(
                    sa.select(allocations.c.generation)
                    .where(allocations.c.job_id == job.job_id)
                    .order_by(allocations.c.generation)
                ).scalars()
            )
            assert mine == list(range(1, job.generation + 1))


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_many_processes_submit_at_once(backend: str, tmp_path: Path, child: Children) -> None:
    """Four processes submit 15 jobs each, two of them the same 15: 45 jobs, every acknowledged
    one there, once.
    """
    with empty(backend, tmp_path) as name, made(name) as queue:
        children = [child("submit", name, who, 15) for who in ("x", "y", "z", "z")]
        told = [word for file, _ in children for word in child.ended(file)]
        there = [job.job_id for job in queue.jobs()]
        assert len(told) == 60 and len(there) == 45 and set(there) == set(told)
        assert sorted(job.seq for job in queue.jobs()) == list(range(1, 46))


@pytest.mark.parametrize("backend", BACKENDS)
def test_submitters_that_are_killed_lose_nothing_they_were_told(
    backend: str, tmp_path: Path, child: Children
) -> None:
    """kill -9 after 1 to 39 statements, four at a time; what was acknowledged is there, what is
    there is whole, and the same submissions again complete the rest without doubling any."""
    with empty(backend, tmp_path) as name, made(name) as queue:
        names = [f"d{n}" for n in range(8)]
        told: list[str] = []
        for four in (names[:4], names[4:]):
            children = [child("die", name, who, 6) for who in four]
            told += [word for file, _ in children for word in child.ended(file, -signal.SIGKILL)]
        there = [job.job_id for job in queue.jobs()]
        assert set(told) <= set(there) and len(set(there)) == len(there) < 48
        for who in names:
            for i in range(6):
                queue.submit(
                    key=f"{who}-{i}", job_id=f"{who}-{i}", model="m", total_work=10, max_gpus=8
                )
        assert sorted(job.job_id for job in queue.jobs()) == sorted(
            f"{who}-{i}" for who in names for i in range(6)
        )


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_owners_and_rival_controllers_at_once(
    backend: str, tmp_path: Path, child: Children
) -> None:
    """Two processes hold and cancel, three take the lease from each other and order starts and
    stops: the invariants hold all the while."""
    with empty(backend, tmp_path) as name, made(name) as queue:
        queue.submit_many(
            [
                {"job_id": f"shared-{i}", "model": "m", "total_work": 10, "max_gpus": 8}
                for i in range(6)
            ]
        )
        children = [child("verbs", name, f"v{n}", 40) for n in range(2)]
        children += [child("claim", name, f"c{n}", 12) for n in range(3)]
        for _ in range(20):
            check(queue)
            time.sleep(0.02)
        for file, _ in children:
            child.ended(file)
        check(queue)
        assert len(queue.rounds()) > 5 and queue.lease() is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_writer_that_is_killed_lets_the_others_go_on(
    backend: str, tmp_path: Path, child: Children
) -> None:
    """A process dies in the middle of a transaction: its lock goes with it, and so does what it
    wrote.
    """
    with empty(backend, tmp_path) as name, made(name) as queue:
        file, process = child("write", name, "", 0)
        while not Path(file).exists() or Path(file).read_text() != "in\n":
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        child.ended(file, -signal.SIGKILL)
        assert (
            queue.pools() == {"a": 8, "b": 4}
            and queue.submit(job_id="j", model="m", total_work=1, max_gpus=1).new
        )
