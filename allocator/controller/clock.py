"""The system clock, with a sleep that can be ended."""

from __future__ import annotations

import os
import select
import time


class WallClock:
    """The system clock.

    `wake()` may be called from a signal handler: it only writes to a pipe, so it needs no lock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def now(self) -> float:
        """Return the time in unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait; return at once after wake()."""
        select.select([self._read], [], [], max(0.0, seconds))

    def wake(self) -> None:
        """End the present sleep and every later one."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return
