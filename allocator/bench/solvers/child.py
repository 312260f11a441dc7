"""The process of one measurement: make the problem, run one engine, check its plan, report.

    python -m allocator.bench.solvers.child '{"instance": "L", "rules": "standard", ...}'

The argument has the fields of runs.SolverRun. Standard output has one JSON line per message:
"ready" when the clock starts, "trace" whenever plan or bound got better, and "done". Their fields
are columns of runs.csv and trace.csv. CPU seconds are those of this process and of the children
that it waited for. They include formulating the model and the final check. They do not include
loading libraries, making the instance, the round before a warm one, and checking reports. When
standard input ends, the parent is gone, and this process ends itself with everything that it
started.
"""

import contextlib
import json
import math
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from allocator.bench.solvers.engines import load
from allocator.bench.solvers.next_round import warm_hint
from allocator.bench.solvers.runs import SolverRun, problems
from allocator.io.plans import dumps
from allocator.solvers.base import SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.isolation.child_processes import end_with_parent
from formulations.bounds.lagrangian import bound_at
from formulations.model.choices import NotChoices, choices
from formulations.model.linear import Floats, LinearModel

ROUNDING = 1e-7  # relative rounding error of the bounds that engines claim


class SolverMeter:
    """The clock, and the best plan and bound so far."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._model: LinearModel | None = None
        self.value = -math.inf
        self.bound = math.inf
        self._own_cpu = self._own_wall = 0.0
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._cpu = cpu_seconds()
        self._wall = time.monotonic()

    def now(self) -> dict[str, float]:
        """Return CPU and wall seconds since the start, without the time of the reports."""
        return {
            "cpu_s": cpu_seconds() - self._cpu - self._own_cpu,
            "wall_s": time.monotonic() - self._wall - self._own_wall,
        }

    def model(self, model: LinearModel) -> None:
        """Set the model against which reports are checked from now on."""
        self._model = model

    def send(self, kind: str, **what: Any) -> None:
        """Send a message; numbers that are not finite become null."""
        self._out.write(dumps({"kind": kind, **what}) + "\n")
        self._out.flush()

    def report(self, values: Floats | None, bound: float) -> None:
        """Check a report, keep what is better, and pass it on."""
        with self._lock:
            now = self.now()
            cpu_s, wall_s = time.thread_time(), time.monotonic()
            if self.keep_improvement(values, bound):
                self.send("trace", **now, value=self.value, bound=self.bound)
            self._own_cpu += time.thread_time() - cpu_s
            self._own_wall += time.monotonic() - wall_s

    def keep_improvement(self, values: Floats | None, bound: float) -> bool:
        """Keep a plan with a higher value that breaks no row, and a tighter bound.

        Returns whether either of them is new.
        """
        assert self._model is not None
        new = not math.isnan(bound) and bound < self.bound
        if new:
            self.bound = float(bound)
        if values is not None and self._model.feasible(values):
            value = float(self._model.value @ values)
            if value > self.value:
                self.value = value
                new = True
        return new


def main(spec: str) -> None:
    """Measure one run."""
    run = SolverRun(**json.loads(spec))
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # solvers print on standard output
    end_with_parent()
    engine, version = load(run.engine)
    *earlier, make = problems(run)
    limits = SolveLimits(run.limit_s, run.gap, run.threads, run.seed)
    hint = WarmStart()
    shape = make()
    for before in earlier:
        model = before()
        hint = warm_hint(
            model, engine(model, limits, WarmStart(), lambda values, bound: None), shape
        )
    meter = SolverMeter(out)
    meter.send(
        "ready",
        version=version,
        columns=shape.n,
        rows=shape.m,
        entries=len(shape.coef),
        ready_cpu_s=cpu_seconds(),
        jobs=sum(len(f.labels) for f in shape.families if f.kind == "at_most_one"),
    )
    del shape
    meter.start()
    model = make()
    meter.model(model)
    try:
        answer = engine(model, limits, hint, meter.report)
    except Exception as error:
        answer = SolverResult(Termination.FAILED, detail=f"{type(error).__name__}: {error}")
    _check_answer(meter, model, answer)


def _check_answer(meter: SolverMeter, model: LinearModel, answer: SolverResult) -> None:
    """Check the plan of the answer against the rows, and its bound.

    The bound is checked against all plans seen and against the bound that the prices prove.
    """
    detail = answer.detail
    by = "engine"
    if answer.values is not None and not model.feasible(answer.values):
        detail = f"the plan breaks {len(model.violations(answer.values))} rows; {detail}"
        answer = SolverResult(Termination.FAILED, bound=answer.bound, prices=answer.prices)
    infeasible = answer.termination is Termination.INFEASIBLE
    meter.keep_improvement(answer.values, math.inf if infeasible else answer.bound)
    if answer.prices is not None:
        with contextlib.suppress(NotChoices):
            own = bound_at(choices(model), answer.prices)
            by = "prices" if own <= meter.bound * (1 + 1e-12) else by
            meter.bound = min(meter.bound, own)
    if meter.bound < meter.value - ROUNDING * abs(meter.value):
        detail = f"the bound lies below a plan; {detail}"
    now = meter.now()
    meter.send("trace", **now, value=meter.value, bound=meter.bound)
    meter.send(
        "done",
        **now,
        ended=str(answer.termination),
        bound_by=by,
        detail=detail[:300],
        peak_mb=peak_memory_mb(),
    )


def cpu_seconds() -> float:
    """Return CPU seconds, user and system, of this process and the children it has waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def peak_memory_mb() -> float:
    """Return the largest memory in MB of this process or one of its children.

    ru_maxrss alone would include the memory of the parent.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    own = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    with contextlib.suppress(OSError, StopIteration):
        line = next(
            x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")
        )
        own = float(line.split()[1])
    unit = 1024.0 if sys.platform != "darwin" else 1024.0**2
    return max(own, float(children)) / unit


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # some solver libraries hang while they release their resources
