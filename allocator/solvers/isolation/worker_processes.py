"""Worker processes as the parent sees them: started, handed out one user at a time, killed with
all they started.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from allocator.solvers.isolation.channel import Channel
from allocator.solvers.isolation.scratch_folders import Scratch

ROOT = str(Path(__file__).resolve().parents[3])
SPOKEN = 2000  # characters of a dead worker's last words that are passed on
USES = 1000  # calls after which a worker is replaced: solver libraries leak


class Worker:
    """One child process with its channel, lifeline, captured output and temporary folder."""

    def __init__(self, module: str, paths: tuple[str, ...] = ()) -> None:
        self._scratch = Scratch("worker")
        self.folder = self._scratch.path
        # closed with the worker
        self._capture = tempfile.TemporaryFile(mode="a+b", buffering=0)  # noqa: SIM115
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        lifeline, self._lifeline = os.pipe()
        self.version = ""
        self.ready = False
        self.uses = 0
        self.born = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "allocator.solvers.isolation.worker",
                    module,
                    str(theirs.fileno()),
                    str(lifeline),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._capture,
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,
                env=_environment(paths, self.folder),
            )
        except BaseException:
            self.forget()
            self._scratch.remove()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    @property
    def pid(self) -> int:
        """Process id, which is also that of the worker's process group."""
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, deadline: float) -> str:
        """Wait until the back end is loaded; '' or what went wrong. Raises TimeoutError, and
        like Channel.receive.
        """
        if self.ready:
            return ""
        message = self.channel.receive(deadline)
        if not (
            isinstance(message, tuple) and len(message) == 2 and message[0] in ("ready", "failed")
        ):
            return "the worker did not introduce itself"
        if message[0] == "failed":
            return str(message[1])
        self.ready, self.version = True, str(message[1])
        return ""

    def printed(self) -> str:
        """What the worker wrote to its standard error (and output, if asked to keep it) since
        the last request.
        """
        try:
            return os.pread(
                self._capture.fileno(), os.fstat(self._capture.fileno()).st_size, 0
            ).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def fate(self) -> str:
        """How the process ended, with its last words; waits a moment for it to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        code = self._process.returncode
        if code is None:
            how = "still running"
        elif code < 0:
            how = (
                f"killed by {signal.Signals(-code).name}"
                if -code in set(signal.Signals)
                else f"signal {-code}"
            )
        else:
            how = f"exit code {code}"
        words = self.printed().strip()[-SPOKEN:]
        return f"{how}: {words}" if words else how

    def kill(self) -> None:
        """End the whole process group at once, and remove what it left in its temporary folder."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.remove()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends; the worker dies of it, unless another process holds copies."""
        self.channel.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        self._lifeline = -1
        self._capture.close()
        self._scratch.forget()


def _environment(paths: tuple[str, ...], folder: str) -> dict[str, str]:
    """The caller's environment; modules are found where this process finds them, and `paths`
    first.
    """
    env = dict(os.environ)
    known = [p for p in sys.path if p]
    env["PYTHONPATH"] = os.pathsep.join([*paths, ROOT, *(p for p in known if p != ROOT)])
    env["TMPDIR"] = folder
    env.setdefault("OPENBLAS_NUM_THREADS", "1")
    return env


class WorkerPool:
    """Idle workers by (module, paths). Thread-safe; a forked child starts with an empty one."""

    def __init__(self, idle: int = 2) -> None:
        self._most = idle
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, tuple[str, ...]], list[Worker]] = {}
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def take(self, module: str, paths: tuple[str, ...]) -> Worker:
        """An idle worker that still lives, or a new one."""
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
        """Put a worker back that has nothing to do; surplus and worn-out ones are ended."""
        with self._lock:
            waiting = self._idle.setdefault((module, paths), [])
            if len(waiting) < self._most and worker.uses < USES:
                waiting.append(worker)
                return
        worker.kill()

    def prewarm(self, module: str, paths: tuple[str, ...]) -> None:
        """Start a worker without waiting for it, unless one is idle."""
        with self._lock:
            if self._idle.get((module, paths)):
                return
        self.give(module, paths, Worker(module, paths))

    def close(self) -> None:
        """End all idle workers."""
        with self._lock:
            workers = [w for waiting in self._idle.values() for w in waiting]
            self._idle.clear()
        for worker in workers:
            worker.kill()

    def _forget(self) -> None:
        """In a forked child: the workers belong to the parent; only the copies of their
        descriptors are closed.
        """
        self._lock = threading.Lock()
        for waiting in self._idle.values():
            for worker in waiting:
                worker.forget()
        self._idle = {}
