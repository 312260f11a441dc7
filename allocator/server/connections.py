"""Connections that are opened and left: the head of a request must arrive in time, and there is a
largest number of connections.

A new connection always gets a place: where there is none, the one closes that has been idle for
longest. So somebody who opens thousands and leaves them shuts nobody out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import Any, TextIO

from uvicorn.protocols.http.h11_impl import H11Protocol

from allocator.server.guard import write_line
from allocator.server.options import ServerOptions

SUMMARY_S = 1.0  # dropped connections are counted for so long, and make one line of the log


class Connections:
    """All connections of one service; those that answer no request are `idle`, oldest first."""

    def __init__(self, options: ServerOptions, log: TextIO) -> None:
        self.most = options.most_connections
        self.head_s = options.head_s
        self.log = log
        self.open: set[LimitedProtocol] = set()
        self.idle: OrderedDict[LimitedProtocol, None] = OrderedDict()
        self._dropped: Counter[str] = Counter()

    def add(self, protocol: LimitedProtocol) -> bool:
        """Take a new connection in; False if all others are at work."""
        if len(self.open) >= self.most:
            if not self.idle:
                return False
            next(iter(self.idle)).drop("too many")
        self.open.add(protocol)
        return True

    def remove(self, protocol: LimitedProtocol) -> None:
        """Forget a connection that is closed."""
        self.open.discard(protocol)
        self.idle.pop(protocol, None)

    def note_dropped(self, reason: str, loop: asyncio.AbstractEventLoop) -> None:
        """Count a connection that was closed on its client."""
        if not self._dropped:
            loop.call_later(SUMMARY_S, self._write_log)
        self._dropped[reason] += 1

    def _write_log(self) -> None:
        for reason, number in self._dropped.items():
            row = {"event": "dropped", "reason": reason, "connections": number}
            write_line(self.log, row | {"open": len(self.open)})
        self._dropped.clear()

    def make_protocol(self) -> type[LimitedProtocol]:
        """Return the protocol class for uvicorn, which makes one object for each connection."""
        return type("Limited", (LimitedProtocol,), {"all": self})


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn, with a time limit for the head of a request."""

    all: Connections
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request, unless there is no place."""
        super().connection_made(transport)
        if self.all.add(self):
            self._wait()
        else:
            self.drop("too many")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        self.all.remove(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Look whether the head of a request is complete."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
            self.cycle.scope["drop"] = self.drop  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Wait for the next request of the connection, unless it is there already."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def drop(self, reason: str) -> None:
        """Close the connection at once, whatever was not sent yet."""
        self._stop_waiting()
        self.all.remove(self)
        self.all.note_dropped(reason, self.loop)
        self.transport.abort()

    def _wait(self) -> None:
        self._stop_waiting()
        self.all.idle[self] = None
        self.timer = self.loop.call_later(self.all.head_s, self.drop, "no request")

    def _stop_waiting(self) -> None:
        self.all.idle.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
