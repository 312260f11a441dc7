"""Small JSON files that are written completely or not at all, and lock files.

A lock ends with the process that holds it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from allocator.errors import UsageError
from allocator.io.plans import sync_folder
from allocator.loop.executor import NotNow
from allocator.objects import Json, Record

LOCK_WAIT_S = 30.0


def write_json(path: Path, value: Record, sync_name: bool = True) -> None:
    """Replace the file in one step; it can be read and written by its owner only.

    On return the content is on the disk, and the name too unless sync_name is false. Raises
    OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(value, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if sync_name:
        sync_folder(path.parent)


def read_toml(path: Path) -> Json:
    """Return the settings in a file. Raises UsageError for one that is there and no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f'"{path}" cannot be read: {error}') from error


def read_age_s(path: Path) -> float:
    """Return the seconds since the file was written, -inf if there is none."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return -math.inf


def try_lock(path: Path) -> int | None:
    """Lock the file (made if missing) for this process; None: another process has the lock.

    os.close gives the lock back. The kernel takes it back when the process ends, however it ends.
    Programs that the process starts do not inherit it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock."""
    handle = try_lock(path)
    if handle is not None:
        os.close(handle)
    return handle is None


@contextmanager
def hold_lock(path: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Wait for the lock and hold it. Raises NotNow if another process keeps it too long."""
    deadline = time.monotonic() + wait_s
    while (handle := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise NotNow(f'"{path}" has been locked by another process for {wait_s:g} s')
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(handle)
