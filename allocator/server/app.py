"""The application: routes, errors, limits, and the queue behind them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TextIO

from anyio import Semaphore
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from allocator.errors import AllocatorError
from allocator.server import api, pages
from allocator.server.access import Reader, Service
from allocator.server.api import build_document
from allocator.server.caller import Sessions
from allocator.server.errors import to_refusal
from allocator.server.feed import Feed
from allocator.server.guard import Buckets, Guard
from allocator.server.options import ServerOptions
from allocator.server.pages.logins import render_refusal
from allocator.server.pages.rendering import load_templates
from allocator.server.served_queue import ServedQueue

API = "/api/"


def create_app(
    queue: str, options: ServerOptions | None = None, log: TextIO | None = None
) -> FastAPI:
    """Return the HTTP service of a queue, for a server such as uvicorn.

    Parameters
    ----------
    queue : str
        Path or URL of the queue, which exists.
    options : ServerOptions, optional
        Limits and rights.
    log : text file, optional
        Where a line for each request goes. Default: standard error.

    Raises
    ------
    InvalidInput
        If there is no such queue.
    QueueUnavailable
        If it cannot be reached.
    """
    chosen = options or ServerOptions()
    wrong = chosen.wrong_tokens_per_minute
    opened = ServedQueue(queue, chosen)
    service = Service(
        opened,
        chosen,
        Sessions(chosen.session_s),
        Buckets(chosen.rate, chosen.burst, "the token asks too often"),
        Buckets(wrong / 60.0, wrong, "too many wrong tokens of this address"),
        Feed(opened, chosen),
        Semaphore(chosen.most_advice),
    )

    @asynccontextmanager
    async def live(_app: FastAPI) -> AsyncIterator[None]:
        load_templates()
        await service.feed.look_once()
        reader = asyncio.create_task(service.feed.run())
        yield
        reader.cancel()
        opened.close()

    app = FastAPI(
        title="allocator",
        version="1",
        lifespan=live,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    app.include_router(api.router)
    app.include_router(pages.router)
    app.add_api_route("/healthz", _answer_health, include_in_schema=False)
    app.add_api_route("/api/v1/openapi.json", _show_document, include_in_schema=False)
    _add_handlers(app)
    app.add_middleware(Guard, options=chosen, log=log or sys.stderr)
    return app


@cache
def _render_document() -> str:
    return json.dumps(build_document())


async def _show_document(caller: Reader) -> Response:
    """Show the OpenAPI document."""
    return Response(_render_document(), media_type="application/json")


async def _answer_health() -> PlainTextResponse:
    """Say that the service is alive."""
    return PlainTextResponse("ok\n")


def _add_handlers(app: FastAPI) -> None:
    """Answer the errors of handlers; the guard answers those that nobody expects."""

    async def answer(request: Request, error: Exception) -> Response:
        refusal = to_refusal(error)
        request.scope["refused"] = refusal.code
        is_page = not request.url.path.startswith(API)
        if is_page and "text/html" in request.headers.get("accept", ""):
            return render_refusal(request, refusal)
        return refusal.to_response()

    for kind in (RequestValidationError, HTTPException, AllocatorError):
        app.add_exception_handler(kind, answer)
