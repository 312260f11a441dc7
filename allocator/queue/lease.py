"""The lease of the controller: one controller leads at a time.

The lease has a fencing token that grows at every take-over. Every transaction of a controller
checks that its token is the current one. So a controller that was paused, and continues after
another one took over, cannot write anything.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

from sqlalchemy import Connection

from allocator.queue.database.bulk import execute, query
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


def take(connection: Connection, holder: str, ttl_s: float, now_s: float) -> Lease | None:
    """Take the lease unless another controller has it (None).

    The new token is larger than any before.
    """
    found = read_current(connection)
    if found is not None and found.is_held(now_s):
        return None
    token = 1 if found is None else found.token + 1
    return _write(connection, Lease(holder, token, ttl_s, now_s + ttl_s))


def seize(connection: Connection, holder: str, token: int, ttl_s: float, now_s: float) -> None:
    """Take the lease, if no controller has it, with a given token that is larger than any before.

    Raises LeaseLost.
    """
    found = read_current(connection)
    if found is not None and (found.token >= token or found.is_held(now_s)):
        raise LeaseLost(f'"{found.holder}" took the lease with token {found.token} meanwhile')
    _write(connection, Lease(holder, token, ttl_s, now_s + ttl_s))


def renew(connection: Connection, held: Lease, now_s: float) -> Lease:
    """Renew a lease, even an expired one if no other controller took it. Raises LeaseLost."""
    check(connection, held.token)
    return _write(connection, replace(held, expires_s=now_s + held.ttl_s))


def release(connection: Connection, held: Lease) -> None:
    """Give the lease back, so that the next controller need not wait.

    Nothing happens if the lease was lost.
    """
    execute(connection, "UPDATE lease SET holder = '', expires_s = 0 WHERE token = ?", held.token)


def check(connection: Connection, token: int) -> None:
    """Raise LeaseLost unless the token is the current one and the lease was not released."""
    found = read_current(connection)
    if found is None or found.token != token or not found.holder:
        leads = found is not None and found.holder
        words = f'"{leads}" leads now' if leads else "no controller leads"
        raise LeaseLost(f"the lease with token {token} is lost: {words}")


def _write(connection: Connection, new: Lease) -> Lease:
    execute(connection, _WRITE, *astuple(new))
    return new
