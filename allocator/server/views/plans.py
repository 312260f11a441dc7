"""The plans of the journal, read once and kept for the next request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from allocator.controller.reporting.journal import read_plan as read_document
from allocator.queue.database.bulk import query

KEPT = 4  # parsed plans; one of 10,000 jobs takes some 20 MB
_LAST = (
    "SELECT number, at_s, plan FROM rounds WHERE number ="
    " (SELECT MAX(number) FROM rounds WHERE plan IS NOT NULL)"
)
_ONE = "SELECT number, at_s, plan FROM rounds WHERE number = ? AND plan IS NOT NULL"


@dataclass(frozen=True)
class PlanDocument:
    """A plan of the journal: plan.json, and its jobs by name."""

    content: Mapping[str, Any]
    jobs: Mapping[str, Mapping[str, Any]]
    reasons: Mapping[str, int]

    @property
    def budget_per_hour(self) -> float | None:
        """US dollars per hour that the round could spend, None = no limit."""
        per_hour: float | None = self.content["budget"]["per_hour"]
        return per_hour


@dataclass(frozen=True)
class RoundPlan:
    """The plan of one round."""

    number: int
    at_s: float
    document: PlanDocument

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """What the plan gives each job: the entries of plan.json by job_id."""
        return self.document.jobs

    def list_entries(self, tenant: str | None) -> list[dict[str, Any]]:
        """Return the entries that a member of a tenant may see; None: all."""
        entries = self.jobs.values()
        return [show_entry(e, tenant) for e in entries if tenant in (None, e["tenant"])]


def show_entry(entry: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
    """Return an entry of plan.json; with a tenant, without the name of another tenant's job."""
    return dict(entry) if tenant is None else {**entry, "shared_with": None}


def read_last_plan(connection: Connection) -> RoundPlan | None:
    """Return the latest plan of the journal, None before the first one."""
    return _build_plan(query(connection, _LAST))


def read_plan(connection: Connection, number: int) -> RoundPlan | None:
    """Return the plan of a round; None if it had none, or it is no longer kept."""
    return _build_plan(query(connection, _ONE, number))


def _build_plan(rows: list[tuple[Any, ...]]) -> RoundPlan | None:
    for number, at_s, content in rows:
        return RoundPlan(int(number), float(at_s), _parse(bytes(content)))
    return None


@lru_cache(maxsize=KEPT)
def _parse(content: bytes) -> PlanDocument:
    document = read_document(content)
    jobs = {job["job_id"]: job for job in document.pop("jobs")}
    reasons = Counter(job["reason"] for job in jobs.values() if job["reason"])
    return PlanDocument(document, jobs, dict(reasons.most_common()))
