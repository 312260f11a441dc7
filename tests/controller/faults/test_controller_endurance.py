"""A controller goes on: idle connections, SIGTERM at any moment, disks that fill up under jobs,
their supervisors and controllers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from commands import Output, call
from controller_rigs import Rig as ControllerRig
from executor_rigs import LocalRig
from fakes.simulated_executor import SimulatedClock, SimulatedExecutor
from queues import NOW, build_command, cluster
from waiting import PATIENCE_S, wait_for

from allocator.cli import main
from allocator.cli.queue.run import stop_on_signals
from allocator.cli.termination import Terminator, is_termination_requested
from allocator.controller.reporting import telemetry
from allocator.controller.reporting.telemetry import Metrics, serve
from allocator.executors import allocation
from allocator.loop.executor import NotNow, Phase
from allocator.queue.queue import Queue


def _queue(folder: Path) -> str:
    name = str(folder / "queue.db")
    with Queue.create(name, cluster()) as queue:
        queue.submit(job_id="one", model="m", total_work=1e6, max_gpus=4)
    return name


def test_connections_beyond_the_limit_are_closed_and_idle_ones_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twenty silent connections four are closed at once; when the others have timed out
    /metrics answers.
    """
    monkeypatch.setattr(telemetry, "IDLE_S", 1.0)
    server = serve(Metrics(), "127.0.0.1", 0)
    address = server.server_address[:2]
    silent = [
        socket.create_connection(address, timeout=PATIENCE_S)
        for _ in range(telemetry.MOST_CONNECTIONS + 4)
    ]
    begin = time.monotonic()
    assert [one.recv(1) for one in silent[-4:]] == [b""] * 4
    assert [one.recv(1) for one in silent[:-4]] == [b""] * telemetry.MOST_CONNECTIONS
    assert time.monotonic() - begin > 0.5  # those were given their time
    url = f"http://127.0.0.1:{address[1]}/metrics"

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status == 200
        return False

    wait_for(answers)
    server.shutdown()
    server.server_close()
    for one in silent:
        one.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_termination_that_the_interpreter_drops_is_remembered() -> None:
    """SIGTERM inside a callback of the interpreter raises nothing; the controller that starts
    then stops at once.
    """

    class Thing:
        pass

    class FakeController:
        stopping = False
        deciding = False

    before = signal.signal(signal.SIGTERM, Terminator())
    try:
        thing = Thing()
        dropped = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        del thing
        assert dropped() is None and is_termination_requested()
        controller = FakeController()
        with stop_on_signals(controller, lambda: None):  # type: ignore[arg-type]
            assert controller.stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_termination_that_a_library_takes_for_its_own_failure_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Importing numpy turns whatever a signal raises into an ImportError; it is not an internal
    error.
    """

    def import_library(_argv: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise ImportError("could not import module") from None
        return 0

    monkeypatch.setattr(main, "_call", import_library)
    assert call(capsys) == (143, "", "terminated\n")


def _ends_after(name: str, delay_s: float) -> bool:
    process = subprocess.Popen(build_command(name, 0.2, "files"), stderr=subprocess.DEVNULL)
    try:
        time.sleep(delay_s)
        process.terminate()
        process.wait(PATIENCE_S)
    finally:
        process.kill()
    # done, terminated, or ended by the signal before it had a handler
    return process.returncode in (0, 143, -signal.SIGTERM)


@pytest.mark.parametrize("moments", [2, pytest.param(500, marks=pytest.mark.soak)])
def test_sigterm_ends_a_controller_that_is_starting(moments: int, tmp_path: Path) -> None:
    """Two random moments of the first 1.2 seconds, or five hundred."""
    name, draw = _queue(tmp_path), random.Random(0)
    assert all(_ends_after(name, draw.uniform(0.0, 1.2)) for _ in range(moments))


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
        patched.setattr(allocation, "write_json", no_space)
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
    """While the executor does not answer, the controller orders nothing and writes no round.
    Afterwards it goes on. An hour without an answer is one line of the log, its end is another one,
    and the executor is asked every ten seconds at most. With --once the command fails and says
    why."""
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
