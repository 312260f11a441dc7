"""What a round asks the database."""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa
from controller_rigs import Rig

WATCHED = ("a", "g", "h", "j", "t", "allocations", "jobs", "observations", "turns")


def test_a_step_reads_open_allocations_only(rig: Rig) -> None:
    """No statement of a round goes through all allocations or jobs that ever were: on SQLite each
    finds its rows by an index. What grows without end costs no time."""
    rig.submit("one", "two", work=1e6)
    rig.steps(60)
    said: list[str] = []
    listen = ("checkout", lambda driver, *_: driver.set_trace_callback(said.append))
    sa.event.listen(rig.queue.store.engine, *listen)
    rig.submit("three", work=1e6)
    rig.queue.cancel("one")
    rig.steps(10)
    sa.event.remove(rig.queue.store.engine, *listen)
    plain = sqlite3.connect(rig.path)
    lines = [
        line[3]
        for statement in said
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")
        for line in plain.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    plain.close()
    assert len(lines) > 30
    scans = [line for line in lines if line.startswith("SCAN ") and " USING " not in line]
    assert [line for line in scans if line.split()[1] in WATCHED] == []
