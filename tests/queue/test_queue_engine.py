"""Opening queues: files that are none, old and new schemas, locks, full disks, rights,
passwords.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from places import ROOT
from queues import BACKENDS, NOW, cluster, fresh, place

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.replay import replay
from allocator.errors import InvalidInput, UsageError
from allocator.executors.simulated import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from allocator.queue import cluster_tables, lease, snapshot as snapshots
from allocator.queue.costs import read_job_costs
from allocator.queue.database import schema
from allocator.queue.database.connection import QueueDatabase, create_queue, open_queue
from allocator.queue.errors import QueueUnavailable
from allocator.queue.migrations.versions import r0009_types
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 100, "max_gpus": 4}


@pytest.mark.parametrize("backend", BACKENDS)
def test_migrations_make_the_tables_of_the_schema(backend: str, tmp_path: Path) -> None:
    """What the migrations build, and what a new queue gets at once, is what schema.py says, and the
    last revision is the one it names.
    """
    found = []
    for first in ("0001", schema.HEAD):
        with place(backend, tmp_path) as name:
            made = create_queue(name, revision=first)
            made[0].close()
            store, is_new = create_queue(name)
            with store.read() as connection:
                assert made[1] and not is_new
                assert (
                    compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
                )
                checks = sa.inspect(connection).get_check_constraints("jobs")
                assert {c["name"] for c in checks} == {
                    c.name for c in schema.jobs.constraints if isinstance(c, sa.CheckConstraint)
                }
                found.append(describe_tables(connection))
            store.close()
        for path in tmp_path.glob("queue.db*"):
            path.unlink()
    assert found[0] == found[1] and "alembic_version" in found[0]


def describe_tables(connection: sa.Connection) -> dict[str, Any]:
    """Columns, keys, indexes and checks of every table, whatever their order."""
    inspector, out = sa.inspect(connection), {}
    for table in inspector.get_table_names():
        columns = [
            (c["name"], str(c["type"]), c["nullable"], c["default"])
            for c in inspector.get_columns(table)
        ]
        keys = [
            (k["constrained_columns"], k["referred_table"])
            for k in inspector.get_foreign_keys(table)
        ]
        indexes = [
            (i["name"], i["column_names"], i["unique"], *map(str, i["dialect_options"].values()))
            for i in inspector.get_indexes(table)
        ]
        checks = [(c["name"], c["sqltext"]) for c in inspector.get_check_constraints(table)]
        primary = inspector.get_pk_constraint(table)
        out[table] = [
            *map(sorted, (columns, keys, indexes, checks)),
            primary["name"],
            primary["constrained_columns"],
        ]
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_old_queue_is_upgraded_by_init_and_keeps_its_jobs(backend: str, tmp_path: Path) -> None:
    """From revision 1: other commands refuse it and say what to do; init brings it up to date;
    twice does no harm.
    """
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name, revision="0001")
        with store.write() as connection:
            connection.execute(
                sa.insert(schema.jobs).values(
                    job_id="old",
                    seq=1,
                    content="",
                    model="m",
                    total_work="5",
                    remaining_work=5,
                    submitted_s=1,
                    updated_s=1,
                )
            )
        store.close()
        with pytest.raises(
            InvalidInput,
            match='has schema 0001, this program needs 0023; upgrade it with "allocator',
        ):
            open_queue(name)
        for _ in range(2):
            create_queue(name)[0].close()
        with Queue(name) as queue:
            assert queue.job("old").total_work == 5
            with queue.store.read() as connection:
                assert (
                    compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
                )


def filled_as_before(store: QueueDatabase) -> dict[str, Any]:
    """Put the rows of a queue that the program of schema 0008 left behind, with four jobs running,
    into a new one of that schema; returns what that program said of it."""
    content: dict[str, Any] = json.loads((ROOT / "tests/data/queue_0008.json").read_text())
    with store.write() as connection:
        connection.execute(sa.text("DELETE FROM meta"))
        found = sa.MetaData()
        found.reflect(connection)
        for table in found.sorted_tables:
            rows = content["tables"].get(table.name)
            if rows is None:
                continue
            values = [
                [b64decode(v["base64"]) if isinstance(v, dict) else v for v in row]
                for row in rows["rows"]
            ]
            connection.execute(
                sa.insert(table), [dict(zip(rows["columns"], row, strict=True)) for row in values]
            )
            if "id" in table.c and connection.dialect.name == "postgresql":
                following = f"setval(pg_get_serial_sequence('{table.name}', 'id'), MAX(id))"
                connection.execute(sa.text(f"SELECT {following} FROM {table.name}"))
    return content


PAIR = {
    "pools.csv": "pool,gpu_type,gpus,memory_gb,sharing\na,A,2,40,any\nb,B,0,,\n",
    "sharing.csv": "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,m,A,1,1.25,1.25\n",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_with_running_pairs_is_upgraded(backend: str, tmp_path: Path) -> None:
    """A queue of schema 0020: h holds a GPU, g runs on it, and x ran on that of e until e ended.
    With schema 0021 the holders hold what they held: two GPUs are used, g and h are a pair, and all
    run to their end without a restart."""
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name, revision="0020")
        job = {"content": "", "model": "m", "total_work": 400.0, "remaining_work": 400.0}
        job |= {"memory_gb": 4.0, "max_gpus": 1, "submitted_s": NOW, "updated_s": NOW}
        pair = (("h", ""), ("g", "h"), ("x", ""), ("e", ""))
        open_ones = {"pool": "a", "gpus": 1, "gpu_type": "A", "work_at_start": 400.0}
        with store.write() as connection:
            now = sa.MetaData()
            now.reflect(connection)
            for number, (job_id, primary) in enumerate(pair):
                is_over = job_id == "e"
                connection.execute(
                    sa.insert(now.tables["jobs"]).values(
                        **job,
                        job_id=job_id,
                        seq=number + 1,
                        state="done" if is_over else "running",
                        finished_s=NOW + 50 if is_over else None,
                        generation=1,
                        want_pool="" if is_over else "a",
                        want_gpus=0 if is_over else 1,
                        want_host=primary,
                    )
                )
                connection.execute(
                    sa.insert(now.tables["allocations"]).values(
                        **open_ones,
                        job_id=job_id,
                        generation=1,
                        phase="finished" if is_over else "running",
                        ordered_s=NOW,
                        running_s=NOW,
                        ended_s=NOW + 50 if is_over else None,
                        host=primary,
                    )
                )
            for job_id, at_s, primary in (("g", NOW, "h"), ("x", NOW, "e"), ("x", NOW + 50, "")):
                connection.execute(
                    sa.insert(now.tables["turns"]).values(
                        job_id=job_id, generation=1, at_s=at_s, host=primary
                    )
                )
        store.close()
        create_queue(name)[0].close()
        clock = SimulatedClock(NOW + 100)
        with Queue(name, clock=clock.now) as queue:
            with queue.store.write() as connection:
                snapshots.replace_cluster(connection, cluster(**PAIR), NOW)
            with queue.store.read() as connection:
                assert cluster_tables.used(connection)["a"] == 2
                held = connection.execute(
                    sa.select(schema.turns.c.host, schema.turns.c.held_gpus).order_by(
                        schema.turns.c.id
                    )
                ).all()
                assert [tuple(row) for row in held] == [("h", 0), ("e", 0), ("", 1)]
                costs = read_job_costs(connection, ["h", "g", "x", "e"], NOW + 100)
                hours = {job_id: cost.gpu_hours * 3600 for job_id, cost in costs.items()}
            assert hours == pytest.approx({"h": 100, "x": 50, "e": 50})
            table = queue.snapshot().tables["jobs.csv"]
            assert list(table.texts("shared_with")) == ["", "h", ""]
            machines = SimulatedMachines({"a": 2, "b": 0}, clock)
            executor = SimulatedExecutor(machines)
            controller = Controller(queue.store, executor, clock, ControllerOptions(every_s=60.0))
            for _ in range(50):
                controller.step()
                clock.sleep(20.0)
            assert {j.state for j in queue.jobs()} == {"done"} and machines.breaches == []
            assert {j.generation for j in queue.jobs()} == {1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_without_prices_of_memory_is_upgraded(backend: str, tmp_path: Path) -> None:
    """A queue of schema 0021 in which a job runs: it goes on without a restart, and pays for its
    GPU alone. The job that starts after the upgrade pays for its 4 GB as well."""
    pools = "pool,gpu_type,gpus,market,price_per_gpu_hour,price_per_gb_hour\na,A,2,on_demand,36,9\n"
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name, revision="0021")
        job = {"content": "", "model": "m", "total_work": 400.0, "remaining_work": 400.0}
        job |= {"memory_gb": 4.0, "max_gpus": 1, "submitted_s": NOW, "updated_s": NOW}
        with store.write() as connection:
            now = sa.MetaData()
            now.reflect(connection)
            runs = {"state": "running", "generation": 1, "want_pool": "a", "want_gpus": 1}
            for number, (job_id, more) in enumerate({"old": runs, "new": {}}.items()):
                connection.execute(
                    sa.insert(now.tables["jobs"]).values(
                        **job | more, job_id=job_id, seq=number + 1
                    )
                )
            connection.execute(
                sa.insert(now.tables["allocations"]).values(
                    job_id="old",
                    generation=1,
                    pool="a",
                    gpus=1,
                    held_gpus=1,
                    gpu_type="A",
                    phase="running",
                    work_at_start=400.0,
                    ordered_s=NOW,
                    running_s=NOW,
                )
            )
        store.close()
        create_queue(name)[0].close()
        clock = SimulatedClock(NOW + 100)
        with Queue(name, clock=clock.now) as queue:
            with queue.store.write() as connection:
                tables = {"pools.csv": pools}
                snapshots.replace_cluster(connection, cluster(**tables), NOW)
            machines = SimulatedMachines({"a": 2}, clock)
            executor = SimulatedExecutor(machines)
            controller = Controller(queue.store, executor, clock, ControllerOptions(every_s=60.0))
            controller.step()
            clock.sleep(100.0)
            with queue.store.read() as connection:
                costs = read_job_costs(connection, ["old", "new"], NOW + 200)
            dollars = {job_id: cost.dollars for job_id, cost in costs.items()}
            assert dollars == pytest.approx({"old": 200 * 0.01, "new": 100 * 0.02})
            assert queue.job("old").generation == 1 and machines.breaches == []


@pytest.mark.parametrize("part", [3, 1000])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_of_cells_becomes_one_of_values_while_its_jobs_run(
    backend: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue of schema 0008 with running jobs, whose columns are text of cells: after the upgrade,
    in chunks of any size, its snapshot is the same, cell by cell, the rounds of its journal are
    decided again the same (that version proved them by a solver), and its jobs run to their end."""
    monkeypatch.setattr(r0009_types, "PART", part)
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name, revision="0008")
        before = filled_as_before(store)
        store.close()
        create_queue(name)[0].close()
        clock = SimulatedClock(before["now_s"])
        with Queue(name, clock=clock.now) as queue:
            now = queue.snapshot()  # queues have had one more setting since then
            old_config = {key: now.config[key] for key in now.config if key != "spread_pauses"}
            assert dataclasses.replace(now, config=old_config).digest == before["digest"]
            assert queue.job("wide").values["sizes"] == (1, 2, 4)
            assert queue.job("fixed").values["preemptible"] is False
            assert queue.job("curve").values["resizes_left"] == 3
            assert queue.job("later").values["after"] == ("wide", "fixed")
            for number in (1, 2, 3, 4):
                again = replay(queue.store, number)
                assert again.is_same_decision and again.is_digest_valid
            machines = SimulatedMachines(
                {"a": 8, "b": 8},
                clock,
                MachineBehaviour(rate=lambda o: 10.0 * o.gpus, pause_s=lambda *_: 0.0),
            )
            controller = Controller(
                queue.store, SimulatedExecutor(machines), clock, ControllerOptions(every_s=300.0)
            )
            running = {job.job_id for job in queue.jobs(states=("running",))}
            assert running == {"wide", "fixed", "curve", "tick@2"}
            for _ in range(60):
                controller.step()
                clock.sleep(100.0)
            queue.release("kept")
            for _ in range(20):
                controller.step()
                clock.sleep(100.0)
            states = {job.job_id: job.state for job in queue.jobs()}
            assert set(states.values()) == {"done"} and {*running, "later", "kept"} < set(states)
            assert machines.breaches == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_newer_schema_is_refused(backend: str, tmp_path: Path) -> None:
    """Neither opened nor touched: a newer program made it."""
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name)
        with store.write() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0099'"))
        store.close()
        for call in (open_queue, create_queue):
            with pytest.raises(
                InvalidInput, match="has schema 0099, which this program does not know"
            ):
                call(name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_database_of_something_else_is_left_alone(backend: str, tmp_path: Path) -> None:
    """init puts no tables next to those of another program, not even if that one uses Alembic
    too.
    """
    with place(backend, tmp_path) as name:
        url = (
            f"sqlite:///{name}"
            if backend == "sqlite"
            else name.replace("postgresql:", "postgresql+psycopg:")
        )
        engine = sa.create_engine(url)
        for table in ("customers (id int)", "alembic_version (version_num text)"):
            with engine.begin() as connection:
                connection.execute(sa.text(f"CREATE TABLE {table}"))
            with pytest.raises(InvalidInput, match="is a database of something else"):
                create_queue(name)
        with pytest.raises(InvalidInput, match="something else"):
            open_queue(name)
        engine.dispose()


def test_what_is_no_queue(tmp_path: Path) -> None:
    """No file, a text file, an empty one, a folder, half a database: words and exit code 3, and
    nothing is made.
    """
    missing, text, empty = tmp_path / "missing.db", tmp_path / "text.db", tmp_path / "empty.db"
    text.write_text("job_id,model\n" * 100)
    empty.touch()
    for path, says in (
        (missing, 'no such queue; make one with "allocator queue init"'),
        (tmp_path, "cannot be opened"),
        (text, "is a file, but no queue"),
        (empty, "is no queue; make one"),
    ):
        with pytest.raises((InvalidInput, QueueUnavailable), match=says):
            open_queue(path)
    assert not missing.exists()
    with pytest.raises(InvalidInput, match="is a file, but no queue"):
        create_queue(text)
    assert text.read_text().startswith("job_id")
    with pytest.raises(InvalidInput, match="cannot be made: No such file or directory"):
        create_queue(tmp_path / "no" / "queue.db")


def test_damaged_pages_are_told(tmp_path: Path) -> None:
    """A file whose middle was overwritten is called damaged, not an internal error."""
    with fresh("sqlite", tmp_path) as queue:
        queue.submit_many([{"job_id": f"j{i}", **JOB} for i in range(300)])
    file = tmp_path / "queue.db"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="is damaged"), Queue(file) as queue:
        queue.jobs()


