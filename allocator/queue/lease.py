"""The lease of the controller: of many that ask for it, one leads at a time.

The lease has a fencing token that grows at every take-over. Every transaction of a controller
checks that its token is the current one. So a controller that was paused, and continues after
another one took over, cannot write anything.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import astuple, dataclass, replace

from sqlalchemy import Connection

from allocator.errors import AllocatorError
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.rows import execute, query
from allocator.queue.errors import LeaseLost

_READ = "SELECT holder, token, ttl_s, expires_s FROM lease"
_WRITE = (
    "INSERT INTO lease (name, holder, token, ttl_s, expires_s) VALUES ('controller', ?, ?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = excluded.token,"
    " ttl_s = excluded.ttl_s, expires_s = excluded.expires_s"
)


@dataclass(frozen=True)
class Lease:
    """Which controller leads, and until when (seconds on the clock of the controllers)."""

    holder: str
    token: int
    ttl_s: float
    expires_s: float

    def is_held(self, now_s: float) -> bool:
        """Return whether a controller has the lease now.

        A lease that ends more than twice its own length from now was written by a clock that has
        jumped, and counts as expired.
        """
        return bool(self.holder) and now_s < self.expires_s <= now_s + 2 * self.ttl_s


def read_current(connection: Connection) -> Lease | None:
    """Return the present lease (holder "": released), or None if no controller ever took it."""
    for row in query(connection, _READ):
        return Lease(*row)
    return None


def take(
    connection: Connection, holder: str, ttl_s: float, now_s: float, least_token: int = 1
) -> Lease | None:
    """Take the lease unless another controller has it (None).

    The new token is larger than any before, and not below `least_token`.
    """
    current = read_current(connection)
    if current is not None and current.is_held(now_s):
        return None
    token = max(least_token, 0 if current is None else current.token + 1)
    return _write(connection, Lease(holder, token, ttl_s, now_s + ttl_s))


def renew(connection: Connection, lease: Lease, now_s: float) -> Lease:
    """Renew a lease, even an expired one if no other controller took it. Raises LeaseLost."""
    check(connection, lease.token)
    return _write(connection, replace(lease, expires_s=now_s + lease.ttl_s))


def release(connection: Connection, lease: Lease) -> None:
    """Give the lease back, so that the next controller need not wait.

    Nothing happens if the lease was lost.
    """
    execute(connection, "UPDATE lease SET holder = '', expires_s = 0 WHERE token = ?", lease.token)


def check(connection: Connection, token: int) -> None:
    """Raise LeaseLost unless the token is the current one and the lease was not released."""
    current = read_current(connection)
    if current is None or current.token != token or not current.holder:
        leads = current is not None and current.holder
        words = f'"{leads}" leads now' if leads else "no controller leads"
        raise LeaseLost(f"the lease with token {token} is lost: {words}")


def _write(connection: Connection, new: Lease) -> Lease:
    execute(connection, _WRITE, *astuple(new))
    return new


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
                    renewed = renew(connection, self.held, now_s)
                self.held = replace(renewed, ttl_s=self.ttl_s)
            return False
        with self._store.read() as connection:
            current = read_current(connection)
        if current is not None and current.is_held(now_s):
            raise Standby(f'"{current.holder}" leads (token {current.token})')
        with self._store.write() as connection:
            taken = take(connection, self.holder, self.ttl_s, now_s)
        if taken is None:
            raise Standby("somebody else was quicker")
        self.held = taken
        return True

    def drop(self) -> None:
        """Forget the lease, because it was lost."""
        self.held = None

    def release(self) -> None:
        """Give the lease back, so that the next controller need not wait."""
        if self.held is not None:
            with self._store.write() as connection:
                release(connection, self.held)
            self.held = None
