"""Read files that others write: jobs, actors and users, within stated limits.

Every such file is read through one of these functions. Each opens only regular files, so that a
pipe or a device in the place of a file does not block the reader, and each reads a stated number
of bytes at most.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from allocator.objects import Json

MOST_JSON_BYTES = 16 << 20  # above the largest environment that Linux gives to a process


def open_regular(path: Path | str, owner: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Parameters
    ----------
    path : Path or str
        The file.
    owner : int, optional
        User id to which it has to belong; a symbolic link is then refused, too. None: any.

    Raises
    ------
    OSError
        If the file cannot be opened, is a folder, a pipe, a socket or a device, or belongs to
        another user.
    """
    # without O_NONBLOCK, opening a pipe waits for its writer
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags if owner is None else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        if owner is not None and status.st_uid != owner:
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_start(path: Path | str, most: int) -> bytes:
    """Return the first `most` bytes of a regular file. Raises OSError."""
    with open_regular(path) as file:
        return file.read(most)


def read_end(path: Path | str, most: int) -> bytes:
    """Return the last `most` bytes of a regular file. Raises OSError."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def read_all(path: Path | str, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises OSError, also for a larger file.
    """
    content = read_start(path, most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most} bytes", str(path))
    return content


def read_json(path: Path, most: int = MOST_JSON_BYTES) -> Json | None:
    """Return the JSON object in a regular file.

    None stands for all that is no such object: a missing or unreadable file, one of more than
    `most` bytes, text that is not UTF-8 or not JSON, an array, or values nested too deeply.
    """
    try:
        value = json.loads(read_all(path, most).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_storable_text(value: object, most: int) -> str:
    """Return at most `most` characters that every database takes.

    NUL and lone surrogates are replaced.
    """
    text = str(value)[:most].encode("utf-8", "replace").decode("utf-8")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
