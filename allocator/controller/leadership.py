"""Leadership: take and keep the lease. Of many controllers that ask for it, one has it."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import replace

from allocator.errors import AllocatorError
from allocator.queue import lease
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.lease import Lease

RENEW_SHARE = 2 / 3  # share of its length that a lease has left when it is renewed


class Standby(AllocatorError):
    """Another controller leads; nothing was done."""


class LeaseHolder:
    """The lease of one controller; `ttl_s` is its length in seconds."""

    def __init__(self, store: QueueDatabase, ttl_s: float, holder: str | None = None) -> None:
        self._store = store
        self.ttl_s = ttl_s
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.held: Lease | None = None

    @property
    def token(self) -> int:
        """Return the fencing token. Raises Standby if this controller does not lead."""
        if self.held is None:
            raise Standby("not leading")
        return self.held.token

    def take(self, now_s: float) -> bool:
        """Take the lease or renew it, and return whether it was taken just now.

        Raises Standby, and LeaseLost, after which what this controller knows is out of date.
        """
        if self.held is not None:
            # renew it after a third of its length, or when the clock was set back
            if not RENEW_SHARE * self.ttl_s < self.held.expires_s - now_s <= self.ttl_s:
                with self._store.write() as connection:
                    renewed = lease.renew(connection, self.held, now_s)
                self.held = replace(renewed, ttl_s=self.ttl_s)
            return False
        with self._store.read() as connection:
            found = lease.read_current(connection)
        if found is not None and found.is_held(now_s):
            raise Standby(f'"{found.holder}" leads (token {found.token})')
        with self._store.write() as connection:
            held = lease.take(connection, self.holder, self.ttl_s, now_s)
        if held is None:
            raise Standby("somebody else was quicker")
        self.held = held
        return True

    def drop(self) -> None:
        """Forget the lease, because it was lost."""
        self.held = None

    def release(self) -> None:
        """Give the lease back, so that the next controller need not wait."""
        if self.held is not None:
            with self._store.write() as connection:
                lease.release(connection, self.held)
            self.held = None
