"""Workers under back ends that hang, crash, lie and print: real faults in real processes
(tests/support/processes/faulty_backends).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from models import INF, dense
from places import ROOT
from text_tables import cases
from waiting import in_time, wait_for

from allocator.solvers.base import SolveLimits, Termination
from allocator.solvers.isolation.isolated import Isolated
from allocator.solvers.isolation.worker_processes import Worker, WorkerPool

HERE = str(Path(__file__).resolve().parents[1] / "support" / "processes")
MODELS = str(Path(__file__).resolve().parents[1] / "support" / "rounds")
ROOT = str(ROOT)
LIMIT_S = 0.5
PROMISE_S = 1.0  # after the limit (docs/reference/rules.md, R46); on an idle machine it takes 0.2
MODEL = dense([1.0, 3.0, 2.0], [(-INF, [1, 1, 1], 1)])


def group(pid: int) -> list[int]:
    """Processes of a process group that are not yet dead (a zombie is dead), from /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, _, leader = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(leader) == pid and state not in "ZX":
                found.append(int(entry.name))
    return found


class Watched(WorkerPool):
    """A pool that remembers every worker it handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_out: list[Worker] = []

    def take(self, module: str, paths: tuple[str, ...]) -> Worker:
        self.handed_out.append(super().take(module, paths))
        return self.handed_out[-1]


@pytest.fixture
def pool() -> Iterator[Watched]:
    """A pool of its own; at the end nothing of any of its workers is left, no process and no
    folder.
    """
    pool = Watched()
    yield pool
    pool.close()
    # children of a worker are killed with it, and are gone when the system has waited for them
    wait_for(lambda: not any(group(w.pid) for w in pool.handed_out))
    assert [w.folder for w in pool.handed_out if Path(w.folder).exists()] == []


def faulty(name: str, pool: WorkerPool) -> Isolated:
    return Isolated(name, f"faulty_backends.{name}", (HERE,), pool)


def warm(name: str, pool: WorkerPool) -> Isolated:
    """A faulty back end whose worker has started, so that the time limit is spent in the fault
    itself.
    """
    worker = pool.take(f"faulty_backends.{name}", (HERE,))
    assert worker.wait_ready(time.monotonic() + 60) == ""
    pool.give(f"faulty_backends.{name}", (HERE,), worker)
    return faulty(name, pool)


@pytest.mark.parametrize("name", ["ignores_signals", "holds_interpreter", "has_children"])
def test_who_never_returns_is_killed_with_all_it_started(name: str, pool: Watched) -> None:
    """The answer is there by the limit and a second, says so, and no process of the worker's
    group is left.
    """
    solver = warm(name, pool)
    with in_time(LIMIT_S + PROMISE_S):
        answer = solver.solve(MODEL, SolveLimits(time_s=LIMIT_S))
    assert (answer.termination, answer.values, answer.bound) == (Termination.TIME_LIMIT, None, INF)
    assert answer.detail.startswith("killed")
    # killed is not yet gone: the worker was waited for, its own children are the system's to wait
    # for
    wait_for(lambda: group(pool.handed_out[-1].pid) == [])


@pytest.mark.parametrize(
    ("name", "limit_s", "plan", "bound"),
    [
        ("hangs_with_plan", LIMIT_S, [0, 1, 0], 20.0),
        ("crashes_with_plan", 30.0, [1, 0, 0], 7.0),
        ("returns_short", 30.0, [1, 0, 0], 9.0),
    ],
)
def test_what_was_reported_survives(
    name: str, limit_s: float, plan: list[int], bound: float, pool: Watched
) -> None:
    """Before the kill plans of value 1, 3, 2 and one that breaks the row, and bounds of 100, 20,
    30, 50: the 3 and the 20 are kept. Before a failure one plan and its bound."""
    answer = warm(name, pool).solve(MODEL, SolveLimits(time_s=limit_s))
    assert answer.values is not None and answer.bound == bound
    assert answer.values.tolist() == plan and answer.objective == MODEL.value @ plan


FAILURES = """
exits -> exit code 3: out of patience
crashes_with_plan -> SIGSEGV
raises -> ZeroDivisionError: one divided by none
exhausts_memory -> MemoryError
returns_object -> a dict, not an answer
returns_nan -> not finite
returns_short -> not 3 numbers
reports_nan -> a bound that is no number
writes_garbage -> bad message length
fails_to_load -> libsolver.so.7 is missing
not_there -> No module named
"""


@pytest.mark.parametrize(("name", "says"), cases(FAILURES))
def test_every_failure_is_an_answer_that_says_why(name: str, says: str, pool: Watched) -> None:
    """Crash, exception, garbage: FAILED with the reason, and the worker is not used again."""
    answer = faulty(name, pool).solve(MODEL, SolveLimits(time_s=30.0))
    assert answer.termination is Termination.FAILED
    assert says in answer.detail
    assert group(pool.handed_out[-1].pid) == []


def test_what_a_back_end_prints_stays_in_the_worker(
    pool: Watched, capfd: pytest.CaptureFixture[str]
) -> None:
    """A megabyte on standard output disturbs nothing; it is kept as the log on request only."""
    silent = faulty("prints", pool).solve(MODEL, SolveLimits())
    talking = faulty("prints", pool).solve(MODEL, SolveLimits(log=True))
    assert silent.termination is talking.termination is Termination.GAP
    assert silent.log == ""
    assert len(talking.log) > 1_000_000
    assert talking.log.endswith("from a child\n")
    assert capfd.readouterr() == ("", "")


def test_warm_workers_are_used_again_but_never_shared(pool: Watched) -> None:
    """One after the other: one process. At the same time: one each."""
    first, second = (faulty("sound", pool).solve(MODEL, SolveLimits()).detail for _ in range(2))
    assert first == second
    key = "faulty_backends.sound", (HERE,)
    both = [pool.take(*key) for _ in range(2)]
    assert both[0].pid != both[1].pid
    for worker in both:
        pool.give(*key, worker)


def test_a_worker_that_died_idle_is_replaced(pool: Watched) -> None:
    """An idle worker killed by somebody else costs nothing but a new start."""
    first = faulty("sound", pool).solve(MODEL, SolveLimits())
    os.killpg(int(first.detail), signal.SIGKILL)
    wait_for(lambda: not pool.handed_out[0].alive())
    second = faulty("sound", pool).solve(MODEL, SolveLimits())
    assert second.termination is Termination.GAP
    assert second.detail != first.detail


def test_a_slow_start_is_not_thrown_away(pool: Watched) -> None:
    """A back end that loads for a second misses a limit of 0.1 s, goes on loading, and serves
    the next call.
    """
    solver = faulty("loads_slowly", pool)
    early = solver.solve(MODEL, SolveLimits(time_s=0.1))
    late = solver.solve(MODEL, SolveLimits(time_s=30.0))
    assert (early.termination, early.detail) == (
        Termination.TIME_LIMIT,
        "the worker was still starting",
    )
    assert late.termination is Termination.GAP
    assert pool.handed_out[0] is pool.handed_out[1]


PARENT = """
import os, sys, threading, time
from models import INF, dense
from allocator.solvers.base import SolveLimits
from allocator.solvers.isolation.isolated import Isolated, POOL
name, here = sys.argv[1:]
model = dense([1.0, 3.0, 2.0], [(-INF, [1, 1, 1], 1)])
take = POOL.take
def told(*key):
    worker = take(*key)
    worker.wait_ready(time.monotonic() + 60)
    print(worker.pid, worker.folder, flush=True)
    return worker
