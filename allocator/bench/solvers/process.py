"""Run one measurement in a child process.

The parent starts the process, reads its messages, and kills it with all that it started if it is
late.
"""

import json
import subprocess
import time
from dataclasses import asdict
from typing import Any, NamedTuple

from allocator.bench.solvers.runs import WARM, SolverRun
from allocator.solvers.isolation.child_processes import ONE_THREAD, Child

START_S = 300.0  # to load the library and make the instance


def grace(limit_s: float) -> float:
    """Return the seconds after its limit in which an engine may return and be checked."""
    return max(3.0, 0.1 * limit_s)


class Point(NamedTuple):
    """Plan value and bound after some CPU and wall seconds; None where there is none yet."""

    cpu_s: float
    wall_s: float
    value: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Return (bound - value) / |value|, at least 0; None without a plan or a bound."""
        if self.value is None or self.bound is None:
            return None
        return max(0.0, (self.bound - self.value) / max(abs(self.value), 1e-9))


def measure(run: SolverRun) -> tuple[dict[str, Any], list[Point]]:
    """Run one measurement in a child process.

    It takes at most START_S + limit + grace, or twice that if there is a round before.

    Returns
    -------
    tuple of dict and list of Point
        What is known of the measurement, by columns of runs.csv, and its trace. A process that was
        late was killed, and has only been watched from outside.
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
    told: dict[str, Any] = {}
    trace: list[Point] = []
    ended, rest = "failed", b""
    try:
        for piece in child.read(child.process.stdout):
            *lines, rest = (rest + piece).split(b"\n")
            for message in map(json.loads, lines):
                kind = message.pop("kind")
                if kind == "trace":
                    trace.append(Point(**message))
                    continue
                told |= message
                if kind == "ready":
                    begin = time.monotonic()
                    until = begin + late_s
            if "ended" in told:
                break
            if time.monotonic() > until:
                ended = "killed"
                break
        wall_s = time.monotonic() - begin
        words = child.printed().strip()[-500:]
    finally:
        child.kill()
    cpu_s = max(0.0, child.cpu_s - told.pop("ready_cpu_s", 0.0))
    seen = {"ended": ended, "cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": child.peak_mb}
    return seen | {"detail": words} | told, trace
