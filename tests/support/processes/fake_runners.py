"""Runners of the sweep's tests (allocator.bench.sweep.executors.RUNNER): quick ones, and ones that
fail in every way.

What one of them shall do to which task stands in the policy's name, so that a sweep can hold good
and bad tasks.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from allocator.bench.sweep.tasks import SweepTask

TENTHS = {"greedy": 0, "mip": -2, "las": 1}
"""Change of the mean queueing of these policies, in tenths of greedy's."""


def quick(task: SweepTask, folder: Path) -> None:
    """Queueing of 100 s x (seed + 1) x load, times 1 + TENTHS / 10; a file of a line."""
    value = 100.0 * (task.seed + 1) * (task.load or 1.0) * (1 + TENTHS.get(task.policy, 0) / 10)
    (folder / "jobs.csv").write_text(f"job_id,queue_s\n{task.workload},{value}\n")
    (folder / "metrics.json").write_text(
        json.dumps(
            {
                "jobs": 10,
                "finished": 10,
                "queue_s_mean": value,
                "jct_s_mean": 2 * value,
                "decision_s_mean": time.time(),
            }
        )
    )


def as_named(task: SweepTask, folder: Path) -> None:
    """Do what the policy is called, or be quick. "once-X": X only while the file of the
    environment is there.
    """
    kind = task.policy
    if kind.startswith("once-"):
        kind = kind.removeprefix("once-") if Path(os.environ["FAULT"]).exists() else "quick"
    FAULTS.get(kind, quick)(task, folder)


def crashes(*_: object) -> None:
    raise RuntimeError("a bug of the simulator")


def killed(*_: object) -> None:
    print("about to be killed", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(_task: SweepTask, folder: Path) -> None:
    """With a child that would outlive it, whose number lies where the environment says."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    path = Path(os.environ["MARKER"])
    path.with_suffix(".part").write_text(f"{os.getpid()} {child.pid} {folder.parent}")
    path.with_suffix(".part").rename(path)
    time.sleep(600)


def exhausts_disk(task: SweepTask, folder: Path) -> None:
    """A disk that takes 4 kB per file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with (folder / "jobs.csv").open("w") as out:
        out.write("x" * 100_000)
    quick(task, folder)


def nothing(*_: object) -> None:
    """Ends well and leaves nothing."""


def slow(task: SweepTask, folder: Path) -> None:
    time.sleep(0.5)
    quick(task, folder)


FAULTS = {
    "crashes": crashes,
    "killed": killed,
    "hangs": hangs,
    "full-disk": exhausts_disk,
    "nothing": nothing,
    "slow": slow,
}
