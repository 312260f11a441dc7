"""The local executor under a small controller, while supervisors and jobs are killed at random:
nothing starts from scratch, nothing runs twice, no GPU is given twice, and all work is counted
once."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from allocator.executors.errors import NotNow
from allocator.executors.local import LocalExecutor
from allocator.executors.supervision.processes import find_descendants
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import ENDED, Order, Phase

STEPS = 25
JOBS = ("j", "k", "l")
SCRIPT = f"""
mkdir running 2>/dev/null || echo twice >> clashes
for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do mkdir ../../../gpu$gpu 2>/dev/null || echo \
$gpu >> clashes; done
n=$(cat checkpoint 2>/dev/null || echo 0); echo $n >> starts
free() {{ rmdir running; for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do rmdir \
../../../gpu$gpu; done; }}
trap 'free; exit 143' TERM
report() {{ echo $n $n > $ALLOCATOR_PROGRESS.new; mv $ALLOCATOR_PROGRESS.new $ALLOCATOR_PROGRESS; }}
report
while [ $n -lt {STEPS} ]; do sleep 0.02; n=$((n + 1)); echo $n > new; mv new checkpoint; report; \
done
free
"""


class Chaos:
    """Three jobs that want 1 or 2 of three GPUs, and a controller that remembers what a queue
    would.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.luck = folder, random.Random(seed)
        self.generation = dict.fromkeys(JOBS, 0)
        self.left = dict.fromkeys(JOBS, float(STEPS))
        self.open: dict[str, Order] = {}
        self.done: set[str] = set()
        self.kills = 0

    def executor(self) -> LocalExecutor:
        return LocalExecutor(self.folder, {"a": (0, 1, 2)}, grace_s=0.5)

    def work(self, job: str) -> Path:
        return self.folder / "jobs" / job / "work"

    def run(self) -> None:
        """Until all are done."""
        deadline = time.monotonic() + 4 * PATIENCE_S
        executor = self.executor()
        while len(self.done) < len(JOBS):
            assert time.monotonic() < deadline, (self.left, list(executor.observe()))
            if self.luck.random() < 0.2:
                executor = self.executor()  # another controller
            self.look(executor)
            if self.kills < 12 and self.luck.random() < 0.2:
                self.harm(executor)
            time.sleep(self.luck.random() * 0.05)

    def look(self, executor: LocalExecutor) -> None:
        for one in executor.observe():
            assert one.job_id in self.open or one.phase in ENDED
            if one.phase in ENDED and one.job_id in self.open:
                self.clear(one.job_id, executor)
                self.left[one.job_id] -= one.work_done
                del self.open[one.job_id]
                executor.acknowledge(one.job_id, one.generation)
                if one.phase is Phase.FINISHED:
                    self.done.add(one.job_id)
        for job in JOBS:
            if job not in self.open and job not in self.done:
                self.generation[job] += 1
                self.open[job] = Order(
                    job,
                    self.generation[job],
                    1,
                    "a",
                    self.luck.choice((1, 2)),
                    "A",
                    self.left[job],
                    ("sh", "-c", SCRIPT),
                )
        for order in self.open.values():
            with suppress(NotNow):
                executor.start(order)  # again and again, as after crashes

    def clear(self, job: str, executor: LocalExecutor) -> None:
        """Whoever was killed could not take its marks away; that it is dead was just said."""
        place = executor.ledger.place(job, self.open[job].generation)
        for name in [
            self.work(job) / "running",
            *(self.folder / f"gpu{d}" for d in (read_json(place / "order.json") or {})["devices"]),
        ]:
            with suppress(FileNotFoundError):
                name.rmdir()

    def harm(self, executor: LocalExecutor) -> None:
        """Kill a supervisor or a job, or stop a job."""
        job = self.luck.choice([*self.open] or [*JOBS])
        order = self.open.get(job)
        supervisor = (
            read_json(executor.ledger.place(job, order.generation) / "keeper.json")
            if order
            else None
        )
        if (
            order is None
            or supervisor is None
            or not executor.ledger.place(job, order.generation).is_dir()
        ):
            return
        how = self.luck.choice(("supervisor", "job", "stop"))
        self.kills += 1
        with suppress(ProcessLookupError):
            if (
                how == "supervisor"
                and not (executor.ledger.place(job, order.generation) / "exit.json").exists()
            ):
                os.kill(supervisor["pid"], signal.SIGKILL)
            elif how == "job":
                for p in find_descendants(supervisor["pid"])[:1]:
                    os.kill(p.pid, signal.SIGKILL)
            elif how == "stop":
                executor.stop(job, order.generation, 1)


def chaos(folder: Path, seed: int) -> int:
    """One run; returns how often a job was harmed."""
    run = Chaos(folder / "state", seed)
    run.run()
    for job in JOBS:
        assert not (run.work(job) / "clashes").exists(), (
            seed,
            job,
            (run.work(job) / "clashes").read_text(),
        )
        starts = [int(n) for n in (run.work(job) / "starts").read_text().split()]
        assert starts == sorted(starts) and len(starts) <= run.generation[job]
        assert (run.work(job) / "checkpoint").read_text() == f"{STEPS}\n"
        assert run.left[job] == 0.0, (seed, run.left)
    assert os.listdir(run.folder / "open") == []
    return run.kills


def test_killed_at_random(tmp_path: Path) -> None:
    """One seed."""
    assert chaos(tmp_path, 0) > 3


@pytest.mark.soak
def test_killed_at_random_for_long(tmp_path: Path) -> None:
    """Sixty seeds."""
    assert sum(chaos(tmp_path / str(seed), seed) for seed in range(1, 61)) > 200
