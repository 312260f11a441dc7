"""What every request passes before a handler sees it, and what every answer gets.

- The name in the URL must be one of the service's own. Otherwise a foreign page whose name is
  pointed at this machine (DNS rebinding) could use the service.
- A request that another origin's page makes is refused.
- Bodies have a largest size and must arrive in time; answers must be taken in time.
- Every answer says that a browser may load nothing from elsewhere and show it nowhere else.
- One line of the log for each request, without the query, headers or body.
- Token buckets limit how often a client may ask: by token, by address, and with wrong tokens.
"""

import ipaddress
import json
import math
import time
import traceback
from asyncio import timeout
from collections import OrderedDict
from collections.abc import Hashable
from typing import TextIO
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allocator.objects import Json
from allocator.server.errors import Refusal, to_refusal
from allocator.server.options import ServerOptions

MOST_CLIENTS = 20_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # with "no-referrer" browsers would send "Origin: null" with the forms of our own pages
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
OWN_FETCHES = ("same-origin", "none")
LONGEST_PATH = 300  # characters of a path in the log


class Buckets:
    """The buckets of many clients, and what a client is told whose bucket is empty.

    A bucket holds `burst` requests and is refilled by `rate` a second. Only the latest clients are
    remembered, so the memory is bounded; a forgotten client has a full bucket.
    """

    def __init__(self, rate: float, burst: float, message: str) -> None:
        self.rate = rate
        self.burst = burst
        self.message = message
        self._level: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def check(self, client: Hashable) -> float:
        """Return how many requests the client may make now. Raises Refusal if there is none."""
        level, at = self._level.get(client, (self.burst, 0.0))
        level = min(self.burst, level + self.rate * (time.monotonic() - at))
        if level < 1.0:
            seconds = max(1, math.ceil((1.0 - level) / self.rate))
            raise Refusal(429, "too_many", self.message, headers={"Retry-After": str(seconds)})
        return level

    def take(self, client: Hashable) -> None:
        """Count a request. Raises Refusal if it is one too many."""
        self._level[client] = self.check(client) - 1.0, time.monotonic()
        self._level.move_to_end(client)
        while len(self._level) > MOST_CLIENTS:
            self._level.popitem(last=False)


class Guard:
    """The outermost layer of the service."""

    def __init__(self, app: ASGIApp, options: ServerOptions, log: TextIO) -> None:
        self.app = app
        self.options = options
        self.addresses = Buckets(
            options.address_rate, options.address_burst, "too many requests of this address"
        )
        self.log = log
        self.names = {"localhost", *(name.lower() for name in options.names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.monotonic()
        status = 0
        received = 0
        is_started = False
        deadline = start + self.options.body_s

        async def receive_some() -> Message:
            nonlocal received
            if is_started or received < 0:
                return await receive()
            try:
                async with timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise Refusal(408, "too_slow", "the body did not arrive in time") from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self.options.most_body_bytes:
                    raise self._refuse_size()
                if not message.get("more_body", False):
                    received = -1
            return message

        async def send_some(message: Message) -> None:
            nonlocal status, is_started
            if message["type"] == "http.response.start":
                is_started = True
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            async with timeout(self.options.send_s):
                await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive_some, send_some)
        except Refusal as refusal:
            scope["refused"] = refusal.code
            await refusal.to_response()(scope, receive, send_some)
        except TimeoutError:
            scope["refused"] = "slow_reader"
            scope.get("drop", print)("slow reader")
        except Exception as error:
            scope["error"] = error
            if not is_started:
                await to_refusal(error).to_response()(scope, receive, send_some)
        finally:
            self._write_log(scope, status, time.monotonic() - start)

    def _check(self, scope: Scope) -> None:
        self.addresses.take(read_address(scope))
        headers = Headers(scope=scope)
        authority = headers.getlist("host")
        if len(authority) != 1 or not self._is_own(authority[0]):
            raise Refusal(421, "unknown_name", "the service has another name; --name NAME adds one")
        own = f"{scope['scheme']}://{authority[0]}".lower()
        behind = f"https://{authority[0]}".lower() if self.options.tls else own
        # a person may follow a link to a page, which reads and shows it only to them
        modes = headers.getlist("sec-fetch-mode")
        is_visit = scope["method"] == "GET" and modes == ["navigate"]
        is_foreign = not {*headers.getlist("sec-fetch-site")} <= {*OWN_FETCHES}
        if any(origin.lower() not in (own, behind) for origin in headers.getlist("origin")) or (
            is_foreign and not is_visit
        ):
            raise Refusal(403, "foreign_origin", "a page of another origin may not ask this")
        lengths = headers.getlist("content-length")
        if any(n.isdigit() and int(n) > self.options.most_body_bytes for n in lengths):
            raise self._refuse_size()

    def _is_own(self, authority: str) -> bool:
        """Return whether an authority, NAME or NAME:PORT, is an IP address or a known name."""
        try:
            name = urlsplit(f"//{authority}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _refuse_size(self) -> Refusal:
        return Refusal(
            413,
            "too_large",
            f"the body is larger than {self.options.most_body_bytes} bytes",
            headers={"Connection": "close"},
        )

    def _write_log(self, scope: Scope, status: int, took_s: float) -> None:
        caller = scope.get("caller")
        row: Json = {
            "at_s": round(time.time(), 3),
            "event": "request",
            "method": scope["method"],
            "path": scope["path"][:LONGEST_PATH],
            "status": status,
            "seconds": round(took_s, 4),
            "address": read_address(scope),
            "token": getattr(caller, "token_id", None),
        }
        if "refused" in scope:
            row["refused"] = scope["refused"]
        if "error" in scope:
            row["error"] = _describe(scope["error"])
        write_line(self.log, row)


def read_address(scope: Scope) -> str:
    """Return the address of the client."""
    client = scope.get("client")
    return client[0] if client else ""


def write_line(log: TextIO, row: Json) -> None:
    """Write one line of the log; a full disk or a closed pipe is ignored."""
    try:
        log.write(json.dumps(row, default=str) + "\n")
        log.flush()
    except (OSError, ValueError):
        return


def _describe(error: BaseException) -> list[str]:
    """Return where an unexpected error was raised; its text may hold a secret, and is left out."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    return [type(error).__name__, *(f"{f.filename}:{f.lineno} {f.name}" for f in frames)]
