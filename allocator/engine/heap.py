"""Memory of the process that decides."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # numbers of the options in malloc.h of glibc
KEPT = (1 << 31) - 1  # bytes of freed memory that the process keeps, the most that glibc can
PR_SET_THP_DISABLE = 41  # number of the option in prctl.h of Linux


@cache
def prepare_heap() -> None:
    """Let glibc keep the memory of arrays that are freed, and Linux give it in pages of 4 kB.

    By default glibc returns it to the system, and the pages of the next array are cleared again.
    For arrays of more than 4 MB numpy asks for pages of 2 MB. To find them, Linux may move other
    memory first, which takes longer than the decision gains by them. A round of 500,000 jobs takes
    about half of the time with both.
    """
    with suppress(OSError, AttributeError):  # there is no mallopt without glibc, prctl elsewhere
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
