"""The local executor with real processes: what jobs are given, how they stop and end, GPUs,
progress, outputs.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace

import pytest
from executor_rigs import (
    KINDS,
    STUBBORN,
    LocalRig,
    gone,
    named,
    shell,
)
from text_tables import cases
from waiting import wait_for

from allocator.errors import UsageError
from allocator.executors import ledger_executor
from allocator.executors.local import LocalExecutor, device_map, device_numbers
from allocator.executors.supervision.processes import find_descendants, read_process
from allocator.io.progress_sources import LogPattern
from allocator.loop.executor import NotNow, Order, Phase

ENDLESS = KINDS["endless"]


def test_environment_of_a_job(rig: LocalRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns what it has and where to write; the controller's own settings and passwords are
    not passed on.
    """
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    monkeypatch.setenv("ALLOCATOR_SECRET", "hunter2")
    executor = rig.current
    order = Order(
        "j",
        3,
        1,
        "b",
        2,
        "B",
        10.0,
        ("sh", "-c", "env; pwd"),
        {"MINE": "yes", "ALLOCATOR_GPUS": "9"},
    )
    assert rig.outcome(order).phase is Phase.FINISHED
    executor.acknowledge("j", 3)
    said = (rig.folder / "logs" / "j.3.stdout").read_text()
    place, work = rig.place("j", 3), rig.folder / "jobs" / "j" / "work"
    for line in (
        "CUDA_VISIBLE_DEVICES=4,5",
        "ALLOCATOR_JOB=j",
        "ALLOCATOR_GPUS=2",
        "ALLOCATOR_POOL=b",
        "MINE=yes",
        "ALLOCATOR_GENERATION=3",
        "ALLOCATOR_GPU_TYPE=B",
        "ALLOCATOR_REMAINING_WORK=10.0",
        f"ALLOCATOR_PROGRESS={place / 'progress'}",
        f"ALLOCATOR_WORKDIR={work}",
        str(work),
    ):
        assert line in said.splitlines()
    assert "hunter2" not in said
    for path in rig.folder.rglob("*"):
        if work != path:
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_job_runs_once_at_a_time(rig: LocalRig) -> None:
    """The next allocation is refused for now while the last one lives."""
    executor = rig.current
    executor.start(shell("j", 1, ENDLESS))
    with pytest.raises(NotNow, match="has not ended"):
        executor.start(shell("j", 2, ENDLESS))


@pytest.mark.parametrize(
    "order",
    [
        Order("j", 1, 1, "c", 1, "C", 1.0, ("true",)),
        shell("j", 1, "exit 0", gpus=5),
        shell("j", 1, "exit 0", gpus=0),
    ],
    ids=["pool", "many", "none"],
)
def test_what_can_never_run_here_has_failed(rig: LocalRig, order: Order) -> None:
    """Unknown pool, more GPUs than there are, none."""
    seen = rig.outcome(order)
    assert seen.phase is Phase.FAILED and "of this machine has" in seen.detail


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("no-such-program",), "could not be started"),
        ((), "no command"),
        (
            (
                "sh",
                "-c",
                "echo Traceback >&2; echo 'ValueError: \033[1mno data\033[0m' >&2; exit 7",
            ),
            "exit code 7: ",
        ),
        (("sh", "-c", "kill -SEGV $$"), "killed by SIGSEGV"),
    ],
)
def test_failures_say_why(rig: LocalRig, command: tuple[str, ...], says: str) -> None:
    """A program that is not there; none at all; exit code and last words, on one line; a signal."""
    seen = rig.outcome(Order("j", 1, 1, "a", 1, "A", 1.0, command))
    assert seen.phase is Phase.FAILED and says in seen.detail and seen.detail.isprintable()
    if "7" in says:
        assert "no data" in seen.detail


