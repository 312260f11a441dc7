"""Several processes on one queue, and some that are killed: nothing acknowledged is lost,
nothing happens twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from examples import series
from queues import BACKENDS, cluster, empty

from allocator.queue.database.schema import rounds
from allocator.queue.jobs.verbs import history, list_jobs
from allocator.queue.queue import Queue

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "processes" / "queue_child.py"


class Children:
    """Processes of queue_child.py that act at the same time; each is written ROLE NAME NUMBER."""

    def __init__(self, folder: Path, queue: str, *roles: str) -> None:
        self.files = [str(folder / f"said-{role}-{n}") for n, role in enumerate(roles)]
        command = [sys.executable, str(PROGRAM)]
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.server.stdin is not None
        for file, text in zip(self.files, roles, strict=True):
            role, name, number = text.split()
            self.server.stdin.write("\t".join((file, role, queue, name, number)) + "\n")
        self.server.stdin.flush()

    def said(self, code: int = 0) -> list[str]:
        """What all printed, once they have ended with this exit code."""
        out, _ = self.server.communicate()
        words = [line.split() for line in out.splitlines()]
        texts = [Path(file).read_text(encoding="utf-8") for file in self.files]
        ended = [int(one[-1]) for one in words if "ended" in one]
        assert ended == [code] * len(self.files), texts
        return " ".join(texts).split()


def made(name: str) -> Queue:
    return Queue.create(name, cluster())


def check(queue: Queue) -> None:
    """What holds at any time: one open allocation of each job that runs, no pool beyond its GPUs,
    no hole in the journal, generations without holes."""
    with queue.store.read() as connection:
        numbers = list(
            connection.execute(sa.select(rounds.c.number).order_by(rounds.c.number)).scalars()
        )
        assert numbers == list(range(1, len(numbers) + 1))
        used = 0
        for job in list_jobs(connection):
            mine = history(connection, job.job_id)
            assert [one["generation"] for one in mine] == list(range(1, job.generation + 1))
            held = [one["gpus"] for one in mine if one["ended_s"] is None]
            assert len(held) == (job.state == "running")
            used += sum(held)
        assert used <= 8


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_submitters_that_are_killed_lose_nothing_they_were_told(
    backend: str, tmp_path: Path
) -> None:
    """kill -9 after 1 to 39 statements, all at once; what was acknowledged is there, what is
    there is whole, and the same submissions again complete the rest without doubling any."""
    with empty(backend, tmp_path) as name, made(name) as queue:
        names = [f"d{n}" for n in range(8)]
        told = Children(tmp_path, name, *(f"die {who} 6" for who in names)).said(-signal.SIGKILL)
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
def test_owners_and_rival_controllers_at_once(backend: str, tmp_path: Path) -> None:
    """Two processes hold and cancel, three take the lease from each other and order starts and
    stops: the invariants hold all the while."""
    with empty(backend, tmp_path) as name, made(name) as queue:
        queue.submit_many(
            [
                {"job_id": f"shared-{i}", "model": "m", "total_work": 10, "max_gpus": 8}
                for i in range(6)
            ]
        )
        owners, rivals = (f"verbs v{n} 40" for n in range(2)), (f"claim c{n} 12" for n in range(3))
        children = Children(tmp_path, name, *owners, *rivals)
        for _ in range(20):
            check(queue)
            time.sleep(0.02)
        children.said()
        check(queue)
        assert len(queue.rounds()) > 5 and queue.lease() is not None
