"""Events: what changed in the queue, found by one reader for all who follow.

The reader compares the present state with the one before: jobs and what they hold, rounds, pools,
and jobs by state. So an event says how things are now, and changes between two looks are one
event. Events are kept in memory with a number. A client that comes back with the number of the last
event that it has seen gets the later ones. Where they are no longer kept, it gets `reset`, and
reads everything again.
"""

import asyncio
import json
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from allocator.errors import AllocatorError
from allocator.objects import Record
from allocator.queue import cluster_tables, round_journal, tokens
from allocator.queue.database.rows import query, query_of
from allocator.queue.database.schema import ACTIVE, DEFAULT_TENANT, OPEN
from allocator.queue.jobs import verbs
from allocator.server.caller import VIEWER, Caller
from allocator.server.errors import Refusal
from allocator.server.options import ServerOptions
from allocator.server.served_queue import ServedQueue
from allocator.server.views.sight import Sight, read_plan

KEPT = 10_000  # events
ALIVE_S = 15.0  # seconds after which a silent stream sends a comment
SHARE = 0.1  # largest share of the time that the reader looks
MOST_BATCHES = 100
MOST_ROUNDS = 100  # new rounds of one look
ROUND_FIELDS = ("number", "at_s", "policy", "status", "outcome", "value", "bound", "gap")
JOB_FIELDS = ("job_id", "tenant", "model", "state", "request", "pool", "gpus", "phase")
_JOBS = (
    "SELECT j.job_id, j.tenant, j.model, j.state, j.request, a.pool, a.gpus, a.phase FROM jobs j"
    f" LEFT JOIN allocations a ON a.job_id = j.job_id AND a.phase IN {OPEN}"
)
_ACTIVE = f"{_JOBS} WHERE j.state IN {ACTIVE}"
_NAMED = f"{_JOBS} WHERE j.job_id IN ({{names}})"


@dataclass(frozen=True)
class Seen:
    """The state of a queue at one look.

    `things` are by kind and name: jobs are rows, other things the content of their event. Jobs
    that were active at the look before are of the kind "over".
    """

    things: Mapping[tuple[str, Any], Any] = field(default_factory=dict)
    round: int = 0
    tokens: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """One event, ready to be sent; `tenant` is that of a job, None for what all may see."""

    tenant: str | None
    text: bytes


def look(connection: Connection, before: Seen, now_s: float) -> Seen:
    """Return the present state of the queue."""
    things: dict[tuple[str, Any], Any] = {
        ("job", row[0]): tuple(row) for row in query(connection, _ACTIVE)
    }
    gone = [name for kind, name in before.things if kind == "job" and (kind, name) not in things]
    things |= {("over", row[0]): tuple(row) for row in query_of(connection, _NAMED, gone)}
    last = round_journal.count_rounds(connection)
    first = max(before.round, last - MOST_ROUNDS) + 1
    for entry in round_journal.read_light(connection, first, last):
        things["round", entry.number] = {name: getattr(entry, name) for name in ROUND_FIELDS}
    used, gpus = cluster_tables.used(connection), cluster_tables.gpus(connection)
    things["pools", ""] = {"pools": {p: {"gpus": gpus[p], "used": used[p]} for p in gpus}}
    things["counts", ""] = {"counts": verbs.counts(connection)}
    things["nodes", ""] = {"changes": cluster_tables.count_node_changes(connection)}
    valid = frozenset(t.id for t in tokens.list_tokens(connection) if t.is_valid(now_s))
    return Seen(things, last, valid)


