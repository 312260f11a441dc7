"""The API for programs, under /api/v1."""

from fastapi import APIRouter

from allocator.objects import Json
from allocator.server.api import cluster, jobs, rounds
from allocator.server.api.models import ErrorAnswer

ERRORS: dict[int | str, Json] = {
    status: {"model": ErrorAnswer, "description": words}
    for status, words in (
        (400, "the request makes no sense"),
        (401, "no token, or a wrong one"),
        (403, "the role does not allow it"),
        (404, "it does not exist, or may not be seen"),
        (409, "the state does not allow it"),
        (422, "the request does not have the documented form, or breaks a rule of the input"),
        (429, "too many requests; Retry-After says when to ask again"),
        (504, "the limited time was too short"),
        (503, "the service or the database is busy; nothing was changed"),
    )
}
router = APIRouter(prefix="/api/v1", responses=ERRORS)
for module in (jobs, rounds, cluster):
    router.include_router(module.router)
