"""Real faults of the database under a controller: a full disk, a lost connection, a locked file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from controller_rigs import Rig
from queues import empty

from allocator.queue.database.connection import open_queue
from allocator.queue.errors import QueueUnavailable

WATCHED = ("a", "g", "h", "j", "t", "allocations", "jobs", "observations", "turns")


class DatabaseRig(Rig):
    """Two endless jobs, and a controller whose connections are its own."""

    def __init__(self, folder: Path, name: str | None = None, wait_s: float = 30.0) -> None:
        super().__init__(folder, name=name, policy="greedy")
        self.store = open_queue(self.path, wait_s=wait_s)
        self.renew(store=self.store)
        self.submit("one", "two", work=1e6)
        assert self.step()

    def step(self) -> bool:
        """A look after a minute; False: the database was out of reach."""
        self.clock.sleep(60.0)
        try:
            self.controller.step()
        except QueueUnavailable:
            return False
        return True

    def state(self) -> Any:
        jobs = self.queue.jobs()
        return self.wanted(), [(job.job_id, job.state, job.generation) for job in jobs]

    def recovers(self, before: Any) -> None:
        """It goes on as if nothing had been."""
        assert self.state() == before
        rounds = len(self.queue.rounds())
        assert self.step() and len(self.queue.rounds()) == rounds + 1
        self.close()

    def close(self) -> None:
        self.store.close()
        super().close()


def test_a_step_reads_open_allocations_only(tmp_path: Path) -> None:
    """No statement of a round goes through all allocations or jobs that ever were: on SQLite each
    finds its rows by an index. What grows without end costs no time."""
    rig = DatabaseRig(tmp_path)
    said: list[str] = []
    listen = ("checkout", lambda driver, *_: driver.set_trace_callback(said.append))
    sa.event.listen(rig.store.engine, *listen)
    rig.submit("three", work=1e6)
    rig.clock.sleep(59.0)
    rig.queue.cancel("one")
    assert rig.step()
    sa.event.remove(rig.store.engine, *listen)
    rig.close()
    plain = sqlite3.connect(rig.path)
    lines = [
        (line[3], statement)
        for statement in said
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")
        for line in plain.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    plain.close()
    assert len(lines) > 30
    assert [
        (line, statement)
        for line, statement in lines
        if line.startswith("SCAN ") and " USING " not in line and line.split()[1] in WATCHED
    ] == []


def test_the_disk_is_full(tmp_path: Path) -> None:
    """SQLite may not grow any more: rounds cannot be written, nothing else happens; with space
    again all goes on.
    """
    rig = DatabaseRig(tmp_path)
    assert rig.step()
    before = rig.state()
    with sqlite3.connect(rig.path) as raw:
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.close()

    def full(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages if limited else 1 << 30}").fetchone()

    sa.event.listen(rig.store.engine, "checkout", full)
    limited = True
    assert [rig.step() for _ in range(6)].count(False) >= 1
    limited = False
    rig.recovers(before)


def test_the_file_is_locked(tmp_path: Path) -> None:
    """Somebody writes for longer than the controller waits."""
    rig = DatabaseRig(tmp_path, wait_s=0.1)
    before = rig.state()
    raw = sqlite3.connect(rig.path, isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    assert not rig.step() and not rig.step()
    raw.execute("ROLLBACK")
    raw.close()
    rig.recovers(before)


@pytest.mark.parametrize("when", ["before the commit", "between two looks"])
def test_the_connection_is_killed(when: str, tmp_path: Path) -> None:
    """The server ends the connection of the controller, in the middle of each of its
    transactions in turn.
    """
    with empty("postgresql", tmp_path) as name:
        rig = DatabaseRig(tmp_path, name)
        import psycopg

        def kill(pid: int) -> None:
            with psycopg.connect(name, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

        count, strike = 0, 0

        def commit(connection: sa.Connection) -> None:
            nonlocal count
            count += 1
            if count == strike:
                kill(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

        if when == "before the commit":
            sa.event.listen(rig.store.engine, "commit", commit)
            lost = 0
            for strike in range(1, 7):  # noqa: B007 - read by commit
                count = 0
                lost += not rig.step()
            assert lost >= 3
            strike = 0
        else:
            with rig.store.read() as connection:
                pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            kill(pid)
            assert rig.step()  # noticed and opened anew
        assert rig.step()
        rig.recovers(rig.state())
