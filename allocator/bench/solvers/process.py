"""Run one measurement in a child process.

The parent starts the process, reads its messages, and kills it with all that it started if it is
late.
"""

import json
import subprocess
import time
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
    late_s = run.limit_s + grace(run.limit_s)
    begin = time.monotonic()
    until = begin + START_S + late_s * (run.round == WARM)
    ready: dict[str, Any] = {}
    done: dict[str, Any] = {}
    trace: list[Point] = []
    killed, rest = False, b""
    try:
        for piece in child.read(child.process.stdout):
            *lines, rest = (rest + piece).split(b"\n")
            for message in map(json.loads, lines):
                kind = message.pop("kind")
                if kind == "ready":
                    ready, begin = message, time.monotonic()
                    until = begin + late_s
                elif kind == "trace":
                    trace.append(Point(**message))
                else:
                    done = message
            killed = not done and time.monotonic() > until
            if done or killed:
                break
        wall_s = time.monotonic() - begin
        words = child.printed().strip()[-500:]
    finally:
        child.kill()
    cpu_s = max(0.0, child.cpu_s - ready.get("cpu", 0.0))
    used = done or {"cpu": cpu_s, "wall": wall_s, "peak": child.peak_mb}
    return MeasurementOutcome(
        ready, tuple(trace), done, killed, used["cpu"], used["wall"], used["peak"], words
    )
