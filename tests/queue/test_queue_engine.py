"""Opening queues: files that are none, old and new schemas, locks, full disks, rights,
passwords.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from places import ROOT
from queues import BACKENDS, fresh, place

from allocator.errors import InvalidInput
from allocator.queue.database.connection import create_queue, open_queue
from allocator.queue.errors import QueueUnavailable
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 100, "max_gpus": 4}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "DELETE FROM meta WHERE key = 'schema'",
            "was made before the first release, .* init NEW --from FOLDER",
        ),
        (
            "UPDATE meta SET value = 'r0099' WHERE key = 'schema'",
            "has schema r0099, .* needs r0001",
        ),
    ],
)
def test_a_queue_of_another_schema_is_refused(
    backend: str, change: str, says: str, tmp_path: Path
) -> None:
    """Neither opened nor touched: a version before the first release made it, or a later one."""
    with place(backend, tmp_path) as name:
        store, _ = create_queue(name)
        with store.write() as connection:
            connection.execute(sa.text(change))
        store.close()
        for call in (open_queue, create_queue):
            with pytest.raises(InvalidInput, match=says):
                call(name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_database_of_something_else_is_left_alone(backend: str, tmp_path: Path) -> None:
    """init puts no tables next to those of another program."""
    with place(backend, tmp_path) as name:
        url = (
            f"sqlite:///{name}"
            if backend == "sqlite"
            else name.replace("postgresql:", "postgresql+psycopg:")
        )
        engine = sa.create_engine(url)
        for table in ("customers (id int)", "jobs (id int)"):
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


def test_a_locked_queue_waits_and_then_says_so(queue: Queue) -> None:
    """While another process writes, reading goes on; writing waits as long as told and then
    gives up in words.
    """
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


def submit_in_child(what: str, folder: Path) -> str:
    """Return what the child prints."""
    command = [sys.executable, "-c", CHILD, what, str(folder / "queue.db")]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """Files may not grow beyond a size: the submission that does not fit fails in words, all before
    it are there, and with space again the queue goes on."""
    with fresh("sqlite", tmp_path):
        pass
    done, code, words = submit_in_child("full", tmp_path).split(maxsplit=2)
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
        said = submit_in_child("read", folder)
        folder.chmod(0o755)
    assert said.startswith("0 1 ") and ("read-only" in said or "cannot be opened" in said), said


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
