"""The plans of rounds, which are kept for the next request."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection

from allocator.controller.reporting.journal import read_plan as read_document
from allocator.objects import Json, Record
from allocator.queue.database.rows import query

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
    reasons: Mapping[str, int]

    def list_entries(self, tenant: str | None) -> list[Json]:
        """Return the entries that a member of a tenant may see; None: all."""
        entries = self.jobs.values()
        return [show_entry(e, tenant) for e in entries if tenant in (None, e["tenant"])]


def show_entry(entry: Record, tenant: str | None) -> Json:
    """Return an entry of plan.json; with a tenant, without the name of another tenant's job."""
    return dict(entry) if tenant is None else {**entry, "shared_with": None}


def read_plan(connection: Connection, number: int | None = None) -> RoundPlan | None:
    """Return the plan of a round, by default the latest; None if there was none or it is gone."""
    asked = query(connection, _LAST) if number is None else query(connection, _NUMBERED, number)
    for found, at_s, content in asked:
        return RoundPlan(int(found), float(at_s), *_parse(bytes(content)))
    return None


@lru_cache(maxsize=KEPT)
def _parse(content: bytes) -> tuple[Json, Json, dict[str, int]]:
    """Return plan.json without its jobs, these by name, and the number of jobs by reason."""
    document = read_document(content)
    jobs = {job["job_id"]: job for job in document.pop("jobs")}
    reasons = Counter(job["reason"] for job in jobs.values() if job["reason"])
    return document, jobs, dict(reasons.most_common())
