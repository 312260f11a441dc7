"""Run the HTTP service: a socket, uvicorn, and an orderly end."""

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import uvicorn

from allocator.errors import UsageError
from allocator.server.app import create_app
from allocator.server.connections import Connections
from allocator.server.guard import write_line
from allocator.server.options import ServerOptions

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
