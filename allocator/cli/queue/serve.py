"""`allocator serve`: the HTTP service of a queue."""

import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from allocator import UsageError
from allocator.cli.output import warn
from allocator.cli.parsing import take
from allocator.cli.queue.commands import LISTEN
from allocator.controller.reporting.telemetry import open_log

END_S = 10.0  # seconds that the service has to end
LOOPBACK = ("127.", "localhost", "::1")


def serve(args: Namespace) -> int:
    from allocator.server.options import ServerOptions
    from allocator.server.serving import serve as serve_queue

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
        serve_queue(
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
