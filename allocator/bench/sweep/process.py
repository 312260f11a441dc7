"""A task as whoever asks for it sees it: a process started, heard, killed with all it started
when late, and read.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allocator.bench.sweep.tasks import SweepTask
from allocator.solvers.isolation.child_processes import LAST_WORDS, ONE_THREAD, Child
from allocator.solvers.isolation.scratch_folders import scratch_folder

RUNNER = "allocator.bench.sweep.runner:run"
"""Who does a task, "module:function": function(task, folder) writes the files of the result into
the folder.
"""
METRICS_FILE = "metrics.json"


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a task: its files by name, or why there are none (`failure`) and its last
    words.

    seconds: wall; cpu_s: of the process and the children it waited for; peak_mb: the largest
    memory that one of them held.
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
        child = Child(
            "task",
            "allocator.bench.sweep.child",
            runner,
            str(out),
            json.dumps({**task.identity, "path": task.path}),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            environment=ONE_THREAD,
        )
        try:
            failure, words = _wait(child, begin + limit_s, stop)
        finally:
            child.kill()
        if not failure and child.process.returncode:
            failure = child.how_it_ended()
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
        child.cpu_s,
        child.peak_mb,
        platform.node(),
    )


def _wait(child: Child, deadline: float, stop: Callable[[], bool]) -> tuple[str, bytes]:
    """(why it must be killed or "", end of what it said)."""
    words = b""
    for piece in child.read(child.process.stderr):
        words = (words + piece)[-8 * LAST_WORDS :]
        if stop():
            return "stopped", words
        if time.monotonic() > deadline:
            return "killed at the time limit of the task", words
    return "", words
