"""`allocator serve`: the HTTP service of a queue."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from allocator.cli.output import warn
from allocator.cli.parsing import (
    QUEUE,
    command,
    duration,
    flag,
    number,
    option,
    repeated,
    take,
)
from allocator.errors import UsageError

EXAMPLES = """
allocator serve cluster.db                                     http://127.0.0.1:8642, with tokens
allocator serve cluster.db --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --name \
gpus.example.org
allocator serve cluster.db --open-reading                      reading without a token
allocator serve cluster.db --behind-tls --name gpus.example.org --user-header X-Forwarded-User
"""
ABOUT = """\
Serves the pages for people and the API for programs, until SIGTERM. Reading and changing needs a
token, which "allocator queue token add" makes. It runs next to the controller, or without one."""
LISTEN = "127.0.0.1:8642"
END_S = 10.0  # seconds that the service has to end
LOOPBACK = ("127.", "localhost", "::1")


@command(
    "serve",
    "the pages and the HTTP API of a queue",
    ABOUT,
    EXAMPLES,
    QUEUE,
    option(
        "--listen",
        "ADDRESS:PORT",
        f"where to listen; port 0 is a free one (default: {LISTEN})",
        default=LISTEN,
    ),
    flag("--open-reading", "whoever reaches the service reads as a viewer, without a token"),
    repeated(
        "--name",
        "NAME",
        "a name in its URL besides localhost and IP addresses; may be repeated",
        dest="names",
    ),
    option("--tls-cert", "FILE", "certificate, for https"),
    option("--tls-key", "FILE", "key of the certificate"),
    flag("--behind-tls", "another server in front of this one speaks https"),
    option(
        "--user-header",
        "HEADER",
        "a proxy in front logs people in and names them in this header: each has the rights of the"
        " token of that name",
    ),
    repeated(
        "--proxy",
        "ADDRESS",
        "address of that proxy; may be repeated (default: this machine)",
        dest="proxies",
        default=None,
    ),
    option("--rate", "N", "requests per second of one token (default: 20)", number(0.1)),
    option(
        "--advice-limit",
        "TIME",
        "seconds that a what-if or an explanation may take (default: 30)",
        duration(1.0),
        dest="advice_s",
    ),
    option("--log", "FILE", "append JSON lines to FILE (default: standard error)"),
    flag("--ends-with-input", argparse.SUPPRESS),
)
def call(args: argparse.Namespace) -> int:
    from allocator.controller.reporting.telemetry import open_log
    from allocator.server.options import ServerOptions
    from allocator.server.serving import serve

    address, port = parse_address(args.listen)
    if (args.tls_cert is None) != (args.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    certificate = None if args.tls_cert is None else (args.tls_cert, args.tls_key)
    tls = certificate is not None or args.behind_tls
    if not tls and not address.startswith(LOOPBACK):
        warn(
            [
                "without https, whoever sees the network reads the tokens; give --tls-cert and"
                " --tls-key, or --behind-tls"
            ]
        )
    options = take(ServerOptions, args, tls=tls)
    with ExitStack() as stack:
        log = sys.stderr if args.log is None else stack.enter_context(open_log(Path(args.log)))
        serve(
            args.queue,
            address,
            port,
            options,
            certificate=certificate,
            log=log,
            ends_with_input=args.ends_with_input,
        )
    return 0


@contextmanager
def served(queue: str, listen: str) -> Iterator[None]:
    """Serve a queue in a process of its own, which ends with this one, however that ends.

    So no request takes time from the rounds of a controller in this process.
    """
    import subprocess  # help is quick without it

    parse_address(listen)
    command = (sys.executable, "-m", "allocator", "serve", queue, "--listen", listen)
    child = subprocess.Popen((*command, "--ends-with-input"), stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def parse_address(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return address and port of ADDRESS:PORT. Raises UsageError."""
    address, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'{option} "{text}": write ADDRESS:PORT, such as {LISTEN}')
    return address.strip("[]") or "0.0.0.0", int(port)
