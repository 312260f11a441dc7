"""`allocator run`, `history`, `replay`, `status`: what they print, write and return."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from commands import Output, call
from examples import series
from queues import BACKENDS, cluster, place
from waiting import PATIENCE_S, in_time

from allocator.cli.queue.run import make_executor
from allocator.controller.clock import WallClock
from allocator.controller.reporting.preview import preview
from allocator.executors.files import FilesExecutor
from allocator.executors.local import LocalExecutor
from allocator.io.snapshots import read_snapshot
from allocator.queue import allocations, lease
from allocator.queue.database.connection import open_queue
from allocator.queue.errors import QueueUnavailable
from allocator.queue.queue import Queue


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """A queue with three jobs."""
    path = str(tmp_path / "queue.db")
    with Queue.create(path, cluster()) as queue:
        for i in range(3):
            queue.submit(
                job_id=f"j{i}",
                model="m",
                total_work=1e5,
                max_gpus=4,
                command=["train", "--secret=hunter2"],
                environment={"TOKEN": "hunter2"},
            )
    yield path


FILES = ("--once", "--grace", "0", "--executor", "files")


def test_a_dry_run_changes_nothing(name: str, tmp_path: Path, capsys: Output) -> None:
    """It says what a round would do now, and the folder of the queue is byte by byte as before,
    also where the log of a controller that was killed is still next to it; a controller may be
    leading meanwhile. After it, the acting round does what was said."""
    with Queue(name) as queue, queue.store.write() as connection:
        taken = lease.take(connection, "another", 3600.0, time.time())
    before = contents(tmp_path)
    for options in ("", "--once", "--executor dry-run", "--every 60 --react 20"):
        code, out, err = call(capsys, f"run {name} {options}")
        assert code == 0 and contents(tmp_path) == before
        said = [line for line in out.splitlines() if line.startswith('would start job "j')]
        assert len(said) == 3 == len(out.splitlines()) and "hunter2" not in out + err
        assert "dry run" in err and '"another" leads' in err
    subprocess.run([sys.executable, "-c", KILLED, name], check=False, timeout=PATIENCE_S)
    shared = {tmp_path / "queue.db-shm": b""}  # SQLite's locks: no part of what is stored
    before = contents(tmp_path) | shared
    assert before[tmp_path / "queue.db-wal"] and len(before) == 3
    assert call(capsys, f"run {name}")[0] == 0 and contents(tmp_path) | shared == before
    with Queue(name) as queue, queue.store.write() as connection:
        assert taken is not None and queue.rounds() == []
        lease.release(connection, taken)
    assert call(capsys, "run", name, *FILES)[0] == 0
    held = FilesExecutor(tmp_path / "queue.db.files").ledger.known()
    orders = {one.job_id: one.order for one in held}
    assert said == [
        f'would start job "{job}": {order["gpus"]} GPU{"s" * (order["gpus"] > 1)} of pool'
        f' "{order["pool"]}"'
        for job, order in orders.items()
    ]


KILLED = """
import os, sys
from allocator.queue.queue import Queue
queue = Queue(sys.argv[1])
queue.configure(interval_s=61)
os._exit(9)
"""


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below the folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_that_finds_no_plan(name: str, tmp_path: Path, capsys: Output) -> None:
    """Exit codes are those of solve, and nothing is written either; options that write are
    refused.
    """
    with Queue(name) as queue, queue.store.write() as connection:
        connection.exec_driver_sql("UPDATE rates SET work_per_s = 'x'")
    before = contents(tmp_path)
    code, out, err = call(capsys, f"run {name}")
    assert (code, out) == (3, "") and "work_per_s" in err
    for option in ("--state", "--log", "--metrics", "--port"):
        value = "0" if option == "--port" else tmp_path / "x"
        code, out, err = call(capsys, f"run {name} {option} {value}")
        assert (code, out) == (2, "") and f"{option} needs an executor" in err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_a_dry_run_cannot_write(backend: str, tmp_path: Path) -> None:
    """The database itself refuses: whatever a round of it may come to do, nothing reaches the
    queue.
    """
    with place(backend, tmp_path) as address:
        with Queue.create(address, cluster()) as made:
            made.submit(job_id="j", model="m", total_work=10, max_gpus=1)
        with closing(open_queue(address, reads_only=True)) as store:
            refused = pytest.raises(QueueUnavailable, match="nothing was changed")
            with refused, store.write() as connection:
                connection.exec_driver_sql("DELETE FROM jobs")
            (step,) = preview(store, WallClock()).steps
            assert step.startswith('would start job "j": ')
        with Queue(address) as made:
            assert made.counts()["queued"] == 1 and made.rounds() == []


def test_once_then_look_at_it(name: str, tmp_path: Path, capsys: Output) -> None:
    """One round: log, metrics, history, replay, status, and the snapshot of the round as a
    folder.
    """
    log, metrics, folder = (tmp_path / n for n in ("log.jsonl", "metrics.prom", "round"))
    code, out, err = call(capsys, "run", name, *FILES, "--log", log, "--metrics", metrics)
    told = log.read_text()
    assert (code, out) == (0, "") and "hunter2" not in err + told
    events = [json.loads(line)["event"] for line in told.splitlines()]
    assert events[0] == "started" and "round" in events and events[-1] == "stopped"
    assert [path.stat().st_mode & 0o777 for path in (log, metrics)] == [0o640, 0o644]
    assert 'allocator_jobs{state="running"}' in metrics.read_text()
    out = call(capsys, f"history {name}")[1]
    assert "mip" in out and "decided" in out
    (line,) = call(capsys, f"history {name} --format json")[1].splitlines()
    assert json.loads(line)["number"] == 1
    same = "round 1: the same plan, byte by byte\n"
    assert call(capsys, f"replay {name} 1 --out {folder}") == (0, same, "")
    assert len(read_snapshot(folder).tables["jobs.csv"]) == 3
    out = call(capsys, f"status {name}")[1]
    assert "no controller leads" in out and "3 running" in out
    assert json.loads(call(capsys, f"status {name} --format json")[1])["last_round"]["number"] == 1


@pytest.mark.parametrize("executor", ["slurm", "files --state {}/elsewhere"])
def test_a_refusal_writes_nothing(name: str, tmp_path: Path, capsys: Output, executor: str) -> None:
    """A queue of executor "files" is not run by another one, and not with another folder. No file
    and no folder is made for the state or the log, and what is there stays as it is."""
    assert call(capsys, "run", name, *FILES)[0] == 0
    before = contents(tmp_path), sorted(tmp_path.rglob("*"))
    line = f"run {name} --once --log {tmp_path}/log --executor {executor.format(tmp_path)}"
    code, out, err = call(capsys, line)
    assert (code, out) == (2, "") and 'are run by executor "files"' in err
    assert (contents(tmp_path), sorted(tmp_path.rglob("*"))) == before


def test_no_queue(tmp_path: Path, capsys: Output) -> None:
    """Every command says that there is none, with exit code 3; an empty one has no round."""
    empty = tmp_path / "empty.db"
    for command in ("run", "history", "replay", "status"):
        code, out, err = call(capsys, command, tmp_path / "none.db")
        assert code == 3 and out == "" and "there is no such queue" in err
    Queue.create(empty, cluster()).close()
    assert call(capsys, "replay", empty)[0] == 2
    assert "none yet" in call(capsys, "status", empty)[1]
    for options in ((), FILES):
        assert call(capsys, "run", empty, *options)[0] == 0


def test_devices(name: str, tmp_path: Path, capsys: Output) -> None:
    """A map with more indices than the pools have: the local executor offers them all, so that a
    pool that is raised while it runs is used at once. A map that cannot be is refused with every
    fault; so is one for another executor."""
    with Queue(name) as queue:
        executor = make_executor("local", queue.store, None, 5.0, "b=0-3,a=4-13")
        assert isinstance(executor, LocalExecutor)
        assert executor.devices == {"a": tuple(range(4, 14)), "b": (0, 1, 2, 3)}
        for pool_a in (8, 10):
            queue.set_gpus({"a": pool_a})
            with queue.store.read() as connection:
                free = allocations.count_free_gpus(connection, executor.capacity())
            assert free == {"a": pool_a, "b": 4}
    run = f"run {name} --once --state {tmp_path / 'state'} --executor"
    code, out, err = call(capsys, f"{run} local --devices a=0-7,c=7-9")
    assert code == 2 and out == "" and "Traceback" not in err
    for words in ('no pool "c"', "GPU 7 is named", 'pool "b" has 4 GPUs', 'pool "a" has 10 GPUs'):
        assert words in err
    code, _, err = call(capsys, f"{run} files --devices a=0-9,b=10-13")
    assert code == 2 and "--devices" in err


def test_sleep_is_ended_by_wake() -> None:
    """A controller that sleeps for an hour stops at once when it is told to."""
    clock = WallClock()
    timer = threading.Timer(0.2, clock.wake)
    timer.start()
    with in_time(30.0):
        clock.sleep(3600.0)
    timer.join()
