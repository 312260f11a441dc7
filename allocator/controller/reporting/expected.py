"""What the latest round says of each job: why it waits, its place, when it starts and ends.

The plans of the journal hold it, so every command, page and answer tells the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from allocator.controller.reporting.journal import decompress_text
from allocator.domain.plan import EXPECTED_FIELDS, REASON_FIELDS
from allocator.queue.round_journal import read_plans

TOLD = ("expected_round", *REASON_FIELDS, *EXPECTED_FIELDS)
"""Fields that `add_expected` adds to the record of a job."""
NEW = "no round has planned for it yet"
OVER = ("done", "cancelled", "failed")


def read_expected(connection: Connection) -> dict[str, dict[str, Any]]:
    """Return TOLD of each job of the latest round with a plan, by job_id; {} without one."""
    plans = read_plans(connection)
    if not plans:
        return {}
    number, _, content = plans[0]
    return {
        job["job_id"]: {name: job.get(name) for name in TOLD} | {"expected_round": number}
        for job in json.loads(decompress_text(content))["jobs"]
    }


def add_expected(
    rows: Iterable[Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
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
