"""Read and write snapshot folders.

Reading locates every fault of form, but does not check the content: `domain.validate` does.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from allocator.domain.schema.columns import TABLES
from allocator.domain.snapshot import Snapshot
from allocator.io.folders import FolderKind, parse_folder, read_folder, write_folder

SNAPSHOT = FolderKind(
    "a snapshot",
    "jobs.csv",
    TABLES,
    {
        "workload.csv": (
            ', but a workload.csv: this is a workload, not a snapshot; run it with "allocator'
            ' simulate"'
        )
    },
)
FILES = SNAPSHOT.files


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read the tables of a snapshot folder; `Problem.read` checks them, too.

    Parameters
    ----------
    path : str or path
        Folder with jobs.csv, pools.csv, rates.csv and the optional files.

    Returns
    -------
    Snapshot
        The tables. Its faults of form are in `faults`, and reported with all others when it is
        checked.

    Raises
    ------
    InvalidInput
        If there is no such folder, or it cannot be listed.

    Examples
    --------
    >>> import allocator
    >>> allocator.read_snapshot("data/snapshots/demo").faults
    ()
    """
    return read_folder(path, SNAPSHOT)


def parse_snapshot(name: str, contents: Mapping[str, bytes]) -> Snapshot:
    """Return the snapshot of files that are given as bytes by name, as if they were in a folder."""
    return parse_folder(name, contents, SNAPSHOT)


def write_snapshot(snapshot: Snapshot, folder: str | os.PathLike[str]) -> Path:
    """Write the tables and config.toml into a folder, which is made if needed; return its path.

    Reading the folder again gives a snapshot with the same digest. Each file is replaced in one
    step (plans.write_files).

    Raises
    ------
    AllocatorError
        If the folder cannot be written.
    TypeError
        For a config that TOML cannot hold.
    """
    return write_folder(snapshot, folder, SNAPSHOT)
