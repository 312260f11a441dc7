"""Who calls, and what they may do.

A caller shows a token (`Authorization: Bearer agt_...`), or a browser shows the cookie of its
session. What changes something over a session also needs the session's CSRF token, in the header
X-CSRF-Token or in the field `csrf` of a form. Where a proxy logs people in, it names the user in a
header, and the browser gets a session of the token of that name. A handler says who may call it by
the type of its parameter: Reader, Writer or Operator.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import parse_qsl

from anyio import Semaphore, WouldBlock
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from sqlalchemy import Connection

from allocator.queue import tokens
from allocator.queue.errors import QueueUnavailable
from allocator.queue.tokens import Token
from allocator.server.caller import VIEWER, Caller, Sessions
from allocator.server.errors import Refusal
from allocator.server.feed import Feed
from allocator.server.guard import Buckets, read_address
from allocator.server.options import ServerOptions
from allocator.server.served_queue import ServedQueue
from allocator.server.views.advice import ask_child

COOKIE = "allocator_session"
SAFE = ("GET", "HEAD", "OPTIONS")
MOST_FIELDS = 200
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """What the handlers of one service share."""

    queue: ServedQueue
    options: ServerOptions
    sessions: Sessions
    tokens: Buckets
    wrong: Buckets
    feed: Feed
    children: Semaphore

    async def advise(self, answer: Callable[..., T], *question: Any) -> T:
        """Return what a function answers in a child process (views/advice.py).

        Raises QueueUnavailable if all children are busy, and what `ask_child` raises.
        """
        try:
            self.children.acquire_nowait()
        except WouldBlock:
            raise QueueUnavailable(
                f"{self.options.most_advice} other questions are being decided; ask again in a"
                " moment"
            ) from None
        try:
            return await run_sync(ask_child, answer, self.options.advice_s, *question)
        finally:
            self.children.release()


def get_service(request: Request) -> Service:
    """Return the service that answers a request."""
    return cast(Service, request.app.state.service)


async def find_caller(request: Request) -> Caller | None:
    """Return who calls, None without a token.

    Raises Refusal for a wrong token, and for a change over a session without its CSRF token.
    """
    service = get_service(request)
    header = request.headers.get("authorization")
    if header is not None:
        caller: Caller | None = await _find_by_token(request, header)
    else:
        caller = await _find_by_cookie(request, service)
    if caller is None and service.options.open_reading and request.method in SAFE:
        caller = Caller("viewer", name="anybody")
    if caller is not None:
        request.scope["caller"] = caller
        if caller.token_id is not None:
            service.tokens.take(caller.token_id)
    return caller


async def _find_by_token(request: Request, header: str) -> Caller:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise _ask_for_token("write the header as: Authorization: Bearer TOKEN")
    token = await verify(request, secret.strip())
    return Caller(token.role, token.tenant, token.id, token.name)


async def verify(request: Request, secret: str) -> Token:
    """Return the valid token with this secret. Raises Refusal, and counts wrong ones."""
    service = get_service(request)
    address = read_address(request.scope)
    service.wrong.check(address)
    token = await _find_token(service, tokens.find, secret)
    if token is None:
        service.wrong.take(address)
        raise Refusal(401, "wrong_token", "the token is unknown, has ended, or was revoked")
    return token


async def _find_token(
    service: Service, find: Callable[[Connection, Any, float], Token | None], value: Any
) -> Token | None:
    return await service.queue.look(
        VIEWER, lambda sight: find(sight.connection, value, sight.now_s)
    )


async def _find_by_cookie(request: Request, service: Service) -> Caller | None:
    session = service.sessions.find(request.cookies.get(COOKIE, ""))
    if session is None:
        return None
    token = await _find_token(service, tokens.find_by_id, session.token_id)
    # the proxy may name another user of the same browser by now
    if token is None or _read_user(request) not in (None, token.name):
        service.sessions.end(session.key)
        return None
    if request.method not in SAFE:
        given = request.headers.get("x-csrf-token") or (await read_form(request)).get("csrf", "")
        if not secrets.compare_digest(given.encode(), session.csrf.encode()):
            raise Refusal(403, "wrong_csrf", "the form is out of date; load the page again")
    return Caller(token.role, token.tenant, token.id, token.name, session)


async def find_user(request: Request) -> Token | None:
    """Return the token of the user whom a proxy names, None if there is none to believe.

    Raises Refusal for a user without a token.
    """
    user = _read_user(request)
    if user is None:
        return None
    token = await _find_token(get_service(request), tokens.find_by_name, user)
    if token is None:
        raise Refusal(
            403, "unknown_user", "there is no token of your name; ask an operator for one"
        )
    return token


def _read_user(request: Request) -> str | None:
    """Return the name that a believed proxy gives, None without one. Two names are no name."""
    options = get_service(request).options
    if not options.user_header or read_address(request.scope) not in options.proxies:
        return None
    given = request.headers.getlist(options.user_header)
    return ", ".join(given) if given else None


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; another body has none. Raises Refusal."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        text = (await request.body()).decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise Refusal(422, "malformed", "the form is malformed") from None


def _ask_for_token(message: str) -> Refusal:
    return Refusal(401, "no_token", message)


async def read_caller(request: Request) -> Caller:
    """Return who reads. Raises Refusal without a token."""
    caller = await find_caller(request)
    if caller is None:
        raise _ask_for_token('a token is needed; an operator makes one: "allocator queue token"')
    return caller


def require_token(caller: Caller) -> None:
    """Raise Refusal for a caller without a token, where reading is open: it would cost too much."""
    if caller.token_id is None:
        raise _ask_for_token("this needs a token, also where reading is open")


def _require(right: str, message: str) -> Any:
    """Return what lets only callers with a right pass."""

    async def check(caller: Reader) -> Caller:
        if not getattr(caller, right):
            raise Refusal(403, "forbidden", message)
        return caller

    return Depends(check)


Reader = Annotated[Caller, Depends(read_caller)]
Writer = Annotated[Caller, _require("can_write", "a viewer changes nothing")]
Operator = Annotated[Caller, _require("is_operator", "only an operator may do this")]
Served = Annotated[Service, Depends(get_service)]
Form = Annotated[Mapping[str, str], Depends(read_form)]
