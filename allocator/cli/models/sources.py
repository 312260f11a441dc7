"""Read a round to look at: a snapshot folder, or the present state of a queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allocator.domain.snapshot import Snapshot


def read_source(where: str) -> Snapshot:
    """Return the snapshot in a folder, or of a queue given by the path of its file or its URL.

    Raises InvalidInput.
    """
    if "://" not in where and not Path(where).is_file():
        from allocator import read_snapshot

        return read_snapshot(where)
    from allocator.queue.queue import Queue

    with Queue(where) as queue:
        return queue.snapshot()
