"""Disks that fill up under jobs, their supervisors and controllers: ends are recorded later,
nothing runs twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from controller_rigs import Rig as ControllerRig
from executor_rigs import LocalRig
from fakes.simulated_executor import SimulatedClock, SimulatedExecutor
from queues import NOW
from waiting import PATIENCE_S, wait_for

from allocator.executors import local
from allocator.executors.errors import NotNow
from allocator.executors.supervision import supervisor
from allocator.loop.executor import Phase


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
