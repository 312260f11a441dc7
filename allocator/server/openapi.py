"""The OpenAPI document of the API."""

from fastapi import FastAPI

from allocator.objects import Json
from allocator.server import api

ABOUT = """\
Jobs, pools, nodes, tenants, rounds and advice of one queue. Every request needs a token:
`Authorization: Bearer agt_...`. Times are unix seconds, work is in the unit of its model. Errors
have the form of ErrorAnswer.\
"""


def build_document() -> Json:
    """Return the document, which depends on this version of the program only."""
    # a call is named like its function: generated clients use these names
    app = FastAPI(
        title="allocator",
        version="1",
        description=ABOUT,
        generate_unique_id_function=lambda route: route.name,
    )
    app.include_router(api.router)
    document = app.openapi()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document
