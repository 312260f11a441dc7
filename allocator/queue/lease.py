"""The lease of the controller: one controller leads at a time.

The lease has a fencing token that grows at every take-over. Every transaction of a controller
checks that its token is the current one. So a controller that was paused, and continues after
another one took over, cannot write anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.queue.database.bulk import query
from allocator.queue.database.schema import lease
from allocator.queue.errors import LeaseLost

NAME = "controller"


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
    row = connection.execute(sa.select(lease).where(lease.c.name == NAME)).first()
    return None if row is None else Lease(row.holder, int(row.token), row.ttl_s, row.expires_s)


def take(connection: Connection, holder: str, ttl_s: float, now_s: float) -> Lease | None:
    """Take the lease unless another controller has it (None).

    The new token is larger than any before.
    """
    found = read_current(connection)
    if found is not None and found.is_held(now_s):
        return None
    new = Lease(holder, (found.token if found is not None else 0) + 1, ttl_s, now_s + ttl_s)
    _write(connection, new, found is None)
    return new


def seize(connection: Connection, holder: str, token: int, ttl_s: float, now_s: float) -> None:
    """Take the lease, if no controller has it, with a given token that is larger than any before.

    Raises LeaseLost.
    """
    found = read_current(connection)
    if found is not None and (found.token >= token or found.is_held(now_s)):
        raise LeaseLost(f'"{found.holder}" took the lease with token {found.token} meanwhile')
    _write(connection, Lease(holder, token, ttl_s, now_s + ttl_s), found is None)


def renew(connection: Connection, held: Lease, now_s: float) -> Lease:
    """Renew a lease, even an expired one if no other controller took it. Raises LeaseLost."""
    check(connection, held.token)
    new = Lease(held.holder, held.token, held.ttl_s, now_s + held.ttl_s)
    _write(connection, new, False)
    return new


def release(connection: Connection, held: Lease) -> None:
    """Give the lease back, so that the next controller need not wait.

    Nothing happens if the lease was lost.
    """
    connection.execute(
        sa.update(lease)
        .where(lease.c.name == NAME, lease.c.token == held.token)
        .values(holder="", expires_s=0.0)
    )


_CURRENT = f"SELECT token, holder FROM lease WHERE name = '{NAME}'"


def check(connection: Connection, token: int) -> None:
    """Raise LeaseLost unless the token is the current one and the lease was not released."""
    rows = query(connection, _CURRENT)
    current, holder = rows[0] if rows else (None, "")
    if current != token or not holder:
        words = f'"{holder}" leads now' if holder else "no controller leads"
        raise LeaseLost(f"the lease with token {token} is lost: {words}")


def _write(connection: Connection, new: Lease, first: bool) -> None:
    values = {
        "holder": new.holder,
        "token": new.token,
        "ttl_s": new.ttl_s,
        "expires_s": new.expires_s,
    }
    if first:
        connection.execute(sa.insert(lease).values(name=NAME, **values))
    else:
        connection.execute(sa.update(lease).where(lease.c.name == NAME).values(**values))
