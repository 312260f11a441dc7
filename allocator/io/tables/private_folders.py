"""Make and check folders that only this account can have filled.

Their content is later run or trusted.
"""

import os
import stat
from pathlib import Path

from allocator.errors import UsageError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(path: Path) -> Path:
    """Make the folder (mode 0700), or refuse one that another account made, fills, or could
    exchange.

    For names that others can guess, in places where others can make folders.

    Parameters
    ----------
    path : name of the folder; its last part must not be a symbolic link.

    Returns
    -------
    The absolute path.

    Raises
    ------
    UsageError
        It is a link or no folder, it or an entry directly in it belongs to somebody else, others
        may write to it, or others may rename it because its parent folder lets them.
    """
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass  # judged below, like the one that was made just now
    except OSError as error:
        raise UsageError(f'cannot make the folder "{path}": {error.strerror}') from None
    above = os.stat(path.parent)
    if above.st_uid not in (0, os.geteuid()) or (
        above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
    ):
        raise _refusal(path, f'others may rename what is in "{path.parent}"')
    refuse_foreign(path)
    return path


def refuse_foreign(path: Path) -> None:
    """Refuse a folder that another account may have filled.

    Raises
    ------
    UsageError
        It is a link or no folder, it or an entry directly in it belongs to another account than
        that of this process, or others may write to it.
    """
    user = os.geteuid()
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise _refusal(path, "it is a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise _refusal(path, "it is no folder")
    if status.st_uid != user:
        raise _refusal(path, f"it belongs to another account (user id {status.st_uid}, not {user})")
    if status.st_mode & _OTHERS_WRITE:
        raise _refusal(path, "other accounts may write to it (`chmod go-w` ends that)")
    with os.scandir(path) as entries:
        for entry in entries:
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != user:
                raise _refusal(
                    path,
                    f'"{entry.name}" in it belongs to another account (user id '
                    f"{owner}, not {user})",
                )


def _refusal(path: Path, why: str) -> UsageError:
    return UsageError(
        f'"{path}" is refused: {why}. Nothing in it was read or run; name a folder of your own'
    )
