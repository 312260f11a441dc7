"""The API for programs, under /api/v1, and its OpenAPI document."""

from fastapi import APIRouter, FastAPI

from allocator.objects import Json
from allocator.server.api import cluster, jobs, rounds
from allocator.server.api.models import ErrorAnswer

ABOUT = """\
Jobs, pools, nodes, tenants, rounds and advice of one queue. Every request needs a token:
`Authorization: Bearer agt_...`. Times are unix seconds, work is in the unit of its model. Errors
have the form of ErrorAnswer.\
"""
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


def build_document() -> Json:
    """Return the document, which depends on this version of the program only."""
    # a call is named like its function: generated clients use these names
    app = FastAPI(
        title="allocator",
        version="1",
        description=ABOUT,
        generate_unique_id_function=lambda route: route.name,
    )
    app.include_router(router)
    document = app.openapi()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document
