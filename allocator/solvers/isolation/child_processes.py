"""Child processes in separate process groups, each of which is killed as a whole from outside."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from allocator.solvers.isolation.scratch_folders import Scratch

ROOT = str(Path(__file__).resolve().parents[3])
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment of a child whose libraries use one thread each."""
LOOK_S = 0.05  # seconds between two checks of a child that writes nothing
LAST_WORDS = 2000  # characters of a child's standard error that are passed on


class Child:
    """Run a Python module in another process.

    The process leads a session and a process group, and keeps temporary files in a folder that is
    removed with it.

    Parameters
    ----------
    kind
        One of scratch_folders.KINDS, part of the name of its folder.
    module, *args
        What `python -m` runs, and the arguments.
    stdin, stdout, stderr
        As for subprocess.Popen; without `stderr`, a file that `printed` reads.
    environment
        Variables in addition to those of this process.
    paths
        Folders in which modules are looked for first.
    pass_fds
        File descriptors that the process inherits.

    Attributes
    ----------
    folder
        Its temporary files.
    cpu_s, peak_mb
        CPU seconds and largest memory of the process and the children it waited for; 0 until it
        has ended.
    """

    def __init__(
        self,
        kind: str,
        module: str,
        *args: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int | None = None,
        environment: dict[str, str] | None = None,
        paths: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.cpu_s = self.peak_mb = 0.0
        self._scratch = Scratch(kind)
        self.folder = self._scratch.path
        # closed with the child
        self._capture = tempfile.TemporaryFile(mode="a+b", buffering=0)  # noqa: SIM115
        known = [path for path in sys.path if path and path != ROOT]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *args],
                stdin=stdin,
                stdout=stdout,
                stderr=self._capture if stderr is None else stderr,
                pass_fds=pass_fds,
                start_new_session=True,
                env={
                    **os.environ,
                    **(environment or {}),
                    "PYTHONPATH": os.pathsep.join([*paths, ROOT, *known]),
                    "TMPDIR": self.folder,
                },
            )
        except BaseException:
            self._capture.close()
            self._scratch.remove()
            raise

    @property
    def pid(self) -> int:
        """Process id, which is also that of the process group."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether the process runs."""
        self._collect(os.WNOHANG)
        return self.process.returncode is None

    def read(self, source: IO[bytes] | None) -> Iterator[bytes]:
        """Yield what the process writes to a pipe until it ends, and b"" while it writes nothing.

        Its own children may keep the pipe open, so only the end of the process itself counts.
        """
        assert source is not None
        is_open = True
        while True:
            alive = self.alive()
            if is_open and select.select([source], [], [], LOOK_S if alive else 0.0)[0]:
                piece = os.read(source.fileno(), 1 << 16)
                is_open = bool(piece)
                yield piece
            elif not alive:
                return
            else:
                if not is_open:
                    time.sleep(0.01)
                yield b""

    def printed(self) -> str:
        """Return what is in the file of its standard error."""
        try:
            capture = self._capture.fileno()
            return os.pread(capture, os.fstat(capture).st_size, 0).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def how_it_ended(self) -> str:
        """Return its exit code or signal in words."""
        code = self.process.returncode
        if code is None:
            return "still running"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
            return f"killed by signal {-code}"
        return f"exit code {code}"

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, at most so long."""
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.01)

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.alive():
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the whole process group at once, and remove its temporary files."""
        if self.process.returncode is None:
            self._kill_group()
            self._collect(0)
        self._scratch.remove()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends: a forked child does not own the children of its parent."""
        for end in (self.process.stdin, self.process.stdout, self.process.stderr, self._capture):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()
        self._scratch.forget()

    def _collect(self, options: int) -> None:
        if self.process.returncode is not None:
            return
        pid, status, used = os.wait4(self.pid, options)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = used.ru_utime + used.ru_stime
            self.peak_mb = used.ru_maxrss / 1024.0
            self._kill_group()  # at once: the number of an empty group is given to others

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def end_with_parent() -> None:
    """Kill the process group when the parent is gone, in a child whose standard input is a pipe."""
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    while os.read(0, 1 << 12):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)