POOL.take = told
solver = Isolated(name, "faulty_backends." + name, (here,))
"""


def parent(name: str, then: str) -> subprocess.Popen[str]:
    """A process of its own that calls a faulty back end; prints the worker's process id and
    folder at each call.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, MODELS, ROOT])}
    return subprocess.Popen(
        [sys.executable, "-c", PARENT + then, name, HERE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def worker_of(process: subprocess.Popen[str]) -> tuple[int, Path]:
    """From the first line; byte by byte, so that what comes after it is left for communicate()."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, "ended without a line"
        line += byte
    pid, folder = line.decode().split()
    return int(pid), Path(folder)


@pytest.mark.parametrize(
    ("name", "size", "sent"),
    [
        ("holds_interpreter", 1, signal.SIGKILL),
        ("has_children", 2, signal.SIGKILL),
        ("has_children", 2, signal.SIGINT),
        ("sound", 0, None),
    ],
    ids=["killed", "killed with a child", "interrupted", "at its end"],
)
def test_a_parent_that_ends_leaves_no_process(
    name: str, size: int, sent: signal.Signals | None
) -> None:
    """Killed, interrupted or at its end: its worker, busy or not letting Python run, and the
    worker's child are gone, and the folder too, unless nobody was left to remove it. The interrupt
    reaches the caller."""
    process = parent(name, "print(solver.solve(model, SolveLimits()).termination)")
    pid, folder = worker_of(process)
    if sent is not None:
        wait_for(lambda: len(group(pid)) == size)
        process.send_signal(sent)
    out, error = process.communicate()
    wait_for(lambda: group(pid) == [])
    if sent is signal.SIGKILL:
        folder.rmdir()  # it is empty
    assert not folder.exists()
    assert error.strip().endswith("KeyboardInterrupt") == (sent is signal.SIGINT)
    assert sent is not None or (out, error, process.returncode) == ("gap\n", "", 0)
