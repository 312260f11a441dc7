"""Rounds of the journal: a list, one of them, two of them compared, and their plans, which are kept
for the next request.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy import Connection

from allocator.controller.reporting.journal import read_plan as read_document
from allocator.errors import UsageError
from allocator.queue import round_journal
from allocator.queue.database.bulk import query
from allocator.server.views.answer import Answer, Page, clip_page

KEPT = 4  # parsed plans; one of 10,000 jobs takes some 20 MB
_LAST = (
    "SELECT number, at_s, plan FROM rounds WHERE number ="
    " (SELECT MAX(number) FROM rounds WHERE plan IS NOT NULL)"
)
_ONE = "SELECT number, at_s, plan FROM rounds WHERE number = ? AND plan IS NOT NULL"
_NEXT = "SELECT MIN(at_s) FROM rounds WHERE number > ?"
# orders of some rounds; an allocation that ended before them cannot have been ordered in them
_ORDERS = (
    "SELECT job_id, ordered_s, stop_ordered_s FROM allocations"
    " WHERE (ended_s IS NULL OR ended_s >= ?) AND ordered_s < ?"
)


@dataclass(frozen=True)
class RoundPlan:
    """The plan of one round: plan.json without its jobs, and these by name."""

    number: int
    at_s: float
    content: Mapping[str, Any]
    jobs: Mapping[str, Mapping[str, Any]]
    reasons: Mapping[str, int]

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
        return RoundPlan(int(number), float(at_s), *_parse(bytes(content)))
    return None


@lru_cache(maxsize=KEPT)
def _parse(content: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Return plan.json without its jobs, these by name, and the number of jobs by reason."""
    document = read_document(content)
    jobs = {job["job_id"]: job for job in document.pop("jobs")}
    reasons = Counter(job["reason"] for job in jobs.values() if job["reason"])
    return document, jobs, dict(reasons.most_common())


class Round(Answer):
    """A round of the journal."""

    number: int
    at_s: float = Field(description="unix seconds")
    policy: str
    status: str
    outcome: str = Field(description="decided, applied or failed")
    value: float | None
    bound: float | None
    gap: float | None
    changes: int = Field(description="jobs that were started or stopped for it")
    seconds: dict[str, float] = Field(description="of each part of the round")
    detail: str


class RoundAnswer(Round):
    """A round with the jobs that get something else; a member sees its own jobs."""

    actions: dict[str, int] = Field(description="jobs by action")
    jobs: list[dict[str, Any]] = Field(description="entries of plan.json")


class JobDifference(BaseModel):
    """A job that two plans give different things."""

    job_id: str
    tenant: str
    what: str = Field(description="starts, stops, grows, shrinks, moves, arrived or left")
    before: dict[str, Any] | None = Field(
        description="its entry of plan.json; null where the plan does not have it"
    )
    after: dict[str, Any] | None

    def gain(self, name: str) -> float:
        """Return by how much a number of its entry grows; a plan without it counts as 0."""
        return float((self.after or {}).get(name, 0)) - float((self.before or {}).get(name, 0))


class ComparisonAnswer(Answer):
    """The jobs that two plans give different things."""

    before: Round
    after: Round
    counts: dict[str, int] = Field(description="jobs by what happens: starts, stops, grows ...")
    jobs: list[JobDifference]


def list_rounds(connection: Connection, *, page: int = 1, size: int = 50) -> Page[Round]:
    """Return one page of the journal, the newest round first."""
    total = round_journal.count_rounds(connection)
    page = clip_page(page, size, total)
    newest = total - (page - 1) * size
    return Page(list_rounds_before(connection, newest + 1, size), total, page, size)


def list_rounds_before(
    connection: Connection, before: int | None, size: int, *, tenant: str | None = None
) -> list[Round]:
    """Return rounds below a number (None: the newest), the newest first."""
    last = round_journal.count_rounds(connection)
    newest = last if before is None else min(last, before - 1)
    return _read_rounds(connection, newest - size + 1, newest, tenant)[::-1]


def _read_rounds(
    connection: Connection, first: int, last: int, tenant: str | None = None
) -> list[Round]:
    """Return the rounds from one number to another; an order belongs to the latest round before it.

    With a tenant they have no detail, which names jobs of others.
    """
    entries = round_journal.read_light(connection, first, last)
    if not entries:
        return []
    ((end_s,),) = query(connection, _NEXT, entries[-1].number)
    at = [entry.at_s for entry in entries]
    changed: list[set[str]] = [set() for _ in entries]
    last_s = 1e300 if end_s is None else float(end_s)
    for job_id, *orders in query(connection, _ORDERS, at[0], last_s):
        for ordered_s in orders:
            if ordered_s is not None and at[0] <= ordered_s < last_s:
                changed[bisect.bisect_right(at, ordered_s) - 1].add(job_id)
    return [
        Round(
            **{name: value for name, value in vars(entry).items() if name in Round.model_fields}
            | {"changes": len(names)}
            | ({} if tenant is None else {"detail": ""})
        )
        for entry, names in zip(entries, changed, strict=True)
    ]


def find_round(connection: Connection, number: int, tenant: str | None = None) -> Round:
    """Return one round. Raises UsageError if there is no such round."""
    for found in _read_rounds(connection, number, number, tenant):
        return found
    raise UsageError(f"the journal has no round {number}")


def read_round(connection: Connection, number: int, *, tenant: str | None = None) -> RoundAnswer:
    """Return one round with what its plan changes; with a tenant, only its jobs can be seen.

    Raises UsageError if there is no such round.
    """
    found = find_round(connection, number, tenant)
    plan = read_plan(connection, number)
    entries = [] if plan is None else plan.list_entries(tenant)
    return RoundAnswer(
        **found.model_dump(),
        actions=Counter(entry["action"] for entry in entries),
        jobs=[entry for entry in entries if entry["action"] not in ("keep", "wait")],
    )


def compare_rounds(
    connection: Connection, first: int, second: int, *, tenant: str | None = None
) -> ComparisonAnswer:
    """Return what the plans of two rounds give different things.

    Raises
    ------
    UsageError
        If one of the rounds does not exist, or its plan is not kept.
    """
    before, after = (find_round(connection, number, tenant) for number in (first, second))
    plans = [read_plan(connection, number) for number in (first, second)]
    for number, plan in zip((first, second), plans, strict=True):
        if plan is None:
            raise UsageError(f"the plan of round {number} is not kept")
    old, new = (plan.jobs for plan in plans if plan is not None)
    jobs = []
    for name in dict.fromkeys((*old, *new)):
        entries = old.get(name), new.get(name)
        owner = (entries[1] or entries[0] or {})["tenant"]
        what = _describe_difference(*entries)
        if what and tenant in (None, owner):
            sides = [None if entry is None else show_entry(entry, tenant) for entry in entries]
            jobs.append(
                JobDifference(job_id=name, tenant=owner, what=what, before=sides[0], after=sides[1])
            )
    return ComparisonAnswer(
        before=before, after=after, counts=Counter(job.what for job in jobs), jobs=jobs
    )


def _describe_difference(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    """Return what changes for a job, "" if nothing does."""
    if new is None:
        return "left"
    if old is None:
        return "arrived"
    if (old["gpus"] > 0) != (new["gpus"] > 0):
        return "starts" if new["gpus"] else "stops"
    if old["gpus"] != new["gpus"]:
        return "grows" if new["gpus"] > old["gpus"] else "shrinks"
    where = ("pool", "nodes", "shared_with")
    return "moves" if any(old[name] != new[name] for name in where) else ""
