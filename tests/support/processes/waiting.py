"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(
    what: Callable[[], object],
    seconds: float = 30.0,
    every_s: float = 0.02,
    *,
    work: Callable[[], object] = lambda: None,
    describe: Callable[[], str] = lambda: "waited in vain",
) -> None:
    """Until it is so; an assertion fails where it takes longer. every_s: between two looks, in
    which `work` is called. `describe`: what the assertion says.
    """
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, describe()
        work()
        time.sleep(every_s)
