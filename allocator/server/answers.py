"""The answer to a request that fails: in the form of the API, or as a page for a browser."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from allocator.errors import AllocatorError
from allocator.server.errors import to_refusal
from allocator.server.pages.logins import render_refusal

API = "/api/"


def add_handlers(app: FastAPI) -> None:
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
