"""Read the last rounds of a queue in one transaction, also as frames for the charts."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.controller.reporting.expected import read_expected
from allocator.controller.reporting.status import status
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import POOLS
from allocator.domain.snapshot import Table
from allocator.queue import cluster_tables, round_journal, snapshot as snapshots
from allocator.queue.costs import DAY, Cost, DailyCost, read_daily_costs, read_job_costs
from allocator.queue.database.schema import ACTIVE, OPEN, allocations, rounds
from allocator.queue.holdings import Turns, read_turns_since, split_by_holder
from allocator.queue.jobs.verbs import Job, list_jobs
from allocator.queue.queue import Queue
from allocator.report.runs import MEMORY_PRICE, SimulationRun, Study

SHORTEST_S = 1.0  # least time shown, because pictures need a length
SIZES = 240  # kept snapshots from which the sizes of pools are read
MOST_DAYS = 366  # days of costs


@dataclass(frozen=True)
class Holding:
    """An allocation: a job with GPUs of a pool, from ordered_s to ended_s (None: not ended).

    Times are in unix seconds. `host`, `held_gpus` and `since_s` are those of Held in
    queue/holdings.py.
    """

    job_id: str
    generation: int
    pool: str
    gpus: int
    phase: str
    ordered_s: float
    running_s: float | None
    stop_ordered_s: float | None
    ended_s: float | None
    host: str
    held_gpus: int
    memory_gb: float
    since_s: float | None


@dataclass(frozen=True)
class PoolSize:
    """A pool at the time of a round."""

    at_s: float
    pool: str
    gpus: float
    price_per_gpu_hour: float
    price_per_gb_hour: float


@dataclass(frozen=True)
class Journal:
    """The last rounds of a queue, oldest first, and all jobs that held GPUs or waited since then.

    Attributes
    ----------
    begin_s, end_s : the time shown, unix seconds, at least a second. It ends at now_s if a
    controller leads and jobs are not over, and otherwise when something was last written.
    now_s : when the journal was read.
    jobs : jobs that were not over at begin_s and were submitted by now_s.
    turns : of allocations that ran on the GPUs of another job.
    status : as `allocator status`.
    expected : what the last plan says of each job (controller/reporting/expected.py).
    records_s : when the records of the queue begin, unix seconds. What happened before is known
    from a snapshot at most.
    costs : what each job cost so far.
    daily : what tenants used by day, on the days from begin_s to now_s.
    budget_per_hour : present budget in US dollars per hour; None: no limit.
    """

    name: str
    begin_s: float
    end_s: float
    now_s: float
    rounds: Sequence[round_journal.JournalRound]
    jobs: Sequence[Job]
    held: Sequence[Holding]
    sizes: Sequence[PoolSize]
    status: Mapping[str, Any]
    turns: Turns
    records_s: float
    expected: Mapping[str, Mapping[str, Any]]
    costs: Mapping[str, Cost]
    daily: Sequence[DailyCost]
    budget_per_hour: float | None

    @property
    def origin(self) -> str:
        """Return what happened at begin_s, in words."""
        if self.rounds and self.rounds[0].number > 1:
            return f"round {self.rounds[0].number}"
        return (
            "the queue was made" if any(map(self.is_adopted, self.jobs)) else "the first submission"
        )

    def is_adopted(self, job: Job) -> bool:
        """Return whether a job ran before the queue was made, at times that are not known."""
        return job.first_started_s is not None and job.first_started_s < self.records_s


def read_journal(queue: Queue, last: int) -> Journal:
    """Read the last rounds of the journal. Raises the errors of Queue."""
    now = queue.clock()
    found = status(queue)
    with queue.store.read() as connection:
        entries = round_journal.history(connection, limit=last)
        begin = entries[0].at_s if entries else now
        known = [job for job in list_jobs(connection) if job.submitted_s <= now]
        t = allocations.c
        first = connection.execute(sa.select(sa.func.min(t.ordered_s))).scalar()
        records = min(
            at
            for at in (
                first,
                connection.execute(sa.select(sa.func.min(rounds.c.at_s))).scalar(),
                now,
            )
            if at is not None
        )
        if entries and entries[0].number == 1:
            is_new = all(
                job.first_started_s is None or job.first_started_s >= records for job in known
            )
            begin = min([begin, *(job.submitted_s for job in known)]) if is_new else records
        held = [
            Holding(*row)
            for row in connection.execute(
                sa.select(*(t[f.name] for f in fields(Holding)))
                .where(sa.or_(t.ended_s.is_(None), t.ended_s > begin))
                .order_by(t.ordered_s, t.job_id)
            )
        ]
        sizes = _sizes(connection, entries, begin)
        turns = read_turns_since(connection, begin)
        expected = read_expected(connection)
        costs = read_job_costs(connection, [job.job_id for job in known], now)
        days = math.floor(now / DAY) - math.floor(begin / DAY) + 1
        daily = read_daily_costs(connection, now, min(MOST_DAYS, days))
        budget_per_hour = cluster_tables.config(connection).get("budget_per_hour")
    mine = {one.job_id for one in held}
    jobs = [job for job in known if job.job_id in mine or over_s(job, math.inf) > begin]
    live = found["controller"]["state"] == "in charge" and any(job.state in ACTIVE for job in jobs)
    end = (
        now
        if live
        else min(now, max([begin, *(r.at_s for r in entries), *(job.updated_s for job in jobs)]))
    )
    end = max(end, begin + SHORTEST_S)
    return Journal(
        queue.store.name,
        begin,
        end,
        now,
        entries,
        jobs,
        held,
        sizes,
        found,
        turns,
        records,
        expected,
        costs,
        daily,
        budget_per_hour,
    )


def _sizes(
    connection: Connection, entries: Sequence[round_journal.JournalRound], begin_s: float
) -> list[PoolSize]:
    """Return the sizes of pools from kept snapshots, evenly over the rounds.

    If none is kept, they are the present sizes.
    """
    c = rounds.c
    kept = list(
        connection.execute(
            sa.select(c.number)
            .where(
                (
                    c.number.in_([r.number for r in entries])
                    if len(entries) < 500
                    else c.number >= entries[0].number
                ),
                c.snapshot.is_not(None),
            )
            .order_by(c.number)
        ).scalars()
    )
    step = max(1, math.ceil(len(kept) / SIZES))
    found: list[PoolSize] = []
    for number in kept[::step]:
        row = connection.execute(sa.select(c.at_s, c.snapshot).where(c.number == number)).one()
        table = snapshots.unpack_snapshot(bytes(row.snapshot)).tables["pools.csv"]
        found += _pool_sizes(row.at_s, table)
    stored = cluster_tables.build_table(
        "pools.csv", cluster_tables.read_stored_columns(connection, "pools.csv")
    )
    return found or _pool_sizes(begin_s, stored)


def _pool_sizes(at_s: float, table: Table) -> list[PoolSize]:
    """Return the pools of a table; an invalid price, which a database may hold, becomes 0."""
    nothing = [""] * len(table)
    columns = (
        np.nan_to_num(parse(POOLS.column(name), table.columns.get(name, nothing))[0].value)
        for name in ("gpus", "price_per_gpu_hour", "price_per_gb_hour")
    )
    return [
        PoolSize(at_s, pool, float(n), float(price), float(per_gb))
        for pool, n, price, per_gb in zip(table.texts("pool"), *columns, strict=True)
    ]


def over_s(job: Job, otherwise: float) -> float:
    """Return when the job was over, or `otherwise` if it is not.

    A parked job was over when it was parked.
    """
    if job.finished_s is not None:
        return job.finished_s
    return job.updated_s if job.state == "failed" else otherwise


@dataclass(frozen=True)
class CarriedOut:
    """What became of a round.

    It has the numbers of jobs that were started or stopped for it, and the seconds until the last
    of them had stopped or ran; nan if there was none.
    """

    changes: int
    stop_s: float
    start_s: float


def measure_carried_out(journal: Journal) -> list[CarriedOut]:
    """Return what became of each round; an order belongs to the latest round before it."""
    at = [r.at_s for r in journal.rounds]
    names: dict[int, set[str]] = defaultdict(set)
    stops: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, list[float]] = defaultdict(list)
    for one in journal.held:
        for ordered, done, took in (
            (one.ordered_s, one.running_s, starts),
            (one.stop_ordered_s, one.ended_s, stops),
        ):
            k = -1 if ordered is None else bisect.bisect_right(at, ordered) - 1
            if k >= 0:
                names[k].add(one.job_id)
                if ordered is not None and done is not None:
                    took[k].append(done - ordered)
    return [
        CarriedOut(len(names[k]), max(stops[k], default=math.nan), max(starts[k], default=math.nan))
        for k in range(len(at))
    ]


def study_of(journal: Journal) -> Study:
    """Return the journal as one run of a study, for the pictures of simulations.

    The name of its policy is the names of the policies of all rounds.
    """
    import pandas as pd

    policy = ", ".join(dict.fromkeys(r.policy for r in journal.rounds)) or "no policy"
    first: dict[str, float] = {}
    for one in journal.held:
        first.setdefault(one.job_id, one.ordered_s)
    begin = journal.begin_s
    end = journal.end_s

    def clipped(at: float | None) -> float:
        return math.nan if at is None else max(at, begin)

    def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
        return pd.DataFrame(list(rows), columns=list(columns))

    jobs = frame(
        ("job_id", "submitted_s", "finished_s", "started_s", "requested_gpus"),
        (
            (
                j.job_id,
                clipped(j.submitted_s),
                clipped(_none(over_s(j, math.nan))),
                clipped(
                    first.get(j.job_id, j.first_started_s)
                    if j.first_started_s is None
                    else min(j.first_started_s, first.get(j.job_id, math.inf))
                ),
                float(j.values["requested_gpus"] or j.values["max_gpus"]),
            )
            for j in journal.jobs
        ),
    )
    # a job that never started waited until it was over
    jobs["started_s"] = jobs["started_s"].fillna(jobs["finished_s"])
    per_gb = {size.pool: size.price_per_gb_hour for size in journal.sizes}  # the latest one
    spans = frame(
        ("job_id", "pool", "gpus", "from_s", "to_s", "held", MEMORY_PRICE),
        (
            (
                h.job_id,
                h.pool,
                float(h.gpus),
                clipped(since),
                clipped(to if to is not None else end),
                float(own),
                h.memory_gb * per_gb.get(h.pool, 0.0),
            )
            for h in journal.held
            for since, to, own in split_by_holder(
                h.gpus, h.ordered_s, h.ended_s, journal.turns.get((h.job_id, h.generation), ())
            )
        ),
    )
    spans["to_s"] = spans["to_s"].clip(lower=spans["from_s"])
    timeline = frame(
        ("at_s", "pool", "gpus", "price_per_gpu_hour"),
        ((clipped(s.at_s), s.pool, s.gpus, s.price_per_gpu_hour) for s in journal.sizes),
    )
    run = SimulationRun("journal", "", 0, policy, {}, Path(journal.name))
    frames = {
        (run.folder, name, policy): table.assign(policy=policy)
        for name, table in (("jobs", jobs), ("spans", spans), ("timeline", timeline))
    }
    return Study(journal.name, True, policy, [run], [], origin=journal.origin, _frames=frames)


def _none(value: float) -> float | None:
    return None if math.isnan(value) else value


def open_by_job(journal: Journal) -> dict[str, Holding]:
    """Return the open allocation of each job that has one."""
    return {one.job_id: one for one in journal.held if one.phase in OPEN}
