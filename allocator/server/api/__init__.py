"""The API for programs, under /api/v1."""

from __future__ import annotations

from fastapi import APIRouter

from allocator.server.api import jobs

router = APIRouter(prefix="/api/v1")
router.include_router(jobs.router)