def test_a_job_that_ignores_sigterm_is_killed_with_its_children(rig: LocalRig) -> None:
    """Neither the job, nor its child, nor the child that fled into a session of its own and cleared
    its environment survives the grace period of 0.3 s; work that was safe counts."""
    rig.current = executor = LocalExecutor(rig.folder, {"a": (0,)}, grace_s=0.3)
    script = (
        "set 3; echo '4 3' > $ALLOCATOR_PROGRESS; (trap '' TERM; sleep 60) & "
        f"setsid env -i sleep 61.25 & {STUBBORN}"
    )
    rig.begin(named(shell("j", 1, script), "stubborn"), 3.0)
    time.sleep(0.2)
    below = find_descendants(rig.supervisor("j"))
    assert len(below) >= 3
    executor.stop("j", 1, 1)
    seen = rig.ended("j")
    assert (seen.phase, seen.work_done) == (Phase.STOPPED, 3.0)
    assert "killed by SIGKILL after 0.3 s" in seen.detail
    assert gone("stubborn") and not [
        p for p in below if (now := read_process(p.pid)) and now.started == p.started and now.alive
    ]


def test_what_a_finished_job_left_running_is_ended(rig: LocalRig) -> None:
    """The job is finished when its first process is; its child is asked to end, and nothing
    remains.
    """
    executor = rig.current
    executor.start(named(shell("j", 1, "(sleep 60) & setsid sleep 60 & exit 0"), "leaving"))
    assert rig.ended("j").phase is Phase.FINISHED
    assert gone("leaving")


def test_a_job_that_ends_well_when_told_to_stop_is_done_only_if_its_work_is(rig: LocalRig) -> None:
    """Exit code 0 after SIGTERM: stopped with 4 of 10 safe, finished with 10 of 10."""
    executor = rig.current
    for job, safe in (("j", 4), ("k", 10)):
        executor.start(
            shell(
                job,
                1,
                f"echo '10 {safe}' > $ALLOCATOR_PROGRESS; trap 'exit 0' TERM; "
                "while :; do sleep 0.02; done",
            )
        )
        rig.running(job, safe)
        executor.stop(job, 1, 1)
    assert (rig.ended("j").phase, rig.ended("k").phase) == (
        Phase.STOPPED,
        Phase.FINISHED,
    )


def test_a_halted_job_stops_too(rig: LocalRig) -> None:
    """SIGSTOP does not keep SIGTERM from arriving: the group is continued."""
    executor = rig.current
    executor.start(
        shell("j", 1, f"echo >> started; {ENDLESS.replace('do', 'do kill -STOP $$;', 1)}")
    )
    wait_for(lambda: rig.starts("j") == 1)
    time.sleep(0.1)
    executor.stop("j", 1, 1)
    assert "exit code 143" in rig.ended("j").detail


def test_progress_that_makes_no_sense_is_no_progress(rig: LocalRig) -> None:
    """Nonsense, infinities, negative and excessive numbers: from 0 to all that was left, and no
    error.
    """
    executor = rig.current
    rig.begin(shell("j", 1, ENDLESS))
    progress = rig.place("j", 1) / "progress"
    for text, work in (
        ("", 0),
        ("one two", 0),
        ("nan nan", 0),
        ("1 inf", 0),
        ("5", 0),
        ("-3 -3", 0),
        ("7 5\n", 5),
        ("1e300 1e300", 10),
        ("2 5", 5),
        ("\0" * 99, 0),
    ):
        progress.write_text(text)
        assert [o.work_done for o in executor.observe()] == [work], text


def test_where_a_job_began(rig: LocalRig) -> None:
    """Nothing reported in its first allocation, told to stop before its second came up: its third
    begins at none, so 4 in all are 4. Of a job that is seen for the first time in its seventh
    allocation, the first report is the start."""
    executor = rig.current
    rig.outcome(shell("j", 1, "exit 1"))
    executor.acknowledge("j", 1)
    executor.stop("j", 2, 1)
    executor.acknowledge("j", 2)
    assert rig.outcome(shell("j", 3, "echo '4 4' > $ALLOCATOR_PROGRESS; exit 0")).work_done == 4.0
    script = "echo '500 500' > $ALLOCATOR_PROGRESS; sleep 1; echo '504 503' > $ALLOCATOR_PROGRESS"
    assert rig.outcome(shell("k", 7, script)).work_done == 3.0


