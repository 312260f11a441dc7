"""Run the HTTP service: a socket, uvicorn, its connections, and an orderly end.

The head of a request must arrive in time, and there is a largest number of connections. A new one
always gets a place: where there is none, the one closes that has been idle for longest. So somebody
who opens thousands and leaves them shuts nobody out.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from allocator.errors import UsageError
from allocator.server.app import create_app
from allocator.server.guard import write_line
from allocator.server.options import ServerOptions

SUMMARY_S = 1.0  # dropped connections are counted for so long, and make one line of the log
BACKLOG = 2048
SPARE_FILES = 200  # file descriptors for the database, children and the log
END_S = 2  # seconds that open requests have at the end
M_ARENA_MAX = -8  # of malloc.h


def serve(
    queue: str,
    address: str,
    port: int,
    options: ServerOptions,
    *,
    certificate: tuple[str, str] | None = None,
    log: TextIO = sys.stderr,
    ends_with_input: bool = False,
) -> None:
    """Serve a queue until SIGTERM or SIGINT.

    Parameters
    ----------
    queue : str
        Path or URL of the queue.
    address, port
        Where to listen; port 0: a free one, which the first line of the log names.
    certificate : tuple of str, optional
        Files with the certificate and its key, for https.
    log : text file
        Where the log goes.
    ends_with_input : bool
        End when standard input ends, with the process that started this one.

    Raises
    ------
    UsageError
        If the address cannot be used.
    """
    _share_heap()
    _raise_file_limit(options.most_connections + SPARE_FILES)
    listener = _listen(address, port)
    app = create_app(queue, options, log)
    certificate_file, key_file = certificate or (None, None)
    config = uvicorn.Config(
        app,
        http=Connections(options, log).make_protocol(),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(options.head_s) + 1,
        timeout_graceful_shutdown=END_S,
        backlog=BACKLOG,
        ssl_certfile=certificate_file,
        ssl_keyfile=key_file,
    )
    try:
        config.load()
    except OSError as error:
        raise UsageError(f"{certificate_file} with {key_file} cannot be used: {error}") from None
    server = uvicorn.Server(config)
    if ends_with_input:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    scheme = "https" if certificate else "http"
    shown = f"[{address}]" if ":" in address else address
    url = f"{scheme}://{shown}:{listener.getsockname()[1]}"
    write_line(log, {"event": "serving", "url": url, "pid": os.getpid()})
    with _end_in_order():
        server.run([listener])


def _listen(address: str, port: int) -> socket.socket:
    try:
        # with the protocol, without which asyncio leaves Nagle's delay of 40 ms on each answer
        *kind, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(*kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen on {address}:{port}: {why}") from None
    return listener


def _share_heap() -> None:
    """Make all threads share one heap of glibc.

    By default glibc gives new threads heaps of their own. What one thread frees there, the next
    thread cannot use, and the memory of the service would grow for hours.
    """
    with suppress(OSError, AttributeError):  # there is no mallopt without glibc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _end_with_input(server: uvicorn.Server) -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    server.should_exit = True


@contextmanager
def _end_in_order() -> Iterator[None]:
    """Keep the signals that uvicorn has handled, and raises again, from ending the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
