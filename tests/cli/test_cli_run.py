"""`allocator run`, `history`, `replay`, `status`: what they print, write and return."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Output, call
from queues import BACKENDS, cluster, fresh
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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


FILES = ("--once", "--grace", "0", "--executor", "files")


def test_a_dry_run_changes_nothing(name: str, tmp_path: Path, capsys: Output) -> None:
    """It says what a round would do now, and the folder of the queue is byte by byte as before,
    also where the log of a controller that was killed is still next to it; a controller may be
    leading meanwhile. What a round would pause or resize is stopped first. After it, the acting
    round does what was said."""
    with Queue(name) as queue, queue.store.write() as connection:
        assert lease.take(connection, "another", 3600.0, time.time()) is not None
    for argv in ((), ("--once",), ("--executor", "dry-run"), ("--every", "60", "--react", "20")):
        before = contents(tmp_path)
        code, out, err = call(capsys, "run", name, *argv)
        assert code == 0 and contents(tmp_path) == before
        said = [line for line in out.splitlines() if line.startswith('would start job "j')]
        assert len(said) == 3 == len(out.splitlines()) and "hunter2" not in out + err
        assert "dry run" in err and '"another" leads' in err
    subprocess.run([sys.executable, "-c", KILLED, name], check=False, timeout=PATIENCE_S)
    before = contents(tmp_path)
    assert {path.name for path in before} == {"queue.db", "queue.db-wal", "queue.db-shm"}
    assert before[tmp_path / "queue.db-wal"]
    assert call(capsys, f"run {name}")[0] == 0
    after = contents(tmp_path)
    shared = tmp_path / "queue.db-shm"  # SQLite's locks: no part of what is stored
    assert {**after, shared: b""} == {**before, shared: b""}
    with Queue(name) as queue:
        assert (queue.rounds(), queue.counts()["queued"], queue.job("j0").want_gpus) == ([], 3, 0)
        with queue.store.write() as connection:
            lease.release(connection, lease.Lease("another", 1, 0.0, 0.0))
    assert call(capsys, "run", name, *FILES)[0] == 0
    held = {
        one.job_id: one.order for one in FilesExecutor(tmp_path / "queue.db.files").ledger.known()
    }
    assert said == [
        f'would start job "{job}": {order["gpus"]} GPU{"s" * (order["gpus"] > 1)} of pool'
        f' "{order["pool"]}"'
        for job, order in held.items()
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dry_run_cannot_write(backend: str, tmp_path: Path) -> None:
    """The database itself refuses: whatever a round of it may come to do, nothing reaches the
    queue.
    """
    with fresh(backend, tmp_path, cluster()) as made:
        made.submit(job_id="j", model="m", total_work=10, max_gpus=1)
        url = made.store.engine.url
        address = (
            str(url.database) if backend == "sqlite" else url.render_as_string(hide_password=False)
        )
        store = open_queue(address, reads_only=True)
        with (
            pytest.raises(QueueUnavailable, match="nothing was changed"),
            store.write() as connection,
        ):
            connection.exec_driver_sql("DELETE FROM jobs")
        found = preview(store, WallClock())
        assert len(found.steps) == 1 and found.steps[0].startswith('would start job "j": ')
        store.close()
        assert made.counts()["queued"] == 1 and made.rounds() == []


def test_once_then_look_at_it(name: str, tmp_path: Path, capsys: Output) -> None:
    """One round: log, metrics, history, replay, status, and the snapshot of the round as a
    folder.
    """
    log, metrics = tmp_path / "log.jsonl", tmp_path / "metrics.prom"
    code, out, err = call(capsys, "run", name, *FILES, "--log", log, "--metrics", metrics)
    assert (code, out) == (0, "") and "hunter2" not in err
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "started" and "round" in events and events[-1] == "stopped"
    assert "hunter2" not in log.read_text() and mode(log) == 0o640 and mode(metrics) == 0o644
    assert 'allocator_jobs{state="running"}' in metrics.read_text()

    code, out, _ = call(capsys, f"history {name}")
    assert code == 0 and "mip" in out and "decided" in out
    code, out, _ = call(capsys, f"history {name} --format json")
    assert [json.loads(line)["number"] for line in out.splitlines()] == [1]
    code, out, err = call(capsys, f"replay {name} 1 --out {tmp_path / 'round'}")
    assert (code, out, err) == (0, "round 1: the same plan, byte by byte\n", "")
    assert len(read_snapshot(tmp_path / "round").tables["jobs.csv"]) == 3
    assert call(capsys, f"solve {tmp_path / 'round'}")[0] == 0
    code, out, _ = call(capsys, f"status {name}")
    assert code == 0 and "no controller leads" in out and "3 running" in out
    assert json.loads(call(capsys, f"status {name} --format json")[1])["last_round"]["number"] == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--every", "0"], "not a number"),
        (["--every", "60", "--once"], "not allowed with"),
        (["--policy", "best", "--once"], "policy"),
        (["--solver", "best", "--once"], "solver"),
        (["--cooldown", "-1", "--once"], "not a number"),
        (
            ["--executor", "ssh"],
            'unknown executor "ssh" (known: dry-run, files, kubernetes, local, ray, slurm)',
        ),
    ],
)
def test_wrong_calls(name: str, capsys: Output, argv: list[str], words: str) -> None:
    """Exit code 2 and a line that says what is wrong; nothing is decided."""
    code, out, err = call(capsys, "run", name, *argv)
    assert code == 2 and out == "" and words in err
    with Queue(name) as queue:
        assert queue.rounds() == []


@pytest.mark.parametrize("argv", [("slurm",), ("files", "--state", "elsewhere")])
def test_a_refusal_writes_nothing(
    name: str, tmp_path: Path, capsys: Output, argv: tuple[str, ...]
) -> None:
    """A queue of executor "files" is not run by another one, and not with another folder. No file
    and no folder is made for the state or the log, and what is there stays as it is."""
    assert call(capsys, "run", name, *FILES)[0] == 0
    before = contents(tmp_path), sorted(tmp_path.rglob("*"))
    more = [str(tmp_path / word) if word == "elsewhere" else word for word in argv]
    code, out, err = call(
        capsys, "run", name, "--once", "--log", str(tmp_path / "log"), "--executor", *more
    )
    assert (code, out) == (2, "") and 'are run by executor "files"' in err
    assert (contents(tmp_path), sorted(tmp_path.rglob("*"))) == before


def test_no_queue(tmp_path: Path, capsys: Output) -> None:
    """Every command says that there is none, with exit code 3."""
    for argv in (["run"], ["history"], ["replay"], ["status"]):
        code, out, err = call(capsys, *argv, tmp_path / "none.db")
        assert code == 3 and out == "" and "there is no such queue" in err
    Queue.create(tmp_path / "empty.db", cluster()).close()
    assert call(capsys, f"replay {tmp_path / 'empty.db'}")[0] == 2
    assert "none yet" in call(capsys, f"status {tmp_path / 'empty.db'}")[1]
    assert call(capsys, f"run {tmp_path / 'empty.db'}")[0] == 0
    assert call(capsys, "run", tmp_path / "empty.db", *FILES)[0] == 0


def test_devices(name: str, tmp_path: Path, capsys: Output) -> None:
    """A map with more indices than the pools have: the local executor offers them all, so that a
    pool that is raised while it runs is used at once. A map that cannot be is refused with every
    fault; so is one for another executor."""
    with Queue(name) as queue:
        executor = make_executor("local", queue.store, None, 5.0, "b=0-3,a=4-13")
        assert isinstance(executor, LocalExecutor) and executor.devices == {
            "a": tuple(range(4, 14)),
            "b": (0, 1, 2, 3),
        }
        for pool_a in (8, 10):
            queue.set_gpus({"a": pool_a})
            with queue.store.read() as connection:
                assert allocations.count_free_gpus(connection, executor.capacity()) == {
                    "a": pool_a,
                    "b": 4,
                }
    argv = ("run", name, "--once", "--state", tmp_path / "state")
    code, out, err = call(capsys, *argv, "--executor", "local", "--devices", "a=0-7,c=7-9")
    assert code == 2 and out == "" and "Traceback" not in err
    for words in ('no pool "c"', "GPU 7 is named", 'pool "b" has 4 GPUs', 'pool "a" has 10 GPUs'):
        assert words in err
    code, _, err = call(capsys, *argv, "--executor", "files", "--devices", "a=0-9,b=10-13")
    assert code == 2 and "--devices" in err


def test_sleep_is_ended_by_wake() -> None:
    """A controller that sleeps for an hour stops at once when it is told to."""
    clock = WallClock()
    timer = threading.Timer(0.2, clock.wake)
    timer.start()
    with in_time(30.0):
        clock.sleep(3600.0)
    timer.join()
