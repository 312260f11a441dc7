"""A measurement as its parent sees it: a process started, listened to, and killed with all it
started when late.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from allocator.bench.solvers.runs import WARM, SolverRun
from allocator.solvers.isolation.scratch_folders import scratch_folder

ROOT = str(Path(__file__).resolve().parents[3])
START_S = 300.0  # to load the library and make the instance
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def grace(limit_s: float) -> float:
    """Seconds after its limit that an engine has for returning and for the final check."""
    return max(3.0, 0.1 * limit_s)


@dataclass(frozen=True)
class Point:
    """Plan value and bound known after `cpu` seconds of processor time and `wall` seconds; None:
    none yet.
    """

    cpu: float
    wall: float
    value: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """(bound - value) / |value|, never below 0; None without a plan or a bound."""
        if self.value is None or self.bound is None:
            return None
        return max(0.0, (self.bound - self.value) / max(abs(self.value), 1e-9))


@dataclass(frozen=True)
class MeasurementOutcome:
    """What a measurement told. ready and done: its messages, empty if they never came; killed: it
    was too late.

    cpu: seconds in all, after ready; peak: MB. Both are complete only if it was not killed.
    """

    ready: dict[str, Any] = field(default_factory=dict)
    trace: tuple[Point, ...] = ()
    done: dict[str, Any] = field(default_factory=dict)
    killed: bool = False
    cpu: float = 0.0
    wall: float = 0.0
    peak: float = 0.0
    words: str = ""


def measure(run: SolverRun) -> MeasurementOutcome:
    """Run one measurement in a process of its own; never lasts longer than START_S + limit + grace,
    twice that where there is a round before."""
    env = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
    env["PYTHONPATH"] = os.pathsep.join([ROOT, *(p for p in (os.environ.get("PYTHONPATH"),) if p)])
    with tempfile.TemporaryFile() as errors, scratch_folder("bench") as folder:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "allocator.bench.solvers.child", json.dumps(asdict(run))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env=env | {"TMPDIR": folder},
        )
        try:
            heard = _listen(child, run)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            used = _reap(child)
        errors.seek(0)
        words = errors.read().decode("utf-8", "replace").strip()[-500:]
    ready, trace, done, killed, wall = heard
    if done:
        return MeasurementOutcome(
            ready, trace, done, killed, done["cpu"], done["wall"], done["peak"], words
        )
    cpu_s = used.ru_utime + used.ru_stime - ready.get("cpu", 0.0)
    return MeasurementOutcome(
        ready, trace, done, killed, max(0.0, cpu_s), wall, used.ru_maxrss / 1024.0, words
    )


def _listen(
    child: subprocess.Popen[bytes], run: SolverRun
) -> tuple[dict[str, Any], tuple[Point, ...], dict[str, Any], bool, float]:
    """(ready, trace, done, whether it was late, wall seconds after ready)."""
    ready: dict[str, Any] = {}
    trace: list[Point] = []
    begin = time.monotonic()
    clock = _Deadline(
        begin + START_S + (run.limit_s + grace(run.limit_s) if run.round == WARM else 0.0)
    )
    try:
        for message in _messages(child, clock):
            kind = message.pop("kind")
            if kind == "ready":
                ready, begin = message, time.monotonic()
                clock.at = begin + run.limit_s + grace(run.limit_s)
            elif kind == "trace":
                trace.append(Point(**message))
            else:
                return ready, tuple(trace), message, False, time.monotonic() - begin
    except TimeoutError:
        return ready, tuple(trace), {}, True, time.monotonic() - begin
    return ready, tuple(trace), {}, False, time.monotonic() - begin


@dataclass
class _Deadline:
    at: float


def _messages(child: subprocess.Popen[bytes], clock: _Deadline) -> Iterator[dict[str, Any]]:
    """The child's messages until it ends; raises TimeoutError at the deadline, which may be
    moved meanwhile.
    """
    assert child.stdout is not None
    source, buffer = child.stdout.fileno(), b""
    while True:
        left = clock.at - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(source, 1 << 16)
        if not piece:
            return
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _reap(child: subprocess.Popen[bytes]) -> Any:
    """Resource usage of the ended child."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return used
