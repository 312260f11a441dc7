"""Errors of the HTTP service: one form for all of them, and the status of each error of the queue.

{"schema_version": 1, "error": {"code": "not_found", "message": "...", "faults": [...]}}
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from allocator.errors import (
    AllocatorError,
    Infeasible,
    InvalidInput,
    NoPlanInTime,
    UsageError,
)
from allocator.objects import Json
from allocator.queue.errors import QueueUnavailable, Refused

SCHEMA_VERSION = 1
STATUS: tuple[tuple[type[AllocatorError], int, str], ...] = (
    (Refused, 409, "refused"),
    (QueueUnavailable, 503, "queue_unavailable"),
    (InvalidInput, 422, "invalid_input"),
    (Infeasible, 422, "infeasible"),
    (NoPlanInTime, 504, "no_plan_in_time"),
    (UsageError, 400, "usage"),
    (AllocatorError, 500, "internal"),
)
"""Error of the queue, status and code; the first that fits counts."""
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}
"""Headers of the answers with a status."""
MOST_FAULTS = 100


class Refusal(HTTPException):
    """A request that is refused, with its HTTP status and a code for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        faults: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, {**HEADERS.get(status, {}), **(headers or {})})
        self.code = code
        self.faults = tuple(faults[:MOST_FAULTS])

    def to_response(self) -> JSONResponse:
        """Return the answer for programs."""
        error: Json = {"code": self.code, "message": self.detail}
        if self.faults:
            error["faults"] = list(self.faults)
        content = {"schema_version": SCHEMA_VERSION, "error": error}
        return JSONResponse(content, self.status_code, dict(self.headers or {}))


@contextmanager
def as_missing() -> Iterator[None]:
    """Answer that what a reader asks for is not there, where the queue says so."""
    try:
        yield
    except UsageError as error:
        raise Refusal(404, "not_found", str(error)) from None


def to_refusal(error: Exception) -> Refusal:
    """Return what a client is told about an error; an unexpected one shows nothing of itself."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _malformed(error)
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method"}.get(error.status_code, "refused")
        return Refusal(error.status_code, code, str(error.detail), headers=error.headers)
    if isinstance(error, AllocatorError):
        status, code = next(
            (status, code) for kind, status, code in STATUS if isinstance(error, kind)
        )
        faults = [str(fault) for fault in getattr(error, "faults", ())]
        return Refusal(status, code, str(error), faults=faults)
    return Refusal(500, "internal", "internal error; the log of the service has it")


def _malformed(error: RequestValidationError) -> Refusal:
    """Return the faults of a request by place, without the values, which may be huge."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc'])[:200]}: {str(fault['msg'])[:200]}"
        for fault in error.errors()
    ]
    return Refusal(422, "malformed", "the request does not have the documented form", faults=faults)
