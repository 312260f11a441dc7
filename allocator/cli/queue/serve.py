"""`allocator serve`: the HTTP service of a queue."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from allocator.cli.output import warn
from allocator.cli.parsing import add_queue, duration, number
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


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        examples=EXAMPLES,
        help="the pages and the HTTP API of a queue",
        description=ABOUT,
    )
    add_queue(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        default=LISTEN,
        help=f"where to listen; port 0 is a free one (default: {LISTEN})",
    )
    parser.add_argument(
        "--open-reading",
        action="store_true",
        help="whoever reaches the service reads as a viewer, without a token",
    )
    parser.add_argument(
        "--name",
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="a name in its URL besides localhost and IP addresses; may be repeated",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate, for https")
    parser.add_argument("--tls-key", metavar="FILE", help="key of the certificate")
    parser.add_argument(
        "--behind-tls",
        action="store_true",
        help="another server in front of this one speaks https",
    )
    parser.add_argument(
        "--user-header",
        metavar="HEADER",
        default="",
        help="a proxy in front logs people in and names them in this header: each has the rights of"
        " the token of that name",
    )
    parser.add_argument(
        "--proxy",
        dest="proxies",
        action="append",
        metavar="ADDRESS",
        help="address of that proxy; may be repeated (default: this machine)",
    )
    parser.add_argument(
        "--rate",
        type=number(0.1),
        metavar="N",
        help="requests per second of one token (default: 20)",
    )
    parser.add_argument(
        "--advice-limit",
        type=duration(1.0),
        metavar="TIME",
        help="seconds that a what-if or an explanation may take (default: 30)",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="append JSON lines to FILE (default: standard error)"
    )
    parser.add_argument("--ends-with-input", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(call=call)


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
    given = {"rate": args.rate, "advice_s": args.advice_limit, "proxies": args.proxies}
    options = ServerOptions(
        open_reading=args.open_reading,
        names=tuple(args.names),
        user_header=args.user_header,
        tls=tls,
        **{name: value for name, value in given.items() if value is not None},
    )
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


def parse_address(text: str, option: str = "--listen", here: str = "") -> tuple[str, int]:
    """Return address and port of ADDRESS:PORT, or `here` and PORT. Raises UsageError."""
    address, sign, port = text.rpartition(":")
    if not (sign or here) or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'{option} "{text}": write ADDRESS:PORT, such as {LISTEN}')
    return address.strip("[]") or (here if not sign else "0.0.0.0"), int(port)
