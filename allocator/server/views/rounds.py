"""Rounds of the journal: a list, one of them, and two of them compared."""

import bisect
from collections import Counter

from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.queue import round_journal
from allocator.queue.database.rows import query
from allocator.server.views.answer import Answer, Form, Page, find_page
from allocator.server.views.sight import Sight, read_plan, show_entry

_NEXT = "SELECT MIN(at_s) FROM rounds WHERE number > ?"
# orders of some rounds; an allocation that ended before them cannot have been ordered in them
_ORDERS = (
    "SELECT job_id, ordered_s, stop_ordered_s FROM allocations"
    " WHERE (ended_s IS NULL OR ended_s >= ?) AND ordered_s < ?"
)


class Round(Answer):
    """A round of the journal."""

    number: int
    at_s: float
    """unix seconds"""
    policy: str
    status: str
    outcome: str
    """decided, applied or failed"""
    value: float | None
    bound: float | None
    gap: float | None
    changes: int
    """jobs that were started or stopped for it"""
    seconds: dict[str, float]
    """of each part of the round"""
    detail: str


class RoundAnswer(Round):
    """A round with the jobs that get something else; a member sees its own jobs."""

    actions: dict[str, int]
    """jobs by action"""
    jobs: list[Json]
    """entries of plan.json"""


class JobDifference(Form):
    """A job that two plans give different things."""

    job_id: str
    tenant: str
    what: str
    """starts, stops, grows, shrinks, moves, arrived or left"""
    before: Json | None
    """its entry of plan.json; null where the plan does not have it"""
    after: Json | None

    def gain(self, name: str) -> float:
        """Return by how much a number of its entry grows; a plan without it counts as 0."""
        return float((self.after or {}).get(name, 0)) - float((self.before or {}).get(name, 0))


class ComparisonAnswer(Answer):
    """The jobs that two plans give different things."""

    before: Round
    after: Round
    counts: dict[str, int]
    """number of jobs by what happens to them: starts, stops, grows and so on"""
    jobs: list[JobDifference]


def list_rounds(sight: Sight, page: int = 1) -> Page[Round]:
    """Return one page of the journal, the newest round first."""
    total = round_journal.count_rounds(sight.connection)
    page, pages = find_page(page, sight.size, total)
    before = total - (page - 1) * sight.size + 1
    return Page(list_rounds_before(sight, before, sight.size), total, page, pages)


def list_rounds_before(sight: Sight, before: int | None, size: int) -> list[Round]:
    """Return rounds below a number (None: the newest), the newest first."""
    last = round_journal.count_rounds(sight.connection)
    newest = last if before is None else min(last, before - 1)
    return _read_rounds(sight, newest - size + 1, newest)[::-1]


def _read_rounds(sight: Sight, first: int, last: int) -> list[Round]:
    """Return the rounds from one number to another; an order belongs to the latest round before it.

    A member gets no detail, which names jobs of others.
    """
    entries = round_journal.read_light(sight.connection, first, last)
    if not entries:
        return []
    ((end_s,),) = query(sight.connection, _NEXT, entries[-1].number)
    at = [entry.at_s for entry in entries]
    changed: list[set[str]] = [set() for _ in entries]
    last_s = 1e300 if end_s is None else float(end_s)
    for job_id, *orders in query(sight.connection, _ORDERS, at[0], last_s):
        for ordered_s in orders:
            if ordered_s is not None and at[0] <= ordered_s < last_s:
                changed[bisect.bisect_right(at, ordered_s) - 1].add(job_id)
    hidden = {} if sight.tenant is None else {"detail": ""}
    return [
        Round(
            **{name: value for name, value in vars(entry).items() if name in Round.model_fields}
            | {"changes": len(names)}
            | hidden
        )
        for entry, names in zip(entries, changed, strict=True)
    ]


def find_round(sight: Sight, number: int) -> Round:
    """Return one round. Raises UsageError if there is no such round."""
    for round_ in _read_rounds(sight, number, number):
        return round_
    raise UsageError(f"the journal has no round {number}")


def read_round(sight: Sight, number: int) -> RoundAnswer:
    """Return one round with what its plan changes; a member sees only its jobs.

    Raises UsageError if there is no such round.
    """
    round_ = find_round(sight, number)
    plan = read_plan(sight.connection, number)
    entries = [] if plan is None else plan.list_entries(sight.tenant)
    return RoundAnswer(
        **round_.model_dump(),
        actions=Counter(entry["action"] for entry in entries),
        jobs=[entry for entry in entries if entry["action"] not in ("keep", "wait")],
    )


def compare_rounds(sight: Sight, first: int, second: int) -> ComparisonAnswer:
    """Return what the plans of two rounds give different things.

    Raises
    ------
    UsageError
        If one of the rounds does not exist, or its plan is not kept.
    """
    rounds = [find_round(sight, number) for number in (first, second)]
    plans: list[dict[str, Record]] = []
    for round_ in rounds:
        plan = read_plan(sight.connection, round_.number)
        if plan is None:
            raise UsageError(f"the plan of round {round_.number} is not kept")
        plans.append(plan.jobs)
    jobs = []
    for name in plans[0] | plans[1]:
        old, new = entries = [plan.get(name) for plan in plans]
        owner = (new or old or {})["tenant"]
        what = _describe_difference(old, new)
        if what and sight.tenant in (None, owner):
            before, after = (e if e is None else show_entry(e, sight.tenant) for e in entries)
            jobs.append(
                JobDifference(job_id=name, tenant=owner, what=what, before=before, after=after)
            )
    counts = Counter(job.what for job in jobs)
    return ComparisonAnswer(before=rounds[0], after=rounds[1], counts=counts, jobs=jobs)


def _describe_difference(old: Record | None, new: Record | None) -> str:
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
