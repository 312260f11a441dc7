"""What a caller sees of a queue in one transaction: the first argument of all views.

Parsed plans of rounds are kept for the next request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Connection

from allocator.io.plans import read_plan as read_document
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.database.rows import query
from allocator.server.caller import VIEWER, Caller

KEPT = 4  # parsed plans; one of 10,000 jobs takes some 20 MB
_PLANS = "SELECT number, at_s, plan FROM rounds WHERE plan IS NOT NULL"
_NUMBERED = f"{_PLANS} AND number = ?"
_LAST = f"{_PLANS} AND number = (SELECT MAX(number) FROM rounds WHERE plan IS NOT NULL)"


@dataclass(frozen=True)
class RoundPlan:
    """The plan of one round: plan.json without its jobs, and these by name."""

    number: int
    at_s: float
    content: Record
    jobs: dict[str, Record]

    def list_entries(self, tenant: str | None) -> list[Json]:
        """Return the entries that a member of a tenant may see; None: all."""
        entries = self.jobs.values()
        return [show_entry(e, tenant) for e in entries if tenant in (None, e["tenant"])]


def show_entry(entry: Record, tenant: str | None) -> Json:
    """Return an entry of plan.json; with a tenant, without the name of another tenant's job."""
    return dict(entry) if tenant is None else {**entry, "shared_with": None}


def read_plan(connection: Connection, number: int | None = None) -> RoundPlan | None:
    """Return the plan of a round, by default the latest; None if there was none or it is gone."""
    rows = query(connection, _LAST) if number is None else query(connection, _NUMBERED, number)
    for round_number, at_s, content in rows:
        return RoundPlan(int(round_number), float(at_s), *_parse(bytes(content)))
    return None


@lru_cache(maxsize=KEPT)
def _parse(content: bytes) -> tuple[Json, Json]:
    """Return plan.json without its jobs, and these by name."""
    document = read_document(content)
    return document, {job["job_id"]: job for job in document.pop("jobs")}


@dataclass(frozen=True)
class Sight:
    """An open transaction, the present in unix seconds, and who looks.

    `size` is the number of rows of a page of a list. `rows` keeps rows of jobs for other looks, by
    all that they depend on.
    """

    connection: Connection
    now_s: float
    caller: Caller = VIEWER
    size: int = 50
    rows: dict[Any, Any] = field(default_factory=dict)

    @property
    def tenant(self) -> str | None:
        """The tenant whose jobs are all that can be seen; None: all jobs."""
        return self.caller.only_tenant

    @cached_property
    def plan(self) -> RoundPlan | None:
        """The latest plan of the journal, None before the first one."""
        return read_plan(self.connection)

    @property
    def entries(self) -> Mapping[str, Record]:
        """The jobs of the latest plan by name."""
        return {} if self.plan is None else self.plan.jobs

    @cached_property
    def config(self) -> Record:
        """The settings of the queue."""
        return cluster_tables.config(self.connection)
