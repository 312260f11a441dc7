"""What the latest round says of each job: why it waits, its place, when it starts and ends.

The plans of the journal hold it, so every command, page and answer tells the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from allocator.domain.plan import EXPECTED_FIELDS, REASON_FIELDS
from allocator.io.plans import read_plan
from allocator.objects import Json, Record
from allocator.queue.database.rows import query
from allocator.queue.round_journal import read_plans

TOLD = ("expected_round", *REASON_FIELDS, *EXPECTED_FIELDS)
"""Fields that `add_expected` adds to the record of a job."""
NEW = "no round has planned for it yet"
OVER = ("done", "cancelled", "failed")
_STARTS = "SELECT job_id, MIN(ordered_s) FROM allocations WHERE ordered_s > ? GROUP BY job_id"
_ENDS = "SELECT job_id, finished_s FROM jobs WHERE state = 'done'"


def read_expected(connection: Connection) -> dict[str, Json]:
    """Return TOLD of each job of the latest round with a plan, by job_id; {} without one."""
    plans = read_plans(connection)
    if not plans:
        return {}
    number, _, content = plans[0]
    return {
        job["job_id"]: {name: job.get(name) for name in TOLD} | {"expected_round": number}
        for job in read_plan(content)["jobs"]
    }


def first_to_start(job_ids: Iterable[str], expected: Mapping[str, Record]) -> list[Json]:
    """Return TOLD and the job_id of those of the jobs that have a place, by place."""
    rows = [{"job_id": name, **expected[name]} for name in job_ids if name in expected]
    return sorted(
        (row for row in rows if row["position"] is not None), key=lambda row: row["position"]
    )


def add_expected(rows: Iterable[Record], expected: Mapping[str, Record]) -> list[Json]:
    """Add TOLD to records of jobs, None for jobs that are over.

    A job that no round has planned for has a note that says so.
    """
    new = {**dict.fromkeys(TOLD), "expected_note": NEW}
    return [
        {
            **row,
            **(dict.fromkeys(TOLD) if row["state"] in OVER else expected.get(row["job_id"], new)),
        }
        for row in rows
    ]


@dataclass(frozen=True)
class Outcome:
    """How some estimates of a round came out, of those whose outcome is known.

    Attributes
    ----------
    number : int
        Number of estimates.
    covered : int
        Those whose range has the outcome.
    error : float, optional
        Median of abs(outcome - estimate) / seconds from the round to the outcome.
    """

    number: int
    covered: int
    error: float | None


def measure_estimates(connection: Connection, last: int) -> dict[int, dict[str, Outcome]]:
    """Compare what the kept plans of the last rounds told with what happened.

    Returns
    -------
    dict of int to dict
        By number of the round: outcomes of starts ("start") and of ends ("done").
    """
    ends = dict(query(connection, _ENDS))
    out = {}
    for number, at_s, content in read_plans(connection, last):
        rows = read_plan(content)["jobs"]
        began = dict(query(connection, _STARTS, at_s))
        out[number] = {
            name: _measure(rows, f"expected_{name}", happened, at_s)
            for name, happened in (("start", began), ("done", ends))
        }
    return out


def _measure(
    rows: Iterable[Record],
    name: str,
    happened: Mapping[str, float | None],
    at_s: float,
) -> Outcome:
    measured = [
        (row[f"{name}_s"], row[f"{name}_low_s"], row[f"{name}_high_s"], happened[row["job_id"]])
        for row in rows
        if row.get(f"{name}_s") is not None and happened.get(row["job_id"]) is not None
    ]
    if not measured:
        return Outcome(0, 0, None)
    middle, low, high, truth = np.array(measured, dtype=float).T
    error = np.abs(truth - middle) / np.maximum(truth - at_s, 1.0)
    return Outcome(
        len(truth), int(((low <= truth) & (truth <= high)).sum()), float(np.median(error))
    )
