"""Temporary folders of this project, and the removal of those that a killed process left behind.

A folder belongs to the process that made it for as long as that process holds a lock on it. The
kernel gives the lock back however the process ends, so a folder whose lock is free has no owner any
more. The first folder that a process makes also removes such folders of the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "allocator-"
KINDS = ("worker", "task", "bench", "workload", "batch")
NEW_S = 60.0  # a younger folder may not have been locked yet


class Scratch:
    """A new folder for temporary files, which only its owner can read.

    Parameters
    ----------
    kind : str
        One of KINDS; it becomes part of the name.

    Attributes
    ----------
    path : str
        Path of the folder.
    """

    _swept: set[str] = set()  # noqa: RUF012 - folders in which this process has looked for remains

    def __init__(self, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f'unknown kind of folder "{kind}"')
        parent = tempfile.gettempdir()
        if parent not in Scratch._swept:
            Scratch._swept.add(parent)
            remove_stale(Path(parent))
        self.path = tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-")
        self._lock = os.open(self.path, os.O_RDONLY)
        # on a file system without locks no other process gets a lock either
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.forget()

    def forget(self) -> None:
        """Give up the lock without removing the folder: a forked child does not own it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextlib.contextmanager
def scratch_folder(kind: str) -> Iterator[str]:
    """Yield the path of a new folder, which is removed at the end; `kind` is as in Scratch."""
    folder = Scratch(kind)
    try:
        yield folder.path
    finally:
        folder.remove()


def remove_stale(parent: Path) -> None:
    """Remove the folders below `parent` that processes of this user have left behind."""
    for kind in KINDS:
        for path in parent.glob(f"{PREFIX}{kind}-*"):
            with contextlib.suppress(OSError):
                if _is_stale(path):
                    shutil.rmtree(path, ignore_errors=True)


def _is_stale(path: Path) -> bool:
    """Return whether a folder is this user's, is not new, and is not locked by a process."""
    status = path.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or time.time() - status.st_mtime < NEW_S
    ):
        return False
    folder = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(folder)
