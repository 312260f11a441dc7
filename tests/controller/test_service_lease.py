"""Two controllers as real processes: one decides, the other stands by; a paused one cannot act
when it comes back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import build_command, cluster
from waiting import PATIENCE_S, in_time, wait_for

from allocator.executors.files import FilesExecutor
from allocator.queue.queue import Queue

EVERY_S = 2.0


class Process:
    """`allocator run` with JSON lines in a file."""

    def __init__(self, folder: Path, name: str, *more: str) -> None:
        self.log = folder / f"{name}.jsonl"
        self.child = subprocess.Popen(
            build_command(
                str(folder / "queue.db"),
                EVERY_S,
                "files",
                *("--poll", "0.2", "--state", str(folder / "state")),
                *("--policy", "greedy", "--log", str(self.log)),
                *more,
            ),
            stderr=subprocess.PIPE,
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        rows = [
            json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")
        ]
        return [row for row in rows if row["event"] == name]

    def send(self, number: int) -> None:
        os.kill(self.child.pid, number)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for one in made:
        one.child.kill()
        one.child.wait()
        assert one.child.stderr is not None
        one.child.stderr.close()


def test_standby_takes_over_and_the_paused_one_cannot_act(
    tmp_path: Path, processes: list[Process]
) -> None:
    """SIGSTOP to the one leading: the other one leads soon after and decides. SIGCONT: the
    first loses its lease, writes nothing and stands by. SIGTERM to the second: it gives the lease
    back, the first takes it at once."""
    with Queue.create(tmp_path / "queue.db", cluster()) as queue:
        for i in range(3):
            queue.submit(job_id=f"j{i}", model="m", total_work=1e6, max_gpus=4)
        first = Process(tmp_path, "first")
        processes.append(first)
        wait_for(lambda: first.events("round"))
        second = Process(tmp_path, "second")
        processes.append(second)
        wait_for(lambda: second.events("standby"))
        assert not second.events("round")

        first.send(signal.SIGSTOP)
        with in_time(2 * EVERY_S + 2.0):
            wait_for(lambda: second.events("lease_taken"))
        wait_for(lambda: second.events("round"))
        queue.submit(job_id="new", model="n", total_work=1e6, max_gpus=1)
        wait_for(lambda: queue.job("new").want_gpus)
        rounds = len(first.events("round"))
        first.send(signal.SIGCONT)
        wait_for(lambda: first.events("lease_lost") or first.events("standby"))
        time.sleep(1.0)
        assert len(first.events("round")) == rounds
        tokens = [r.token for r in queue.rounds()]
        assert tokens == sorted(tokens) and set(tokens) == {1, 2}

        second.send(signal.SIGTERM)
        assert second.child.wait(PATIENCE_S) == 0
        with in_time(EVERY_S + 2.0):
            wait_for(lambda: len(first.events("lease_taken")) == 2)
        numbers = [r.number for r in queue.rounds()]
        assert numbers == list(range(1, len(numbers) + 1))
        seen = [
            (one.job_id, one.generation) for one in FilesExecutor(tmp_path / "state").ledger.known()
        ]
        assert len({job for job, _ in seen}) == len(seen)  # nobody was started twice


@pytest.mark.soak
def test_the_live_demo_survives_kills(tmp_path: Path) -> None:
    """`demo --live`, killed with -9 twice and given again: all ten jobs are done and no job
    began at step 0 twice.
    """
    command = [sys.executable, "-m", "allocator", "demo", "--live", "--dir", str(tmp_path / "live")]
    for seconds in (14.0, 9.0):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        child.kill()
        child.wait()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (
        done.returncode == 0
        and "10 of 10 jobs done" in done.stdout
        and "none begun anew" in done.stdout
    )
    logs = sorted((tmp_path / "live" / "jobs").glob("*/log.csv"))
    assert len(logs) == 10
    for log in logs:
        starts = [
            line.split(",")[2] for line in log.read_text().splitlines() if line.startswith("start")
        ]
        assert starts.count("0") == 1, log
