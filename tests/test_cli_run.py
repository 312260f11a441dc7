"""`allocator run`, `history`, `replay`, `status`: what they print, write and return."""

from __future__ import annotations

import json
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Output, call
from queues import cluster

from allocator.cli.run_ import make_executor
from allocator.executors.dry_run import DryRunExecutor
from allocator.executors.local import LocalExecutor
from allocator.files.snapshots import read_snapshot
from allocator.queue import allocations
from allocator.queue.face import Queue
from allocator.service.clock import WallClock
from allocator.service.controller import Controller
from allocator.service.options import Options
from allocator.service.telemetry import Metrics, serve


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """A queue with three jobs."""
    path = str(tmp_path / "queue.db")
    with Queue.create(path, cluster()) as queue:
        for i in range(3):
            queue.submit(job_id=f"j{i}", model="m", total_work=1e5, max_gpus=4, command=["train", "--secret=hunter2"],
                         environment={"TOKEN": "hunter2"})
    yield path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_once_then_look_at_it(name: str, tmp_path: Path, capsys: Output) -> None:
    """A dry run of one round: log, metrics, history, replay, status, and the snapshot of the round as a folder."""
    log, metrics = tmp_path / "log.jsonl", tmp_path / "metrics.prom"
    code, out, err = call(capsys, "run", name, "--once", "--log", log, "--metrics", metrics)
    assert (code, out) == (0, "") and err.count("would start job") == 3 and "hunter2" not in err
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "started" and "round" in events and events[-1] == "stopped"
    assert "hunter2" not in log.read_text() and mode(log) == 0o640 and mode(metrics) == 0o644
    assert 'allocator_jobs{state="running"}' in metrics.read_text()

    code, out, _ = call(capsys, "history", name)
    assert code == 0 and "mip" in out and "decided" in out
    code, out, _ = call(capsys, "history", name, "--format", "json")
    assert [json.loads(line)["number"] for line in out.splitlines()] == [1]
    code, out, err = call(capsys, "replay", name, 1, "--out", tmp_path / "round")
    assert (code, out, err) == (0, "round 1: the same plan, byte by byte\n", "")
    assert len(read_snapshot(tmp_path / "round").tables["jobs.csv"]) == 3
    assert call(capsys, "solve", tmp_path / "round")[0] == 0
    code, out, _ = call(capsys, "status", name)
    assert code == 0 and "nobody is in charge" in out and "3 running" in out
    assert json.loads(call(capsys, "status", name, "--format", "json")[1])["last_round"]["number"] == 1


def test_once_again_goes_on(name: str, capsys: Output) -> None:
    """Cron: the second call knows what the first one started, and starts nothing twice."""
    for expected in (3, 0):
        code, _, err = call(capsys, "run", name, "--once", "--executor", "dry-run")
        assert code == 0 and err.count("would start") == expected


@pytest.mark.parametrize(("argv", "words"), [
    (["--every", "0"], "not a number"), (["--every", "60", "--once"], "not allowed with"),
    (["--policy", "best", "--once"], "policy"), (["--solver", "best", "--once"], "solver"),
    (["--cooldown", "-1", "--once"], "not a number"), (["--executor", "ssh"], "invalid choice")])
def test_wrong_calls(name: str, capsys: Output, argv: list[str], words: str) -> None:
    """Exit code 2 and a line that says what is wrong; nothing is decided."""
    code, out, err = call(capsys, "run", name, *argv)
    assert code == 2 and out == "" and words in err
    with Queue(name) as queue:
        assert queue.rounds() == []


def test_no_queue(tmp_path: Path, capsys: Output) -> None:
    """Every command says that there is none, with exit code 3."""
    for argv in (["run"], ["history"], ["replay"], ["status"]):
        code, out, err = call(capsys, *argv, tmp_path / "none.db")
        assert code == 3 and out == "" and "there is no such queue" in err
    Queue.create(tmp_path / "empty.db", cluster()).close()
    assert call(capsys, "replay", tmp_path / "empty.db")[0] == 2
    assert "none yet" in call(capsys, "status", tmp_path / "empty.db")[1]
    assert call(capsys, "run", tmp_path / "empty.db", "--once")[0] == 0


def test_a_failed_round_of_once(name: str, capsys: Output) -> None:
    """Guarantees beyond all reach: exit code 1, the journal says why."""
    with Queue(name) as queue:
        queue.configure(budget_per_hour=1.0)
        first = queue.rounds()
    assert first == []
    assert call(capsys, "run", name, "--once")[0] == 0          # nothing runs: an empty plan keeps the budget
    with Queue(name) as queue, queue.store.write() as connection:
        connection.exec_driver_sql("UPDATE rates SET work_per_s = 'x'")
    assert call(capsys, "run", name, "--once")[0] == 1
    assert "work_per_s" in call(capsys, "history", name)[1]


def test_metrics_port() -> None:
    """/metrics on loopback; anything else is not found."""
    metrics = Metrics()
    metrics.set("in_charge", 1)
    server = serve(metrics, 0)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        assert answer.status == 200 and b"allocator_in_charge 1" in answer.read()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(address)
    server.shutdown()


def test_sleep_is_ended_by_wake(name: str) -> None:
    """A controller that sleeps for an hour stops at once when it is told to."""
    clock = WallClock()
    with Queue(name) as queue:
        controller = Controller(queue.store, DryRunExecutor(), clock, Options(every_s=3600.0, poll_s=3600.0))

        def stop() -> None:
            controller.stopping = True
            clock.wake()

        timer = threading.Timer(1.0, stop)
        timer.start()
        begin = time.monotonic()
        assert controller.run() == 1 and time.monotonic() - begin < 30
        timer.join()


def test_devices(name: str, tmp_path: Path, capsys: Output) -> None:
    """A map with more indices than the pools have: the local executor offers them all, so that a pool that is raised
    while it runs is used at once. A map that cannot be is refused with every fault; so is one for another executor."""
    with Queue(name) as queue:
        executor = make_executor("local", queue.store, None, 5.0, "b=0-3,a=4-13")
        assert isinstance(executor, LocalExecutor) and executor.devices == {"a": tuple(range(4, 14)), "b": (0, 1, 2, 3)}
        for pool_a in (8, 10):
            queue.set_gpus({"a": pool_a})
            with queue.store.read() as connection:
                assert allocations.free(connection, executor.capacity()) == {"a": pool_a, "b": 4}
    argv = ("run", name, "--once", "--state", tmp_path / "state")
    code, out, err = call(capsys, *argv, "--executor", "local", "--devices", "a=0-7,c=7-9")
    assert code == 2 and out == "" and "Traceback" not in err
    for words in ('no pool "c"', "GPU 7 is named", 'pool "b" has 4 GPUs', 'pool "a" has 10 GPUs'):
        assert words in err
    code, _, err = call(capsys, *argv, "--devices", "a=0-9,b=10-13")
    assert code == 2 and "--devices" in err