def test_old_outputs_are_removed(rig: LocalRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 files under logs/ with a limit of 20, the 18 newest stay."""
    executor = rig.current
    monkeypatch.setattr(ledger_executor, "KEPT_LOGS", 20)
    for n in range(30):
        path = rig.folder / "logs" / f"{n:02d}.1.stdout"
        path.write_text("x")
        os.utime(path, (n, n))
    executor.stop("j", 1, 1)
    executor.acknowledge("j", 1)
    assert sorted(p.name[:2] for p in (rig.folder / "logs").iterdir()) == [
        f"{n:02d}" for n in range(12, 30)
    ]


def test_device_map() -> None:
    """Counted through without a map; ranges and indices by pool; what has no pool belongs to the
    one before; more indices than GPUs are welcome.
    """
    assert device_numbers({"a": 2, "b": 0, "c": 1}) == {"a": (0, 1), "b": (), "c": (2,)}
    gpus = {"a": 2, "b": 0, "c=1": 2}
    assert device_map("c=1=7,a=4-5, 0", gpus | {"c=1": 1}) == {"a": (4, 5, 0), "b": (), "c=1": (7,)}
    assert device_map("a=0-3,c=1=4-7", gpus) == {"a": (0, 1, 2, 3), "b": (), "c=1": (4, 5, 6, 7)}


WRONG_MAPS = """
a=0-1,c=2-3,c=1=4-5 -> no pool "c"
a=0-2,c=1=2-3 -> GPU 2 is named for pool "a" and again for pool "c=1"
a=0-1,1,c=1=4-5 -> GPU 1 is named for pool "a" and again for pool "a"
a=0-1 -> pool "c=1" has 2 GPUs in the queue, but 0 indices
0-1,a=0-1,c=1=2-3 -> belongs to no pool
a=3-2,c=1=4-5 -> "3-2" is neither
a=,c=1=4-5 -> "" is neither
a=0--1,c=1=4-5 -> neither
 -> neither
a=0-99999999999,c=1=1 -> neither
"""


@pytest.mark.parametrize(("text", "words"), cases(WRONG_MAPS))
def test_device_maps_that_cannot_be(text: str, words: str) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(UsageError, match=r"^devices: ") as caught:
        device_map(text, {"a": 2, "b": 0, "c=1": 2})
    assert words in str(caught.value)


def test_another_map_gives_no_index_twice(rig: LocalRig) -> None:
    """A job of b holds 4 and 5. A controller that is started with 0-5 for a and 6-7 for b counts
    them out of a until that job has ended, and gives them to nobody."""
    rig.begin(replace(shell("j", 1, ENDLESS, gpus=2), pool="b"))
    later = LocalExecutor(rig.folder, {"a": range(6), "b": (6, 7)}, grace_s=5.0)
    assert later.capacity() == {"a": 4, "b": 2}
    later.start(shell("k", 1, ENDLESS, gpus=4))
    with pytest.raises(NotNow, match="0 GPUs are free"):
        later.start(shell("l", 1, ENDLESS))
    rig.end("j", executor=later)
    assert later.capacity() == {"a": 6, "b": 2}
    later.start(shell("l", 1, ENDLESS, gpus=2))
    given = {one.job_id: one.order["devices"] for one in later.ledger.known()}
    assert given == {"k": [0, 1, 2, 3], "l": [4, 5]}
    with pytest.raises(UsageError, match="twice"):
        LocalExecutor(rig.folder, {"a": (0, 1), "b": (1,)})


def test_a_busy_machine_takes_no_line_for_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds go by between any two moments of a search, in which others use the machine."""
    monkeypatch.setattr(time, "monotonic", itertools.count().__next__)
    assert LogPattern(r"step (?P<step>\d+)").find(b"step 1\nstep 2\n") == (2.0, 2.0)
