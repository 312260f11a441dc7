"""Where jobs of pairs start: beside each other, on GPUs of their own, or not yet.

What is wanted of a job names its host (`want_host`, "" = GPUs of its own). Only these rules start
two jobs together:

    a guest starts on the GPUs of its host     once the host runs where it is wanted, and nobody
                                               else is on them
    a host comes to the GPUs of its guest      where that one runs already as wanted; from then on
                                               they are the host's
    a guest whose host is wanted nowhere       gets GPUs of its own, if there is room: nobody else
                                               needs them
    the two change places                      where both run; nobody moves

Whoever is left of a pair holds the GPUs (held.py). A want is met by an open allocation of that pool
and size that is not older than `want_generation`: a guest that is to leave for other GPUs of the
same pool wants a newer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.queue.bulk import query, query_of
from allocator.queue.held import Held, guests, held, write
from allocator.queue.schema import OPEN

# pairs are few: CROSS JOIN has SQLite begin with them
_WANTED = "SELECT job_id, want_host FROM jobs WHERE want_host <> ''"
_MEMBERS = (
    "SELECT j.job_id, j.state, j.request, j.want_pool, j.want_gpus, j.want_host,"
    " j.want_generation, COALESCE(a.generation, 0), COALESCE(a.phase, ''), COALESCE(a.pool, ''),"
    " COALESCE(a.gpus, 0), COALESCE(a.host, '') FROM jobs j LEFT JOIN allocations a ON a.job_id ="
    f" j.job_id AND a.phase IN {OPEN} WHERE j.job_id IN ({{names}})"
)
_PARTNERS = (
    "SELECT g.job_id, g.generation, g.phase, h.job_id, h.generation FROM allocations g CROSS JOIN"
    f" allocations h WHERE g.phase IN {OPEN} AND g.host <> '' AND h.job_id = g.host AND h.phase IN"
    f" {OPEN}"
)


class Seat(Enum):
    """Where a job may start."""

    OWN = "on GPUs of its own"
    HOST = "on those of its host"
    GUEST = "on those of its guest"
    WAIT = "not yet"


class Partner(NamedTuple):
    """The other allocation on the same GPUs. needed: it was there first."""

    job_id: str
    generation: int
    needed: bool


class _Member(NamedTuple):
    """A job that is wanted in a pair, and its open allocation; generation 0: it has none."""

    job_id: str
    state: str
    request: str
    want_pool: str
    want_gpus: int
    want_host: str
    want_generation: int
    generation: int
    phase: str
    pool: str
    gpus: int
    host: str

    @property
    def wanted(self) -> tuple[str, int] | None:
        """What it shall hold; None: nothing."""
        fine = self.request == "" and self.state in ("queued", "paused", "running")
        return (self.want_pool, self.want_gpus) if fine and self.want_gpus else None

    @property
    def there(self) -> bool:
        """Whether its want is met."""
        return (
            self.phase in ("ordered", "running")
            and self.wanted == (self.pool, self.gpus)
            and self.generation >= self.want_generation
        )


@dataclass
class Company:
    """Everybody who is wanted in a pair. guest: open guests by host, as recorded; started: hosts
    that are being ordered now, on GPUs of their own."""

    members: dict[str, _Member] = field(default_factory=dict)
    guest_of: dict[str, str] = field(default_factory=dict)  # by host, as wanted
    guest: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, connection: Connection) -> Company:
        """The company of now."""
        wanted = {str(host): str(guest) for guest, host in query(connection, _WANTED)}
        if not wanted:
            return cls()
        members = {
            row[0]: _Member(*row)
            for row in query_of(connection, _MEMBERS, sorted({*wanted, *wanted.values()}))
        }
        return cls(members, wanted, guests(connection))

    def seat(self, job_id: str, want_host: str) -> Seat:
        """Where a job that holds nothing may start."""
        if want_host:
            return self._beside(job_id, want_host)
        guest = self.members.get(self.guest_of.get(job_id, ""))
        if guest is None or not guest.there:
            return Seat.OWN
        alone = guest.phase == "running" and not guest.host and guest.job_id not in self.guest
        return Seat.GUEST if alone else Seat.WAIT

    def _beside(self, job_id: str, want_host: str) -> Seat:
        me, host = self.members[job_id], self.members.get(want_host)
        if host is None or host.wanted != me.wanted:
            return Seat.OWN
        if want_host in self.started:
            return Seat.HOST
        return (
            Seat.HOST if host.there and not host.host and want_host not in self.guest else Seat.WAIT
        )

    def exchanges(self) -> list[tuple[str, str]]:
        """(host, guest) of those who shall change places, as they shall be."""
        return [
            (m.want_host, m.job_id)
            for m in self.members.values()
            if m.want_host
            and m.there
            and self.guest.get(m.job_id) == m.want_host
            and self.members[m.want_host].there
        ]


def partners(connection: Connection) -> dict[str, Partner]:
    """The partner of every open allocation that has one, by job. A host needs its guest only if
    that was seen to run: otherwise the guest comes to it."""
    out: dict[str, Partner] = {}
    for guest, guest_generation, phase, host, host_generation in query(connection, _PARTNERS):
        out[guest] = Partner(host, host_generation, True)
        if phase != "ordered":
            out[host] = Partner(guest, guest_generation, False)
    return out


def join(connection: Connection, pairs: Sequence[tuple[str, str]], at_s: float) -> None:
    """(host, guest): the guest runs on GPUs of the host from then on. Both have or had an open
    allocation, or are ordered in the same transaction."""
    names = {name for pair in pairs for name in pair}
    before: dict[str, Held] = held(connection, names) if names else {}
    now = dict(before)
    for host, guest in pairs:
        now[host], now[guest] = now[host].turned("", at_s), now[guest].turned(host, at_s)
    # no two guests of one host at any moment
    first = [name for name in names if now[name].host == ""]
    for some in (first, [name for name in names if name not in first]):
        write(
            connection,
            {name: now[name] for name in some},
            [(name, at_s) for name in some if now[name].host != before[name].host],
        )
