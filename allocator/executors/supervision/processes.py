"""Find and kill processes reliably (Linux: /proc).

A process is identified by its pid and its start time, because a pid alone may be given to another
process later.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """One process.

    `started` is the clock ticks from boot to its start. Together with the pid it is unique until
    the next boot.
    """

    pid: int
    state: str
    parent: int
    session: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it still runs; False: only its exit status is left."""
        return self.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """Return the process that has this pid now, or None."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # skip the name, which may hold spaces and brackets
    state, *fields = text[text.rindex(")") + 2 :].split()
    return Process(pid, state, *(int(fields[place]) for place in (0, 2, 18)))


def processes() -> Iterator[Process]:
    """Yield all visible processes of the machine."""
    for name in os.listdir(PROC):
        if name.isdigit() and (process := read_process(int(name))):
            yield process


def read_boot_id() -> str:
    """Return the identity of this boot of the machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def has_environment_entry(pid: int, marker: bytes) -> bool:
    """Return whether the process was started with this NAME=value; False if that is not visible."""
    try:
        return marker in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def find_descendants(root: int) -> list[Process]:
    """Return the living processes below `root`, without it."""
    everybody = list(processes())
    below = {root}
    while more := {p.pid for p in everybody if p.parent in below} - below:
        below |= more
    return [p for p in everybody if p.pid in below and p.pid != root and p.alive]


def find_orphans(supervisor: Process, marker: bytes) -> list[Process]:
    """Return the living processes that a dead supervisor left behind.

    They are the processes of its session, and those that have its marker in their environment. The
    number of a session is not given to a new process while a member lives. So if a process other
    than the supervisor has that pid, the old session is empty.
    """
    leader = read_process(supervisor.pid)
    session = supervisor.pid if leader is None or leader.started == supervisor.started else -1
    return [
        p
        for p in processes()
        if p.alive
        and p.pid not in (os.getpid(), supervisor.pid)
        and (
            (p.session == session and p.started >= supervisor.started)
            or has_environment_entry(p.pid, marker)
        )
    ]


def kill_all(find: Callable[[], list[Process]], wait_s: float) -> bool:
    """Kill what `find` finds until nothing is left (True) or wait_s seconds are over (False)."""
    deadline = time.monotonic() + wait_s
    while left := find():
        for p in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(p.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none is lost."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
