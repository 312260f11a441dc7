"""The fence of an executor's folder: which queue it belongs to, and the highest fencing token.

The file fence.json has these keys:

    token      highest fencing token ever seen, -1 = none
    state      random name of the folder, made on first use
    kind       name of the executor whose folder it is
    queue      id of the queue that the folder belongs to, "" = none yet
    adopting   id of a queue that has begun to adopt the folder and has not ended, "" = none
    was        during an adoption, the queue that the folder belonged to before

All functions run inside the lock of the ledger.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from allocator.clusters.adapter import Json
from allocator.errors import AllocatorError
from allocator.executors.disk import write_json
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import Identity, StaleOrder, WrongState


class Fence:
    """The file fence.json of an executor; `kind` is the name of the executor."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._kind = kind
        # the queue that claimed the folder through this object; others are refused
        self._queue = ""

    def identity(self) -> Identity:
        """Return the identity in the file, and add what is missing.

        Raises WrongState if the folder is another executor's.
        """
        found = self._read_own()
        if not found["state"]:
            found |= {"state": secrets.token_hex(16), "kind": self._kind}
            write_json(self._path, found)
        return Identity(
            self._kind,
            found["state"],
            found["was"] or found["queue"],
            int(found["token"]),
            str(self._path.parent),
            bool(found["adopting"]),
        )

    def claim(self, queue: str) -> None:
        """Make the folder belong to the queue. Raises WrongState if it belongs to another one."""
        found = self._read_own()
        if found["adopting"] or found["queue"] not in ("", queue):
            raise WrongState(f'the state in "{self._path.parent}" belongs to another queue')
        if not found["queue"]:
            write_json(self._path, found | {"queue": queue})
        self._queue = queue

    def admit(self, token: int) -> None:
        """Check the token of an order, and remember it if it is the highest.

        Raises StaleOrder if a higher one was seen, and WrongState if another queue took the folder
        over.
        """
        found = self._read()
        if self._queue and (found["queue"] != self._queue or found["adopting"]):
            raise WrongState(f'the state in "{self._path.parent}" was adopted by another queue')
        seen = int(found["token"])
        if token < seen:
            raise StaleOrder(f"an order with token {token} came after one with {seen}")
        if token > seen:
            write_json(self._path, found | {"token": token})

    def begin_adoption(self, queue: str, token: int) -> Identity:
        """Detach the folder from its queue until `end_adoption`, and return its identity before.

        Orders of all controllers are refused in this time. Tokens below `token` are out of date
        from now on.
        """
        before = self.identity()
        found = self._read()
        found |= {"adopting": queue, "was": before.queue, "queue": ""}
        write_json(self._path, found | {"token": max(token, before.token)})
        return before

    def end_adoption(self, queue: str) -> None:
        """Make the folder belong to the queue that began to adopt it."""
        found = self._read()
        if found["adopting"] != queue:
            raise WrongState(f'"{self._path.parent}" was adopted by another queue meanwhile')
        write_json(self._path, found | {"adopting": "", "was": "", "queue": queue})

    def _read_own(self) -> Json:
        found = self._read()
        if found["kind"] not in ("", self._kind):
            raise WrongState(
                f'"{self._path.parent}" is the state of the executor "{found["kind"]}", not of '
                f'"{self._kind}"; name another folder with --state'
            )
        return found

    def _read(self) -> Json:
        found = read_json(self._path)
        if found is None and os.path.lexists(self._path):
            raise AllocatorError(f'"{self._path}" cannot be read, or nothing whole is in it')
        empty = dict.fromkeys(("state", "kind", "queue", "adopting", "was"), "")
        return {"token": -1, **empty, **(found or {})}
