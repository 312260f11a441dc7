"""Disks that fill up under jobs, their supervisors and controllers: ends are recorded later,
nothing runs twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from controller_rigs import Rig as ControllerRig
from executor_rigs import LocalRig
from fakes.simulated_executor import SimulatedClock, SimulatedExecutor
from queues import NOW, build_command, cluster
from waiting import PATIENCE_S, wait_for

from allocator.executors import local
from allocator.executors.errors import NotNow
from allocator.executors.supervision import supervisor
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import Phase
from allocator.queue.queue import Queue


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    with closing(LocalRig(tmp_path)) as made:
        yield made


def test_a_supervisor_whose_log_is_full_too_waits_and_then_records_the_end(rig: LocalRig) -> None:
    """The end cannot be written (a folder is in its place), and neither can the complaint about it
    (the log is full): the supervisor waits, and writes the end when it can."""
    executor = rig.current
    order = rig.order("j", kind="short")
    place = executor.ledger.create(order, {}, devices=[0], grace_s=1.0, base=0.0, marker="x")
    executor.ledger.job_folder("j").mkdir(exist_ok=True)
    blocked = (
        "import sys\n"
        "from pathlib import Path\n"
        "from allocator.executors.supervision import supervisor\n"
        "supervise = supervisor.Supervisor.supervise\n"
        "def supervise_and_block(self):\n"
        "    end = supervise(self)\n"
        "    (self.folder / supervisor.EXIT).mkdir()\n"
        "    return end\n"
        "supervisor.Supervisor.supervise = supervise_and_block\n"
        "sys.exit(supervisor.main(Path(sys.argv[1])))\n"
    )
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([sys.executable, "-c", blocked, str(place)], stderr=full)
    wait_for((place / supervisor.EXIT).is_dir)
    time.sleep(0.3)
    # it lives, so that nobody takes the job for lost
    assert process.poll() is None
    (place / supervisor.EXIT).rmdir()
    assert process.wait(PATIENCE_S) == 0
    assert (supervisor.read_ending(place) or {})["phase"] == "finished"


def test_an_end_that_cannot_be_recorded_is_looked_at_again(
    rig: LocalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor was killed and the disk is full: the allocation counts as running, and as
    lost afterwards.
    """
    executor = rig.current
    rig.begin(rig.order("j"))
    os.kill(rig.supervisor("j"), signal.SIGKILL)

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(local, "write_json", no_space)
        for _ in range(5):
            time.sleep(0.05)
            assert [one.phase for one in executor.observe()] == [Phase.RUNNING]
    assert rig.ended("j").phase == Phase.LOST


class _FullDisk(SimulatedExecutor):
    """An executor whose disk does not answer while it is full."""

    is_full, looks = False, 0

    def observe(self):  # type: ignore[no-untyped-def]
        self.looks += 1
        if self.is_full:
            raise OSError(28, f"No space left on device, buffer at {id(object()):#x}")
        return super().observe()