class Feed:
    """The events of one service, and who follows them; used in the event loop only."""

    def __init__(self, queue: ServedQueue, options: ServerOptions) -> None:
        self.queue = queue
        self.options = options
        self.followers: Counter[int | None] = Counter()
        self._epoch = secrets.token_hex(4)  # numbers of another start of the service are unknown
        self._seen: Seen | None = None
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._end = 0  # number of the last event
        self._looks = 0
        self._news = asyncio.Event()
        self._batches: dict[tuple[int, str | None], bytes] = {}

    async def run(self) -> None:
        """Look for changes for ever; a database that is out of reach is tried again."""
        while True:
            start = time.monotonic()
            await self.look_once()
            took = time.monotonic() - start
            await asyncio.sleep(max(self.options.poll_s, took * (1 / SHARE - 1)))

    async def look_once(self) -> None:
        """Look for changes, unless the database is out of reach."""
        before = self._seen or Seen()

        def read(sight: Sight) -> Seen:
            seen = look(sight.connection, before, sight.now_s)
            if seen.round != before.round:
                read_plan(sight.connection)  # parses it, so that the next request need not
            return seen

        try:
            after = await self.queue.look(VIEWER, read)
        except AllocatorError:
            return
        changes = [key for key, now in after.things.items() if before.things.get(key) != now]
        changes = changes if self._seen is not None else []
        self._seen = after
        self._looks += 1
        for key in changes:
            kind, content, tenant = key[0], after.things[key], None
            if kind in ("job", "over"):
                kind, row = "job", dict(zip(JOB_FIELDS, content, strict=True))
                tenant = row["tenant"] or DEFAULT_TENANT
                content = row | {"tenant": tenant, "gpus": row["gpus"] or 0}
            self._end += 1
            self._events.append(Event(tenant, self._write(kind, content)))
        if changes or after.tokens != before.tokens:
            self._batches.clear()
            news = self._news
            self._news = asyncio.Event()
            news.set()

    def _write(self, kind: str, content: Record | None = None) -> bytes:
        """Return the text of the last event."""
        number = f"{self._epoch}-{self._end}"
        return f"id: {number}\nevent: {kind}\ndata: {json.dumps(content or {})}\n\n".encode()

    def enter(self, caller: Caller) -> None:
        """Count a follower. Raises Refusal if there are too many."""
        options = self.options
        is_full = self.followers.total() >= options.most_followers
        if is_full or self.followers[caller.token_id] >= options.most_followers_of_token:
            raise Refusal(503, "busy", "too many follow the events")
        self.followers[caller.token_id] += 1

    def leave(self, caller: Caller) -> None:
        """Forget a follower."""
        self.followers -= Counter((caller.token_id,))  # which keeps no zeros

    async def follow(self, caller: Caller, last: str) -> AsyncIterator[bytes]:
        """Yield the events after one that the client has seen ("": from now on)."""
        try:
            number = self._find(last)
            if number is None:
                number = self._end
                yield self._write("reset" if last else "start")
            tenant = caller.only_tenant
            first = self._looks + 1  # an earlier look may not know a new token
            while self._looks <= first or self._may_follow(caller):
                news = self._news
                if number < self._end - len(self._events):
                    yield self._write("reset")
                    number = self._end
                text = self._read_after(number, tenant)
                number = self._end
                if text:
                    yield text
                try:
                    async with asyncio.timeout(ALIVE_S):
                        await news.wait()
                except TimeoutError:
                    yield b": alive\n\n"
        finally:
            self.leave(caller)

    def _may_follow(self, caller: Caller) -> bool:
        """Return whether the token of a follower is still valid."""
        is_known = self._seen is not None and caller.token_id in self._seen.tokens
        return caller.token_id is None or is_known

    def _find(self, last: str) -> int | None:
        """Return the number of the last event that a client has seen, None if it is not kept."""
        epoch, _, number = last.partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 15:
            return None
        event = int(number)
        return event if self._end - len(self._events) <= event <= self._end else None

    def _read_after(self, number: int, tenant: str | None) -> bytes:
        """Return the later events that a tenant may see; None: all. Most followers share one."""
        key = number, tenant
        if key not in self._batches:
            if len(self._batches) >= MOST_BATCHES:
                self._batches.clear()
            first = len(self._events) - (self._end - number)
            self._batches[key] = b"".join(
                event.text
                for event in islice(self._events, first, None)
                if tenant is None or event.tenant in (None, tenant)
            )
        return self._batches[key]
