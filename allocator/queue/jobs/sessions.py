"""GPUs that are kept for interactive jobs, estimated from the sessions that the queue has seen.

A row of interactive.csv may name a pool without saying how many GPUs to keep or which sessions to
expect. Such a row keeps what the sessions of that pool have needed
(formulations/model/headroom.py, `observed_headroom`). The sessions are those among the last LATEST
jobs that were submitted in the last WINDOW_S seconds and got their first GPUs in that pool.

A session needs GPUs from its submission to its end, and they are free one round later. A session
that is held or parked needed GPUs until it last had some.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import INTERACTIVE
from allocator.domain.snapshot import Table
from allocator.queue.database.rows import as_columns, query
from formulations.model.headroom import observed_headroom

WINDOW_S = 28 * 86400.0
LATEST = 20_000
KEPT = "headroom_gpus"
GIVEN = (KEPT, "sessions_per_hour", "session_s")
_SESSIONS = (
    "SELECT a.pool, a.gpus, j.submitted_s, COALESCE(j.finished_s, CASE WHEN j.state IN ('held',"
    " 'failed') THEN (SELECT MAX(e.ended_s) FROM allocations e WHERE e.job_id = j.job_id) END)"
    " FROM jobs j JOIN allocations a ON a.job_id = j.job_id AND a.generation = (SELECT"
    " MIN(b.generation) FROM allocations b WHERE b.job_id = j.job_id) WHERE j.seq > (SELECT"
    f" MAX(seq) FROM jobs) - {LATEST} AND j.submitted_s > ? AND j.interactive"
    " ORDER BY j.submitted_s, j.seq"
)


def fill_headroom(connection: Connection, table: Table, now_s: float, interval_s: float) -> Table:
    """Return interactive.csv with headroom_gpus filled in where the queue has to estimate it.

    `interval_s` is the length of a round in seconds.
    """
    nothing = [""] * len(table)
    given = {
        name: parse(INTERACTIVE.column(name), table.columns.get(name, nothing))[0]
        for name in (*GIVEN, "late_share")
    }
    open_ = np.flatnonzero(~np.any([given[name].given for name in GIVEN], axis=0)).tolist()
    if not open_:
        return table
    headroom = np.where(given[KEPT].given, given[KEPT].value, np.nan)
    rows = query(connection, _SESSIONS, now_s - WINDOW_S)
    for i in open_:
        sessions = [row[1:] for row in rows if row[0] == table.columns["pool"][i]]
        gpus, since_s, until_s = (
            np.array(values, dtype=np.float64) for values in as_columns(sessions, 3)
        )
        until_s = np.where(np.isnan(until_s), np.inf, until_s) + interval_s
        headroom[i] = observed_headroom(since_s, until_s, gpus, float(given["late_share"].value[i]))
    return replace(table, columns={**table.columns, KEPT: headroom})
