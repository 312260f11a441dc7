"""The queue behind the service: reads and writes in threads, in short transactions.

A function that reads or writes gets what its caller sees (views/sight.py).

Reads use connections that the database itself keeps from writing. One write at a time goes to the
database, in the order of arrival, and after it the service leaves the database alone for as long as
the write took. So a controller that waits for its turn gets it.
"""

import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from allocator.queue.database.connection import open_queue
from allocator.server.caller import Caller
from allocator.server.errors import Refusal
from allocator.server.options import ServerOptions
from allocator.server.views.sight import Sight

T = TypeVar("T")
READERS = 4  # threads that read at once
LONGEST_PAUSE_S = 0.1


class ServedQueue:
    """The queue of one service; open it and close it with the service."""

    def __init__(self, queue: str, options: ServerOptions) -> None:
        self.name = PurePath(urlsplit(queue).path).stem
        self.reads = open_queue(queue, wait_s=options.write_wait_s, reads_only=True)
        self.writes = open_queue(queue, wait_s=options.write_wait_s)
        self.most_writes = options.most_writes
        self._rows: dict[Any, Any] = {}  # of lists of jobs
        self._waiting = 0
        self._free_at = 0.0
        self._readers = CapacityLimiter(READERS)
        self._writer = CapacityLimiter(1)

    def close(self) -> None:
        """Close all connections."""
        self.reads.close()
        self.writes.close()

    async def look(self, caller: Caller, read: Callable[..., T], *values: Any) -> T:
        """Return what a function reads in one transaction, which sees one state of the queue.

        The function gets what the caller sees before the values.
        """

        def run() -> T:
            with self.reads.read() as connection:
                return read(Sight(connection, time.time(), caller, rows=self._rows), *values)

        return await run_sync(run, limiter=self._readers)

    async def change(self, caller: Caller, write: Callable[[Sight], T]) -> T:
        """Return what a function writes in one transaction; it is on disk then.

        Raises Refusal if too many changes wait already.
        """
        if self._waiting >= self.most_writes:
            raise Refusal(503, "busy", "too many changes wait; try again")

        def run() -> T:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            start = time.monotonic()
            try:
                with self.writes.write() as connection:
                    return write(Sight(connection, time.time(), caller))
            finally:
                end = time.monotonic()
                self._free_at = end + min(end - start, LONGEST_PAUSE_S)

        self._waiting += 1
        try:
            return await run_sync(run, limiter=self._writer)
        finally:
            self._waiting -= 1
