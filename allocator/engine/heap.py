"""Memory that a process keeps for its next round."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # numbers of the options in malloc.h of glibc
KEPT = (1 << 31) - 1  # bytes of freed memory that the process keeps, the most that glibc can


@cache
def keep_freed_memory() -> None:
    """Let glibc keep the memory of arrays that are freed.

    By default it returns them to the system, and the pages of the next array are cleared again.
    That takes a third of the time to build a round of 10,000 jobs, and half of the time to decide
    one of 500,000, whose arrays would never lie in memory that is kept.
    """
    with suppress(OSError, AttributeError):  # there is no mallopt without glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_MAX, 0)
