"""Sessions of browsers: a cookie stands for a token, which the browser itself never keeps.

Sessions are kept in memory: they end with the service, after a time, and with their token.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

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
