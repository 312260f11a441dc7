"""A queue with controllers and jobs as real processes, its backup, and the jobs' own record of
what ran.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import postgres_server
import waiting
from commands import Output, call
from queues import cluster

from allocator.executors.local import LocalExecutor
from allocator.queue.queue import Queue

RUN = ("--poll", "0.1", "--policy", "greedy", "--grace", "5")


# with looks at the database that are not too many
wait_for = partial(waiting.wait_for, every_s=0.2)


class Site:
    """A queue, its backup and the jobs' own record of what ran: one line per start in `ran`."""

    def __init__(self, folder: Path, capsys: Output, url: str = "") -> None:
        self.capsys, self.url = capsys, url
        self.folder, self.queue, self.state = folder, folder / "queue.db", folder / "state"
        self.copy = folder / "backup"
        self.children: list[subprocess.Popen[str]] = []
        Queue.create(self.name, cluster()).close()

    @property
    def name(self) -> str:
        """The queue, as commands want it."""
        return self.url or str(self.queue)

    def submit(
        self,
        name: str,
        script: str = "while [ ! -e {folder}/end ]; do sleep 0.05; done",
        **more: object,
    ) -> None:
        """A job that records its start, and runs until the file `end` is there."""
        text = f'echo "{name} $ALLOCATOR_GENERATION $(ls)" >> {self.folder}/ran; '
        command = ["sh", "-c", text + script.format(folder=self.folder)]
        job = {"job_id": name, "model": "m", "total_work": 100, "max_gpus": 1, "command": command}
        with Queue(self.name) as queue:
            queue.submit(**{**job, **more})

    def words(
        self, queue: Path | None = None, state: Path | None = None, executor: str = "local"
    ) -> list[str]:
        """The call of a controller."""
        where = ("--executor", executor, "--state", str(state or self.state))
        return ["run", str(queue or self.name), *RUN, *where]

    def run(self, *more: str, state: Path | None = None) -> subprocess.Popen[str]:
        """A controller as a process of its own."""
        command = [sys.executable, "-m", "allocator", *self.words(state=state), "--every", "1"]
        command += more
        self.children.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return self.children[-1]

    def run_until(
        self,
        what: Callable[[], object],
        *more: str,
        state: Path | None = None,
        number: int = signal.SIGTERM,
    ) -> None:
        """A controller that is ended when it is so; jobs run on."""
        controller = self.run(*more, state=state)
        wait_for(what)
        self.stop(controller, number)

    def run_to_the_end(self) -> None:
        """A controller until all jobs are done."""
        (self.folder / "end").touch()
        self.run_until(lambda: set(self.states().values()) == {"done"})

    def refused(self, state: Path | None = None, executor: str = "local") -> str:
        """What a controller says that ends by itself with exit code 2: it runs in this process,
        which is quicker.
        """
        code, out, err = call(self.capsys, *self.words(None, state, executor), "--every", "1")
        assert (code, out) == (2, "") and "Traceback" not in err, err
        return err.splitlines()[-1]

    def stop(self, child: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
        """End a controller; jobs run on."""
        child.send_signal(number)
        child.communicate(timeout=waiting.PATIENCE_S)

    def ran(self) -> list[str]:
        """Every start of a job: name, generation, what its folder held."""
        path = self.folder / "ran"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []

    def states(self) -> dict[str, str]:
        with Queue(self.name) as queue:
            return {job.job_id: job.state for job in queue.jobs()}

    def rounds(self) -> int:
        with Queue(self.name) as queue:
            return len(queue.rounds())

    def adopt(self, *more: object) -> tuple[int, str, str]:
        """Exit code and words of `queue adopt`."""
        return call(self.capsys, "queue", "adopt", self.name, *more)

    def query(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a query to the database."""
        with Queue(self.name) as queue, queue.store.read() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(text)]

    def back_up(self) -> None:
        """As the documentation says, with a controller at work or without."""
        if self.url:
            postgres_server.dump(self.url, self.copy)
            return
        with (
            closing(sqlite3.connect(self.queue)) as source,
            closing(sqlite3.connect(self.copy)) as target,
        ):
            source.backup(target)

    def restore(self) -> None:
        """The queue is the backup from now on."""
        if self.url:
            postgres_server.drop(self.url)
            self.url = postgres_server.new_database()
            postgres_server.restore(self.copy, self.url)
        else:
            for name in ("", "-wal", "-shm"):
                Path(f"{self.queue}{name}").unlink(missing_ok=True)
            shutil.copy(self.copy, self.queue)
        with Queue(self.name) as queue:  # the lease is from the time of the backup
            held = queue.lease()
        wait_for(lambda: held is None or held.expires_s < time.time())

    def close(self) -> None:
        (self.folder / "end").touch()
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        for state in self.folder.glob("*state*"):
            executor = LocalExecutor(state, {"a": range(8)}, 0.0)
            fence = json.loads((state / "fence.json").read_text())["token"]
            for one in executor.ledger.known():
                executor.stop(one.job_id, one.generation, fence)
            wait_for(lambda ex=executor: all(o.phase != "running" for o in ex.observe()))
