"""The local executor when things die: controllers, supervisors, the machine; a full disk; crashes
at every write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from executor_rigs import (
    STUBBORN,
    LocalRig,
    alive,
    named,
    shell,
)
from fakes.executor_faults import CrashHere
from places import ROOT
from waiting import PATIENCE_S, wait_for

from allocator.executors import allocation, disk, ledger
from allocator.executors.disk import try_lock
from allocator.executors.local import LocalExecutor
from allocator.executors.supervision.processes import (
    Process,
    find_orphans,
    read_boot_id,
    read_process,
)
from allocator.executors.supervision.supervisor import main as supervisor_main
from allocator.loop.executor import NotNow, Phase

START = """
import sys, time
from pathlib import Path
from allocator.executors.local import LocalExecutor
from allocator.loop.executor import Order
folder, script, jobs = sys.argv[1:]
executor = LocalExecutor(Path(folder), {"a": range(4)}, 5.0)
for n in range(int(jobs)):
    executor.start(Order(f"j{n}", 1, 1, "a", 1, "A", 10.0, ("sh", "-c", script, "sh")))
"""


def test_jobs_outlive_a_killed_controller(rig: LocalRig) -> None:
    """A controller starts a job and is killed with -9, with its whole process group. Another one
    finds the job running, does not start it again, stops it and has its work."""
    wait = "while not executor.observe(): time.sleep(0.02)\nprint('up', flush=True); time.sleep(60)"
    controller = subprocess.Popen(
        [sys.executable, "-c", START + wait, str(rig.folder), rig.script("endless"), "1"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd=ROOT,
    )
    assert controller.stdout is not None and controller.stdout.readline() == b"up\n"
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    controller.stdout.close()
    rig.begin(rig.order("j0"), 3.0)
    seen = rig.end("j0")
    assert (seen.phase, seen.work_done) == (Phase.STOPPED, 3.0)
    assert rig.starts("j0") == 1


def test_without_its_supervisor_a_job_is_lost_and_dead(rig: LocalRig) -> None:
    """kill -9 of the supervisor: the allocation is lost, with what was safe, only when its
    processes, one of them in a session of its own, are dead; its GPUs are free then, and the next
    allocation goes on from there."""
    executor = rig.current
    script = f"echo '5 3' > $ALLOCATOR_PROGRESS; setsid sleep 60 & {STUBBORN}"
    rig.begin(named(shell("j", 1, script, gpus=4), "kept"), 3.0)
    os.kill(rig.supervisor("j"), signal.SIGKILL)
    seen = rig.ended("j")
    assert (seen.phase, seen.work_done) == (Phase.LOST, 3.0)
    assert not alive("kept")
    assert rig.ended("j") == seen
    executor.acknowledge("j", 1)
    assert (
        rig.outcome(shell("j", 2, "echo '9 8' > $ALLOCATOR_PROGRESS; exit 0", gpus=4)).work_done
        == 5.0
    )  # from 3 to 8


def test_a_supervisor_told_to_end_ends_its_job_well(rig: LocalRig) -> None:
    """As when the machine shuts down: the job gets its SIGTERM, and the allocation is lost, for
    nobody asked.
    """
    executor = rig.current
    executor.start(rig.order("j"))
    wait_for(lambda: rig.starts("j") == 1)
    time.sleep(0.1)  # for its trap to be set
    os.kill(rig.supervisor("j"), signal.SIGTERM)
    seen = rig.ended("j")
    assert seen.phase is Phase.LOST and "exit code 143" in seen.detail


def test_a_second_supervisor_does_nothing(rig: LocalRig) -> None:
    """While the first lives, and after its end."""
    executor = rig.current
    order = rig.order("j")
    executor.start(order)
    wait_for(lambda: rig.starts("j") == 1)
    assert supervisor_main(rig.place("j", 1)) == 0
    executor.stop("j", 1, 1)
    assert rig.ended("j").phase is Phase.STOPPED
    assert supervisor_main(rig.place("j", 1)) == 0
    assert rig.starts("j") == 1


def test_a_pid_that_was_given_again_is_left_alone() -> None:
    """A process has the pid of a supervisor that is long gone: neither it nor its session is taken
    for the supervisor's.
    """
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        while (now := read_process(other.pid)) is None or now.session != other.pid:
            time.sleep(0.01)
        for started in (now.started - 1, now.started):
            supervisor = Process(now.pid, "S", 0, 0, started)
            assert find_orphans(supervisor, b"ALLOCATOR_ALLOCATION=none") == []
    finally:
        other.kill()
        other.wait()


def test_after_a_reboot_nothing_is_killed(rig: LocalRig) -> None:
    """keeper.json of another boot: its numbers mean nothing now; the allocation is lost."""
    rig.outcome(shell("j", 1, "exit 0"))
    place = rig.place("j", 1)
    (place / "exit.json").unlink()
    me = read_process(os.getpid())
    assert me is not None and read_boot_id()
    disk.write_json(
        place / "keeper.json", {"pid": me.session, "started": 0, "boot": "another", "at_s": 0.0}
    )
    assert rig.ended("j").phase is Phase.LOST


def crash_at(monkeypatch: pytest.MonkeyPatch, point: int, before: bool) -> Callable[[], bool]:
    """CrashHere before or after the point-th change of the disk or start of a process; returns
    whether it came.
    """
    count = [0]

    def crashing(do: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            count[0] += 1
            mine = count[0] == point
            if mine and before:
                raise CrashHere
            result = do(*args, **options)
            if mine:
                raise CrashHere
            return result

        return call

    monkeypatch.setattr(ledger, "write_json", crashing(disk.write_json))
    monkeypatch.setattr(allocation, "write_json", crashing(disk.write_json))
    for name in ("rename", "replace"):
        monkeypatch.setattr(
            ledger.os if name == "rename" else allocation.os, name, crashing(getattr(os, name))
        )
    monkeypatch.setattr(ledger.shutil, "rmtree", crashing(ledger.shutil.rmtree))
    monkeypatch.setattr(LocalExecutor, "_spawn", crashing(LocalExecutor._spawn))
    return lambda: count[0] >= point


@pytest.mark.parametrize(
    ("every", "sides"),
    [
        pytest.param(3, (True, False), marks=pytest.mark.nightly),
        *(pytest.param(1, s, marks=pytest.mark.soak) for s in ((True, False), (False, True))),
    ],
)
def test_a_crash_between_any_two_writes_is_healed_by_the_same_calls(
    tmp_path: Path, request: pytest.FixtureRequest, every: int, sides: tuple[bool, bool]
) -> None:
    """The life of an allocation (start, stop, acknowledge, start of the next), with a crash at
    every third or every single write, rename and process start in turn, and the same call given
    again from a new object: each allocation runs once, no GPU is given twice, and in the end
    nothing is open. The crash comes before and after the write, by turns."""
    point, came = 1 - every, True
    while came:
        point += every
        rig = LocalRig(tmp_path / str(point))
        rig.folder.parent.mkdir()
        request.addfinalizer(rig.close)
        with pytest.MonkeyPatch.context() as patch:
            crashed = crash_at(patch, point, sides[point % 2])

            def surely(
                call: Callable[[LocalExecutor], object], rig: LocalRig = rig
            ) -> LocalExecutor:
                for _ in range(2):
                    with suppress(CrashHere):
                        executor = rig.executor()
                        call(executor)
                        return executor
                raise AssertionError("crashed twice")

            for generation in (1, 2):
                order = rig.order("j", generation, gpus=3)
                executor = surely(lambda e, o=order: e.start(o))  # type: ignore[misc]
                assert [one.order["devices"] for one in executor.ledger.known()] == [[0, 1, 2]]
                with pytest.raises(NotNow):
                    executor.start(rig.order("k", generation, gpus=2))
                # the second one is stopped while it comes up
                if generation == 1:
                    rig.wait("j", Phase.RUNNING, executor=executor)
                    wait_for(lambda rig=rig, g=generation: rig.starts("j") == g)
                executor = surely(lambda e, g=generation: e.stop("j", g, 1))  # type: ignore[misc]
                rig.ended("j", executor)
                executor = surely(lambda e, g=generation: e.acknowledge("j", g))
                assert executor.observe() == []
            came = crashed()
        assert rig.starts("j") in (1, 2)
        assert not os.listdir(rig.folder / "open")
    assert point > 10


def test_two_controllers_at_once(rig: LocalRig) -> None:
    """Four processes order the same four allocations at the same time: each runs once, on a GPU
    of its own.
    """
    command = [sys.executable, "-c", START, str(rig.folder), rig.script("endless"), "4"]
    several = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [one.wait() for one in several] == [0] * 4
    executor = rig.current
    for n in range(4):
        rig.running(f"j{n}", 3.0)
        assert rig.starts(f"j{n}") == 1
    assert sorted(one.order["devices"] for one in executor.ledger.known()) == [[0], [1], [2], [3]]


def test_a_lock_that_is_never_given_back_is_an_error(tmp_path: Path) -> None:
    """Rather than waiting for ever."""
    held = try_lock(tmp_path / "lock")
    assert held is not None
    with (
        pytest.raises(NotNow, match="locked by another process"),
        disk.hold_lock(tmp_path / "lock", 0.05),
    ):
        pass
    os.close(held)


def test_a_full_disk_delays_the_end_but_does_not_lose_it(rig: LocalRig) -> None:
    """exit.json cannot be written, and neither can the complaint about it, as the log is full, too:
    the supervisor waits, and writes the end when it can. The job itself is not disturbed when
    nothing can be remembered of its progress."""
    executor = rig.current
    code = (
        "import sys; from pathlib import Path; from allocator.executors import allocation\n"
        "from allocator.executors.supervision import supervisor\n"
        "write, full = allocation.write_json, [2]\n"
        "def sometimes(path, value):\n"
        "    if path.name != 'keeper.json' and full[0] > 0:\n"
        "        full[0] -= 1\n        raise OSError(28, 'No space left on device')\n"
        "    write(path, value)\n"
        "allocation.write_json = supervisor.write_json = sometimes\n"
        "sys.exit(supervisor.main(Path(sys.argv[1])))\n"
    )
    order = shell(
        "j",
        7,
        "echo '5 5' > $ALLOCATOR_PROGRESS; sleep 0.5; echo '9 9' > $ALLOCATOR_PROGRESS; exit 0",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExecutor, "_spawn", lambda self, place: None)
        executor.start(order)
    place = rig.place("j", 7)
    with open("/dev/full", "wb") as full:
        subprocess.run(
            [sys.executable, "-c", code, str(place)],
            cwd=ROOT,
            stderr=full,
            timeout=PATIENCE_S,
            check=True,
        )
    seen = rig.ended("j")
    assert (seen.phase, seen.work_done) == (Phase.FINISHED, 4.0)


def test_jobs_have_default_signals_under_nohup(rig: LocalRig) -> None:
    """A supervisor that was started where SIGINT is ignored: its job does not ignore it."""
    executor = rig.current
    code = (
        "import signal, sys; from pathlib import Path\n"
        "from allocator.executors.supervision import supervisor\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sys.exit(supervisor.main(Path(sys.argv[1])))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExecutor, "_spawn", lambda self, place: None)
        executor.start(shell("j", 7, "grep SigIgn /proc/self/status"))
    place = rig.place("j", 7)
    subprocess.run(
        [sys.executable, "-c", code, str(place)],
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=True,
    )
    ignored = int((place / "stdout").read_text().split()[1], 16)
    assert not ignored & 1 << (signal.SIGINT - 1)