def test_a_controller_outlives_an_executor_without_an_answer(
    make: Callable[..., ControllerRig],
) -> None:
    """While the executor cannot be asked nothing is ordered and no round is written; then it goes
    on. An hour of that is one line, its end is another, and the executor is asked at most every
    ten seconds. With --once the call fails and says so."""
    rig = make(executor=_FullDisk, policy="greedy", poll_s=None)
    rig.submit("one", work=1e6)

    def sleep(seconds: float) -> None:
        SimulatedClock.sleep(rig.clock, seconds)
        rig.executor.is_full = NOW < rig.clock.now() < NOW + 3600
        rig.controller.stopping = rig.clock.now() > NOW + 3720

    rig.clock.sleep = sleep  # type: ignore[method-assign]
    assert rig.controller.run() > 1
    events = [str(json.loads(line)["event"]) for line in rig.log.getvalue().splitlines()]
    assert events.count("not_now") == events.count("over") == 1
    assert events.index("not_now") < events.index("over") < len(events) - 1
    assert rig.executor.looks < 370 + 120 / rig.options.poll_interval_s(60.0)
    assert rig.queue.job("one").generation == 1
    rig.executor.is_full = True
    with pytest.raises(NotNow, match="No space left"):
        rig.controller.try_step(once=True)


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 8 MB; needs the rights to mount one."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def _filled(folder: Path, seconds: float) -> Iterator[None]:
    """The disk has no byte left for so long."""
    path = folder / "fill"
    with path.open("wb", buffering=0) as out:
        for size in (1 << 16, 1 << 9, 1):
            with suppress(OSError):
                while out.write(b"x" * size):
                    pass
        time.sleep(seconds)
        yield
    path.unlink()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_fifty_full_disks_lose_and_double_nothing(tmp_path: Path, seed: int, kills: bool) -> None:
    """Two controllers and real jobs that stamp their starts and ends on another disk; the disk with
    queue, executor's state and logs fills up fifty times. Both controllers live, and each job runs
    exactly once: no round may pause, move or resize a running one, which would be a second start.
    Where supervisors are killed too, an end that could not be written yet is lost with its
    supervisor: such a job may run once more for each allocation that was lost, and not oftener.
    (`./scripts/test -m soak -k full_disks`, as root.)"""
    draw, jobs = random.Random(seed), 250
    stamps = tmp_path / "stamps"
    stamps.touch()
    with _small_disk(tmp_path / "disk") as disk:
        name = str(disk / "queue.db")
        with Queue.create(name, cluster()) as queue:
            for i in range(jobs):
                script = (
                    f"echo start {i} >> {stamps}; sleep {draw.uniform(0.2, 3.0)}; echo end {i} >>"
                    f" {stamps}"
                )
                queue.submit(
                    job_id=f"j{i}",
                    model="m",
                    total_work=1e6,
                    max_gpus=2,
                    preemptible=False,
                    command=["sh", "-c", script],
                )
        command = build_command(name, 0.5, "local")
        controllers = []
        try:
            for k in range(2):
                controllers.append(
                    subprocess.Popen(
                        [*command, "--log", str(disk / f"log{k}")], stderr=subprocess.DEVNULL
                    )
                )
                wait_for(lambda: "start" in stamps.read_text(), every_s=0.1)
            time.sleep(3.0)
            for _ in range(50):
                with _filled(disk, draw.uniform(0.1, 1.5)):
                    if kills and draw.random() < 0.3:
                        _kill_one_supervisor(disk, draw)
                time.sleep(draw.uniform(0.1, 1.0))
                assert [one.poll() for one in controllers] == [None, None]
            deadline = time.monotonic() + 600.0
            with Queue(name) as queue:
                while (
                    any(job.state != "done" for job in queue.jobs()) and time.monotonic() < deadline
                ):
                    time.sleep(1.0)
                states = Counter(job.state for job in queue.jobs())
                given = {job.job_id: job.generation for job in queue.jobs()}
        finally:
            for one in controllers:
                one.kill()
                one.wait()
    told = Counter(stamps.read_text().split("\n"))
    assert states == {"done": jobs}
    runs = {i: (told[f"start {i}"], told[f"end {i}"], given[f"j{i}"]) for i in range(jobs)}
    odd = {i: run for i, run in runs.items() if not 1 <= run[1] <= run[0] <= run[2]}
    assert not odd, odd
    if not kills:
        assert set(runs.values()) == {(1, 1, 1)}, [run for run in runs.values() if run != (1, 1, 1)]


def _kill_one_supervisor(disk: Path, draw: random.Random) -> None:
    found = sorted(disk.glob("queue.db.local/open/*/keeper.json"))
    if found and (who := read_json(draw.choice(found))) is not None:
        with suppress(ProcessLookupError):
            os.kill(int(who["pid"]), signal.SIGKILL)
