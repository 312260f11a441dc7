"""The events of the queue as a stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from allocator.server.access import Reader, Served

router = APIRouter(tags=["events"])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow_events(
    caller: Reader,
    served: Served,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> StreamingResponse:
    """Follow what changes, as server-sent events.

    The kinds are `job`, `round`, `pools`, `counts` and `nodes`; `start` comes first. A client that
    comes back with the header Last-Event-ID gets what it missed. `reset` says that this is no
    longer known, and that everything should be read again. A member gets jobs of its tenant only.
    """
    served.feed.enter(caller)
    return StreamingResponse(
        served.feed.follow(caller, last_event_id),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )
