"""Disks that fill up under jobs, their supervisors and controllers: ends are recorded later,
nothing runs twice.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from controller_rigs import Rig as ControllerRig
from executor_rigs import LocalRig
from fakes.simulated_executor import SimulatedClock, SimulatedExecutor
from queues import NOW

from allocator.executors import local
from allocator.executors.errors import NotNow
from allocator.loop.executor import Phase


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    with closing(LocalRig(tmp_path)) as made:
        yield made


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
