"""Run one task in a child process.

The parent starts the process, reads its output, kills it with all that it started if it is late,
and reads the files of the result.
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
"""The function that runs a task, as "module:function".

function(task, folder) writes the files of the result into the folder.
"""
METRICS_FILE = "metrics.json"
ASSUMED = "assumed"
"""What is assumed of the jobs of the workload, in METRICS_FILE."""


@dataclass(frozen=True)
class TaskOutcome:
    """The result of a task.

    Attributes
    ----------
    files : the files by name.
    failure : why there are no files.
    words : the end of the output of the process.
    seconds : wall seconds.
    cpu_s : of the process and the children that it waited for.
    peak_mb : the largest memory of one of them.
    host : name of the machine.
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
    """Run a task in a child process with one thread per library.

    Never raises for an error of the task. After limit_s seconds, or as soon as stop() returns true,
    the process is killed with its process group.
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
    """Return why the process must be killed, or "", and the end of its output."""
    words = b""
    for piece in child.read(child.process.stderr):
        words = (words + piece)[-8 * LAST_WORDS :]
        if stop():
            return "stopped", words
        if time.monotonic() > deadline:
            return "killed at the time limit of the task", words
    return "", words
