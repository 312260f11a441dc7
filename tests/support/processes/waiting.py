"""Waiting for what another process does, on a machine that may be busy.

EXACT_TIMES=1 ./scripts/test ...      on a quiet one: promises of time are held to the second
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE_S = 120.0  # for what happens at once where nothing else runs


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def marked(mark: str) -> list[int]:
    """Living processes with this variable, NAME=VALUE, in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and not gone(int(path.name)):
            with suppress(OSError):
                if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def wait_for(
    what: Callable[[], object],
    seconds: float = PATIENCE_S,
    every_s: float = 0.02,
) -> None:
    """Until it is so; an assertion fails where it takes longer. every_s: between two looks."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every_s)


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Hold what is done inside to a limit of time, which a busy machine may exceed by far."""
    begin = time.monotonic()
    yield
    slack_s = 0.0 if os.environ.get("EXACT_TIMES") else PATIENCE_S
    assert time.monotonic() - begin < seconds + slack_s
