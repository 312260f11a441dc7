"""Rounds of the journal: a list, one of them, and two of them compared."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.errors import UsageError
from allocator.queue import round_journal
from allocator.queue.database.bulk import query
from allocator.queue.round_journal import JournalRound
from allocator.server.views.plans import RoundPlan, read_plan

# orders of some rounds; an allocation that ended before them cannot have been ordered in them
_ORDERS = (
    "SELECT job_id, ordered_s, stop_ordered_s FROM allocations"
    " WHERE (ended_s IS NULL OR ended_s >= ?) AND ordered_s < ?"
)


@dataclass(frozen=True)
class RoundRow:
    """One round of the journal, and the number of jobs that were started or stopped for it."""

    entry: JournalRound
    changes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        names = (
            "number",
            "at_s",
            "policy",
            "status",
            "outcome",
            "value",
            "bound",
            "gap",
            "detail",
        )
        return {name: getattr(self.entry, name) for name in names} | {
            "seconds": dict(self.entry.seconds),
            "changes": self.changes,
        }


@dataclass(frozen=True)
class RoundsPage:
    """One page of the journal, the newest round first."""

    rows: tuple[RoundRow, ...]
    total: int
    page: int
    size: int

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-self.total // self.size))


@dataclass(frozen=True)
class RoundView:
    """One round and its plan; `plan` is None if it had none, or it is no longer kept.

    `actions` has the number of jobs by action, `changed` the jobs that get something else than
    they held.
    """

    row: RoundRow
    plan: RoundPlan | None
    actions: Mapping[str, int]
    changed: tuple[Mapping[str, Any], ...]
    last_number: int


@dataclass(frozen=True)
class JobDifference:
    """A job that two plans give different things.

    `what` is starts, stops, grows, shrinks, moves, arrived or left. `before` and `after` are its
    entries of the plans, None where the plan does not have the job.
    """

    job_id: str
    tenant: str
    what: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def gpus(self) -> int:
        """GPUs that it gains; negative: loses."""
        return int(_get(self.after, "gpus")) - int(_get(self.before, "gpus"))

    @property
    def dollars_per_hour(self) -> float:
        """What it costs more per hour."""
        return _get(self.after, "cost_per_hour") - _get(self.before, "cost_per_hour")


@dataclass(frozen=True)
class PlanComparison:
    """Two plans of the journal, and the jobs that they give different things."""

    before: RoundView
    after: RoundView
    jobs: tuple[JobDifference, ...]
    counts: Mapping[str, int]


def list_rounds(connection: Connection, *, page: int = 1, size: int = 50) -> RoundsPage:
    """Return one page of the journal, the newest round first."""
    last = round_journal.count_rounds(connection)
    pages = max(1, -(-last // size))
    page = max(1, min(page, pages))
    newest = last - (page - 1) * size
    entries = round_journal.read_light(connection, newest - size + 1, newest)
    return RoundsPage(tuple(_count_changes(connection, entries))[::-1], last, page, size)


def list_rounds_before(
    connection: Connection, before: int | None, size: int, *, tenant: str | None = None
) -> tuple[RoundRow, ...]:
    """Return rounds below a number (None: the newest), the newest first."""
    last = round_journal.count_rounds(connection)
    newest = last if before is None else min(last, before - 1)
    entries = round_journal.read_light(connection, newest - size + 1, newest)
    return tuple(_count_changes(connection, entries, tenant))[::-1]


def _count_changes(
    connection: Connection, entries: Sequence[JournalRound], tenant: str | None = None
) -> list[RoundRow]:
    """Return rows of rounds in order; an order belongs to the latest round before it.

    With a tenant they have no detail, which names jobs of others.
    """
    if not entries:
        return []
    end_s = connection.execute(
        sa.text("SELECT MIN(at_s) FROM rounds WHERE number > :number"),
        {"number": entries[-1].number},
    ).scalar()
    at = [entry.at_s for entry in entries]
    changed: list[set[str]] = [set() for _ in entries]
    last_s = float("inf") if end_s is None else float(end_s)
    for job_id, *orders in query(connection, _ORDERS, at[0], min(last_s, 1e300)):
        for ordered_s in orders:
            if ordered_s is not None and at[0] <= ordered_s < last_s:
                changed[bisect.bisect_right(at, ordered_s) - 1].add(job_id)
    shown = entries if tenant is None else [replace(entry, detail="") for entry in entries]
    return [RoundRow(entry, len(names)) for entry, names in zip(shown, changed, strict=True)]


def read_round(connection: Connection, number: int, *, tenant: str | None = None) -> RoundView:
    """Return one round.

    With a tenant, only its jobs can be seen. Raises UsageError if there is no such round.
    """
    last = round_journal.count_rounds(connection)
    found = round_journal.read_light(connection, number, number)
    if not found:
        raise UsageError(f"the journal has no round {number}")
    plan = read_plan(connection, number)
    jobs = () if plan is None else plan.jobs.values()
    mine = [job for job in jobs if tenant in (None, job["tenant"])]
    actions = Counter(job["action"] for job in mine)
    changed = tuple(job for job in mine if job["action"] not in ("keep", "wait"))
    return RoundView(_count_changes(connection, found, tenant)[0], plan, actions, changed, last)


def compare_rounds(
    connection: Connection, first: int, second: int, *, tenant: str | None = None
) -> PlanComparison:
    """Return what the plans of two rounds give different things.

    Raises
    ------
    UsageError
        If one of the rounds does not exist, or its plan is not kept.
    """
    before, after = (read_round(connection, n, tenant=tenant) for n in (first, second))
    for view in (before, after):
        if view.plan is None:
            raise UsageError(f"the plan of round {view.row.entry.number} is not kept")
    assert before.plan is not None and after.plan is not None
    jobs = tuple(_list_differences(before.plan.jobs, after.plan.jobs, tenant))
    return PlanComparison(before, after, jobs, Counter(job.what for job in jobs))


def _list_differences(
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    tenant: str | None,
) -> list[JobDifference]:
    out = []
    for name in dict.fromkeys((*before, *after)):
        old = before.get(name)
        new = after.get(name)
        owner = (new or old or {})["tenant"]
        what = _describe_difference(old, new)
        if what and tenant in (None, owner):
            out.append(JobDifference(name, owner, what, old, new))
    return out


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


def _get(entry: Mapping[str, Any] | None, name: str) -> float:
    return 0.0 if entry is None else float(entry[name])
