"""Jobs over HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from allocator.queue.jobs import verbs
from allocator.server.access import Reader, Served
from allocator.server.errors import SCHEMA_VERSION

router = APIRouter(tags=["jobs"])


class Counts(BaseModel):
    """Jobs by state."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"counts": {"queued": 3}}]})

    schema_version: int = SCHEMA_VERSION
    counts: dict[str, int]


@router.get("/counts")
async def count_jobs(caller: Reader, served: Served) -> Counts:
    """Count the jobs of all tenants by state."""
    return Counts(counts=await served.queue.look(verbs.counts))
