"""A task as whoever asks for it sees it: a process started, heard, killed with all it started
when late, and read.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allocator.bench.sweep.tasks import SweepTask
from allocator.solvers.isolation.scratch_folders import scratch_folder

RUNNER = "allocator.bench.sweep.runner:run"
"""Who does a task, "module:function": function(task, folder) writes the files of the result into
the folder.
"""
METRICS_FILE = "metrics.json"
ROOT = str(Path(__file__).resolve().parents[3])
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
LOOK_S = 0.1  # how often to look whether somebody wants it to stop
LAST_WORDS = 2000  # characters


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a task: its files by name, or why there are none (`failure`) and its last
    words.

    seconds: wall; cpu_s: of the process and the children it waited for; peak_mb: the largest
    resident set size of one of them.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    failure: str = ""
    words: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    host: str = ""


def perform(
    task: SweepTask,
    runner: str = RUNNER,
    limit_s: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
) -> TaskOutcome:
    """Run a task in a process of its own, of one thread per library; never raises for what happens
    to it.

    After limit_s seconds, or as soon as stop() says so, the process is killed with its process
    group.
    """
    begin = time.monotonic()
    with scratch_folder("task") as home:
        out = Path(home, "out")
        out.mkdir()
        child = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "allocator.bench.sweep.child",
                runner,
                str(out),
                json.dumps({**task.identity, "path": task.path}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                **dict.fromkeys(ONE_THREAD, "1"),
                "TMPDIR": home,
                "PYTHONPATH": os.pathsep.join(
                    [ROOT, *(p for p in (os.environ.get("PYTHONPATH"),) if p)]
                ),
            },
        )
        killed, words = "", b""
        try:
            killed, words = _wait(child, begin + limit_s, stop)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            cpu_s, peak_mb = _reap(child)
        failure = killed or _ended(child.returncode)
        files = (
            {}
            if failure
            else {p.name: p.read_bytes() for p in sorted(out.iterdir()) if p.is_file()}
        )
    if not failure and METRICS_FILE not in files:
        failure = f"left no {METRICS_FILE}"
    return TaskOutcome(
        {} if failure else files,
        failure,
        words.decode("utf-8", "replace").strip()[-LAST_WORDS:],
        time.monotonic() - begin,
        cpu_s,
        peak_mb,
        platform.node(),
    )


def _wait(
    child: subprocess.Popen[bytes], deadline: float, stop: Callable[[], bool]
) -> tuple[str, bytes]:
    """(why it must be killed or "", end of what it said). Its children may keep its standard error
    open, so that only the end of the process itself counts."""
    assert child.stderr is not None
    source, words, open_ = child.stderr.fileno(), b"", True
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if stop():
            return "stopped", words
        left = deadline - time.monotonic()
        if left <= 0:
            return "killed at the time limit of the task", words
        pause = min(LOOK_S, left)
        if not open_:
            time.sleep(min(pause, 0.01))
        elif select.select([source], [], [], pause)[0]:
            piece = os.read(source, 1 << 16)
            words, open_ = (words + piece)[-8 * LAST_WORDS :], bool(piece)
    while open_ and select.select([source], [], [], 0)[0] and (piece := os.read(source, 1 << 16)):
        words = (words + piece)[-8 * LAST_WORDS :]
    return "", words


def _ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"
    return f"exit code {code}" if code else ""


def _reap(child: subprocess.Popen[bytes]) -> tuple[float, float]:
    """(CPU seconds, MB) of the ended child."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    for stream in (child.stdin, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024.0
