"""The OpenAPI document of the API."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from allocator.server import api

ABOUT = """\
Jobs, pools, nodes, tenants, rounds and advice of one queue. Every request needs a token:
`Authorization: Bearer agt_...`. Times are unix seconds, work is in the unit of its model. Errors
have the form of ErrorAnswer.\
"""


def build_document() -> dict[str, Any]:
    """Return the document, which depends on this version of the program only."""
    # a call is named like its function: generated clients use these names
    app = FastAPI(openapi_url=None, generate_unique_id_function=lambda route: route.name)
    app.include_router(api.router)
    document = get_openapi(
        title="allocator",
        version="1",
        openapi_version="3.1.0",
        description=ABOUT,
        routes=app.routes,
    )
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document