def test_names_that_cannot_be_queues() -> None:
    """Other databases, broken URLs and empty names are wrong usage, without the password in the
    message.
    """
    for name in (
        "mysql://me:secret@host/db",
        "postgresql://me:secret@host:port/db",
        "postgresql+nope://me:secret@host/db",
        "",
        "sqlite://",
    ):
        with pytest.raises(UsageError) as error:
            open_queue(name)
        assert "secret" not in str(error.value)


def test_no_password_in_names_and_messages() -> None:
    """Nobody listens there: the message names the server, not the password, wherever it stands
    in the URL.
    """
    for url in (
        "postgresql://me:secret@127.0.0.1:9/db",
        "postgresql://me@127.0.0.1:9/db?password=secret",
    ):
        with pytest.raises(QueueUnavailable) as error:
            open_queue(url)
        assert "127.0.0.1" in str(error.value) and "secret" not in str(error.value)


def test_a_new_file_is_its_owners_only(tmp_path: Path) -> None:
    """Mode 0600, whatever the umask; the files next to it have the same; a mode set later is
    kept.
    """
    before = os.umask(0)
    try:
        with fresh("sqlite", tmp_path) as queue:
            queue.submit(job_id="j", **JOB)
            assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
        (tmp_path / "queue.db").chmod(0o640)
        with Queue(tmp_path / "queue.db") as queue:
            queue.hold("j")
            assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}
    finally:
        os.umask(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_locked_queue_waits_and_then_says_so(backend: str, tmp_path: Path) -> None:
    """While another process writes, reading goes on; writing waits as long as told and then
    gives up in words.
    """
    with fresh(backend, tmp_path) as queue:
        queue.submit(job_id="j", **JOB)
        name = queue.store.engine.url.render_as_string(hide_password=False)
        other = Queue(name, wait_s=0.3)
        with queue.store.write():
            assert other.job("j").state == "queued"
            with pytest.raises(
                QueueUnavailable, match=r"is locked by another process for more than 0.3 s"
            ):
                other.hold("j")
        assert other.hold("j")[0].state == "held"
        other.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_inits_at_once_make_one_queue(backend: str, tmp_path: Path) -> None:
    """Eight threads init the same name: one makes it, the others find it."""
    with place(backend, tmp_path) as name:
        made: list[bool] = []

        def init() -> None:
            store, new = create_queue(name)
            made.append(new)
            store.close()

        threads = [threading.Thread(target=init) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == [False] * 7 + [True]


ASK_SETTINGS = """
import json, sys
from allocator.queue.queue import Queue
with Queue(sys.argv[1]) as queue, queue.store.read() as connection:
    names = ("journal_mode", "synchronous", "foreign_keys")
    ask = connection.exec_driver_sql
    print(json.dumps([ask(f"PRAGMA {name}").scalar() for name in names]))
"""


def test_commits_reach_the_disk(tmp_path: Path) -> None:
    """Every connection writes through (synchronous FULL = 2) with a write-ahead log, and checks
    foreign keys. A process of its own is asked, as this one waits for no disk (conftest.py).
    """
    name = str(tmp_path / "queue.db")
    create_queue(name)[0].close()
    done = subprocess.run(
        [sys.executable, "-c", ASK_SETTINGS, name], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["wal", 2, 1]
    with fresh("postgresql", tmp_path) as queue, queue.store.read() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


CHILD = """
import os, sys, resource
from allocator.queue.queue import Queue
from allocator.errors import AllocatorError
what, name = sys.argv[1:]
done = 0
try:
    queue = Queue(name)
    if what == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    elif os.geteuid() == 0:
        queue.close()
        os.setuid(65534)
        queue = Queue(name)
    for i in range(3000):
        queue.submit(job_id=f"n{i}", model="m", total_work=1, max_gpus=1, command=["x" * 500])
        done += 1
except AllocatorError as error:
    print(done, error.exit_code, error)
"""


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """Files may not grow beyond a size: the submission that does not fit fails in words, all before
    it are there, and with space again the queue goes on."""
    with fresh("sqlite", tmp_path):
        pass
    run = subprocess.run(
        [sys.executable, "-c", CHILD, "full", str(tmp_path / "queue.db")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    done, code, words = run.stdout.split(maxsplit=2)
    assert (
        int(done) > 5
        and code == "1"
        and "the disk is full" in words
        and "nothing was changed" in words
    )
    with Queue(tmp_path / "queue.db") as queue:
        assert [job.job_id for job in queue.jobs()] == [f"n{i}" for i in range(int(done))]
        assert queue.submit(job_id="after", **JOB).new


def test_read_only_files_are_told() -> None:
    """A file that may only be read: writing fails in words. (The superuser's child gives up its
    rights first, after it has loaded everything: nothing is read-only for that one.)"""
    with tempfile.TemporaryDirectory(prefix="shared-", dir="/tmp") as name:
        folder = Path(name)
        with fresh("sqlite", folder) as queue:
            queue.submit(job_id="j", **JOB)
        (folder / "queue.db").chmod(0o444)
        folder.chmod(0o555)
        run = subprocess.run(
            [sys.executable, "-c", CHILD, "read", str(folder / "queue.db")],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        folder.chmod(0o755)
    assert run.stdout.startswith("0 1 ") and (
        "read-only" in run.stdout or "cannot be opened" in run.stdout
    ), run


def test_the_database_goes_away(tmp_path: Path) -> None:
    """PostgreSQL ends the connections: the call under way fails in words, the next one finds a
    new connection.
    """
    with fresh("postgresql", tmp_path) as queue:
        queue.submit(job_id="j", **JOB)
        kill = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        with pytest.raises(QueueUnavailable), queue.store.write() as connection:
            connection.execute(sa.text("UPDATE jobs SET failures = 7"))
            other = sa.create_engine(queue.store.engine.url)
            with other.connect() as second:
                second.execute(sa.text(kill))
            other.dispose()
            connection.execute(sa.text("SELECT 1"))
        assert queue.job("j").failures == 0 and queue.hold("j")[0].state == "held"


def test_sqlite_files_of_another_program_with_a_wal(tmp_path: Path) -> None:
    """A path with odd characters is only a path."""
    name = tmp_path / "queue ?#%é.db"
    with Queue.create(name, cluster()) as queue:
        queue.submit(job_id="j", **JOB)
    assert name.exists() and sqlite3.connect(name).execute(
        "SELECT count(*) FROM jobs"
    ).fetchone() == (1,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_is_not_upgraded_under_a_running_controller(backend: str, tmp_path: Path) -> None:
    """While a controller of an older version holds the lease, init refuses and changes nothing;
    afterwards it works.
    """
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name, revision="0007")
        with store.write() as connection:
            held = lease.take(connection, "old controller", 60.0, time.time())
            assert held is not None
        store.close()
        with pytest.raises(
            InvalidInput, match='controller "old controller" of an older version runs'
        ):
            create_queue(name)
        with pytest.raises(InvalidInput, match="has schema 0007"):
            open_queue(name)
        store, _ = create_queue(name, revision="0007")
        with store.write() as connection:
            lease.release(connection, held)
        store.close()
        create_queue(name)[0].close()
        open_queue(name).close()


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_file_that_is_gone_is_noticed(tmp_path: Path, change: str) -> None:
    """Another process deletes the queue's file, or puts another queue in its place: reads and
    writes say so.
    """
    name = tmp_path / "queue.db"
    with fresh("sqlite", tmp_path) as queue:
        queue.submit(job_id="one", **JOB)
        name.unlink()
        if change == "replaced":
            create_queue(str(name))[0].close()
        for call in (queue.jobs, lambda: queue.submit(job_id="two", **JOB)):
            with pytest.raises(QueueUnavailable, match="was deleted or replaced"):
                call()
