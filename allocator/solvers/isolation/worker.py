"""The child process, which loads one back end and serves requests until its parent is gone.

    python -m allocator.solvers.isolation.worker MODULE CHANNEL LIFELINE

CHANNEL and LIFELINE are inherited file descriptors: a socket for messages, and a pipe whose other
end only the parent holds. The child leads its own session. When the lifeline ends, the whole
process group is killed. Where the kernel can signal the end of a pipe, the kernel does this, so
that even a back end that never lets Python run is killed. Elsewhere a thread does it.

Messages:

- after loading: ("ready", version) or ("failed", detail);
- from the parent: ("solve", number, model, limits, deadline, hint);
- for each of these: any number of ("report", number, values or None, bound), then one
  ("answer", number, SolverResult).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from formulations.model.linear import Floats, LinearModel

POLL_S = 0.5


def main(module: str, channel_fd: int, lifeline_fd: int) -> None:
    """Serve until the parent closes the channel or is gone."""
    for fd in (channel_fd, lifeline_fd):
        os.set_inheritable(fd, False)
    _die_with_parent(lifeline_fd)
    channel: Connection[Any, Any] = Connection(channel_fd)
    try:
        backend = importlib.import_module(module)
        version = str(backend.version()) if hasattr(backend, "version") else ""
    except BaseException as error:
        channel.send(("failed", f"{module} cannot be loaded: {_describe_error(error)}"))
        return
    channel.send(("ready", version))
    while True:
        try:
            _, number, model, limits, deadline, hint = channel.recv()
        except (EOFError, OSError):
            return
        limits = dataclasses.replace(limits, time_s=max(0.0, deadline - time.monotonic()))
        channel.send(("answer", number, _serve(backend, channel, number, model, limits, hint)))


def _serve(
    backend: Any,
    channel: Connection[Any, Any],
    number: int,
    model: LinearModel,
    limits: SolveLimits,
    hint: WarmStart,
) -> SolverResult:
    """Call the back end; an exception becomes a FAILED answer, and what it prints stays here."""
    report = _reporter(channel, number)
    try:
        with _output(limits.log):
            answer: SolverResult = backend.solve(model, limits, hint, report)
    except BaseException as error:
        answer = SolverResult(Termination.FAILED, detail=_describe_error(error))
    if limits.log and isinstance(answer, SolverResult) and not answer.log:
        answer = dataclasses.replace(answer, log=_printed())
    return answer


def _reporter(channel: Connection[Any, Any], number: int) -> ReportProgress:
    def report(values: Floats | None, bound: float) -> None:
        channel.send(("report", number, values, bound))

    return report


@contextlib.contextmanager
def _output(kept: bool) -> Any:
    """Empty the capture file (descriptor 2), and send standard output there if it is kept.

    Otherwise standard output is discarded.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(2, 0)
    target = os.dup(2) if kept else os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, 1)
    os.close(target)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with contextlib.suppress(Exception):
            ctypes.CDLL(None).fflush(None)  # C and C++ libraries have separate buffers


def _printed() -> str:
    try:
        size = os.fstat(2).st_size
        return os.pread(2, size, 0).decode("utf-8", "replace")
    except OSError:
        return ""


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _die_with_parent(lifeline: int) -> None:
    threading.Thread(target=_watch, args=(lifeline, os.getppid()), daemon=True).start()
    with contextlib.suppress(Exception):
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        # F_SETSIG of Linux: the signal that the kernel sends at the end of the pipe
        set_signal = 10
        if sys.platform == "linux":
            fcntl.fcntl(lifeline, set_signal, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _watch(lifeline: int, parent: int) -> None:
    """Kill the group when the lifeline ends, or when the parent is gone.

    The lifeline may outlive the parent if another process holds a copy of it.
    """
    import select

    while os.getppid() == parent:
        ready, _, _ = select.select([lifeline], [], [], POLL_S)
        if ready:
            break
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    # Skip the clean-up of the interpreter, because solver libraries sometimes hang in it.
    os._exit(0)
