"""Worker processes as the parent sees them.

They are started, lent to one user at a time, and killed with all processes that they started.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

from allocator.solvers.isolation.child_processes import LAST_WORDS, Child

MOST_BYTES = 1 << 29  # of a message; text that is taken for the size of one has more
USES = 1000  # calls after which a worker is replaced, because solver libraries leak memory


class ProtocolError(Exception):
    """What was received is not a valid message."""


class Worker(Child):
    """One child process with its channel, a multiprocessing connection, and its lifeline."""

    def __init__(self, module: str, paths: tuple[str, ...] = ()) -> None:
        self.channel, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        self.version = ""
        self.ready = False
        self.uses = 0
        self.born = time.monotonic()
        ends = theirs.fileno(), lifeline
        try:
            super().__init__(
                "worker",
                "allocator.solvers.isolation.worker",
                module,
                *map(str, ends),
                environment={"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1")},
                paths=paths,
                pass_fds=ends,
            )
        except BaseException:
            self._close_ends()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    def wait_ready(self, deadline: float) -> str:
        """Wait until the back end is loaded; return '' or what went wrong.

        Raises TimeoutError after the deadline (time.monotonic), and the errors of `receive`.
        """
        if self.ready:
            return ""
        if not self.channel.poll(
            None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        ):
            raise TimeoutError("the deadline passed")
        message = self.receive()
        if not (
            isinstance(message, tuple) and len(message) == 2 and message[0] in ("ready", "failed")
        ):
            return "the worker did not introduce itself"
        if message[0] == "failed":
            return str(message[1])
        self.ready = True
        self.version = str(message[1])
        return ""

    def receive(self) -> Any:
        """Return the next message.

        Raises EOFError and OSError if the process has ended, and ProtocolError.
        """
        data = self.channel.recv_bytes(MOST_BYTES)
        try:
            return pickle.loads(data)
        except Exception as error:
            raise ProtocolError(f"a message that cannot be read: {error!r}") from error

    @contextlib.contextmanager
    def killed_at(self, deadline: float) -> Iterator[None]:
        """Kill the processes at the deadline (time.monotonic) if the block has not ended by then.

        Whatever waits for the process then raises EOFError or OSError.
        """
        if deadline == math.inf:
            yield
            return
        timer = threading.Timer(deadline - time.monotonic(), self._kill_group)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def fate(self) -> str:
        """Return how the process ended, with the end of its standard error.

        It waits a moment for the process to end.
        """
        self.wait(0.2)
        words = self.printed().strip()[-LAST_WORDS:]
        return f"{self.how_it_ended()}: {words}" if words else self.how_it_ended()

    def forget(self) -> None:
        """Close this process's ends.

        The worker then ends, unless another process holds copies of them.
        """
        self._close_ends()
        super().forget()

    def _close_ends(self) -> None:
        self.channel.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        self._lifeline = -1


class WorkerPool:
    """Idle workers by module and paths.

    The pool may be used from several threads. A forked child starts with an empty pool.
    """

    def __init__(self, idle: int = 2) -> None:
        self._most = idle
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, tuple[str, ...]], list[Worker]] = {}
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def take(self, module: str, paths: tuple[str, ...]) -> Worker:
        """Return an idle worker that still runs, or a new one."""
        while True:
            with self._lock:
                waiting = self._idle.get((module, paths), [])
                worker = waiting.pop() if waiting else None
            if worker is None:
                return Worker(module, paths)
            if worker.alive():
                return worker
            worker.kill()

    def give(self, module: str, paths: tuple[str, ...], worker: Worker) -> None:
        """Return an idle worker to the pool, or end it if it is surplus or worn out."""
        with self._lock:
            waiting = self._idle.setdefault((module, paths), [])
            if len(waiting) < self._most and worker.uses < USES:
                waiting.append(worker)
                return
        worker.kill()

    def close(self) -> None:
        """End all idle workers."""
        with self._lock:
            workers = [w for waiting in self._idle.values() for w in waiting]
            self._idle.clear()
        for worker in workers:
            worker.kill()

    def _forget(self) -> None:
        """In a forked child, close the copies of the workers' descriptors.

        The workers belong to the parent.
        """
        self._lock = threading.Lock()
        for waiting in self._idle.values():
            for worker in waiting:
                worker.forget()
        self._idle = {}
