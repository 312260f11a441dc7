"""Who calls, and which jobs they may see and change; sessions of browsers.

In a session a cookie stands for a token, which the browser itself never keeps. Sessions are kept in
memory: they end with the service, after a time, and with their token.
"""

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from allocator.queue.database.schema import DEFAULT_TENANT

MOST_SESSIONS = 5000


@dataclass(frozen=True)
class Session:
    """One browser that has logged in; `csrf` is in every form that it gets."""

    key: str
    csrf: str
    token_id: int
    ends: float


class Sessions:
    """All sessions, the oldest first; used in the event loop only."""

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self._open: OrderedDict[str, Session] = OrderedDict()

    def start(self, token_id: int) -> Session:
        """Start a session for a token."""
        key = secrets.token_urlsafe(32)
        csrf = secrets.token_urlsafe(32)
        session = Session(key, csrf, token_id, time.monotonic() + self.length_s)
        self._open[key] = session
        while len(self._open) > MOST_SESSIONS:
            self._open.popitem(last=False)
        return session

    def find(self, key: str) -> Session | None:
        """Return the session of a cookie, None if it is over."""
        session = self._open.get(key)
        if session is not None and time.monotonic() >= session.ends:
            del self._open[key]
            return None
        return session

    def end(self, key: str) -> None:
        """End a session, if there is one."""
        self._open.pop(key, None)


@dataclass(frozen=True)
class Caller:
    """Who calls: the role, the tenant of a member, and the token (None: reading is open)."""

    role: str
    tenant: str = ""
    token_id: int | None = None
    name: str = ""
    session: Session | None = None

    @property
    def is_operator(self) -> bool:
        """Whether the caller may change everything."""
        return self.role == "operator"

    @property
    def is_member(self) -> bool:
        """Whether the caller has the jobs of one tenant only."""
        return self.role == "member"

    @property
    def can_write(self) -> bool:
        """Whether the caller may change any job at all."""
        return self.role in ("member", "operator")

    @property
    def only_tenant(self) -> str | None:
        """The tenant whose jobs are all that the caller may see; None: all jobs."""
        return self.tenant if self.is_member else None

    def can_see(self, tenant: str) -> bool:
        """Return whether the caller may see jobs of a tenant ("": the default tenant)."""
        return self.only_tenant in (None, tenant or DEFAULT_TENANT)

    def can_change(self, tenant: str) -> bool:
        """Return whether the caller may change jobs of a tenant."""
        return self.can_write and self.can_see(tenant)


VIEWER = Caller("viewer")
