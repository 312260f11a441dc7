"""Run one measurement in a child process.

The parent starts the process, reads its messages, and kills it with all that it started if it is
late.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from allocator.bench.solvers.runs import WARM, SolverRun
from allocator.solvers.isolation.child_processes import ONE_THREAD, Child

START_S = 300.0  # to load the library and make the instance


def grace(limit_s: float) -> float:
    """Return the seconds after its limit in which an engine may return and be checked."""
    return max(3.0, 0.1 * limit_s)


@dataclass(frozen=True)
class Point:
    """Plan value and bound after `cpu` seconds of processor time and `wall` seconds.

    A value is None if there is none yet.
    """

    cpu: float
    wall: float
    value: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Return (bound - value) / |value|, at least 0; None without a plan or a bound."""
        if self.value is None or self.bound is None:
            return None
        return max(0.0, (self.bound - self.value) / max(abs(self.value), 1e-9))


@dataclass(frozen=True)
class MeasurementOutcome:
    """The result of a measurement.

    Attributes
    ----------
    ready, done : the messages of these names; empty if they never came.
    killed : whether the process was late and was killed. Otherwise cpu and peak are complete.
    cpu : seconds in all after `ready`.
    peak : MB.
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
    """Run one measurement in a child process.

    It takes at most START_S + limit + grace, or twice that if there is a round before.
    """
    child = Child(
        "bench",
        "allocator.bench.solvers.child",
        json.dumps(asdict(run)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        environment=ONE_THREAD,
    )
    try:
        ready, trace, done, killed, wall = _listen(child, run)
        words = child.printed().strip()[-500:]
    finally:
        child.kill()
    if done:
        return MeasurementOutcome(
            ready, trace, done, killed, done["cpu"], done["wall"], done["peak"], words
        )
    cpu_s = max(0.0, child.cpu_s - ready.get("cpu", 0.0))
    return MeasurementOutcome(ready, trace, done, killed, cpu_s, wall, child.peak_mb, words)


def _listen(
    child: Child, run: SolverRun
) -> tuple[dict[str, Any], tuple[Point, ...], dict[str, Any], bool, float]:
    """Return (ready, trace, done, whether it was late, wall seconds after ready)."""
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
                ready = message
                begin = time.monotonic()
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


def _messages(child: Child, clock: _Deadline) -> Iterator[dict[str, Any]]:
    """Yield the messages of the child until it ends.

    Raises TimeoutError at the deadline, which may be moved meanwhile.
    """
    buffer = b""
    for piece in child.read(child.process.stdout):
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)
        if time.monotonic() > clock.at:
            raise TimeoutError
