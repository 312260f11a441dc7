"""The runner of one measurement: make the problem, run one engine, check its plan.

It runs in the process of a task (sweep/runner.py). TRACE has a row whenever plan or bound got
better; the figures are columns of runs.csv. Those that are there from the start say that the engine
was killed, and hold unless it returns. CPU seconds are those of this process and of the children
that it waited for. They include formulating the model and the final check. They do not include
loading libraries, making the instance, the round before a warm one, and checking reports.
"""

import contextlib
import csv
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from allocator.bench.solvers.engines import load
from allocator.bench.solvers.runs import POINT, TRACE, late_s, problems
from allocator.bench.sweep.runner import write_metrics
from allocator.bench.sweep.tasks import SweepTask
from allocator.objects import Json
from allocator.policies.base import Memory
from allocator.solvers.base import SolveLimits, SolverResult, Termination, WarmStart
from formulations.bounds.lagrangian import bound_at
from formulations.model.choices import NotChoices, choices
from formulations.model.linear import Floats, LinearModel

ROUNDING = 1e-7  # relative rounding error of the bounds that engines claim


class SolverMeter:
    """The clock, the model that it makes first, and the best plan and bound so far."""

    def __init__(self, make: Callable[[], LinearModel], out: TextIO) -> None:
        self._lock, self._out = threading.Lock(), out
        self._rows = csv.writer(out, lineterminator="\n")
        self._rows.writerow(POINT)
        out.flush()
        # of the start, and later by what the reports have taken
        self._cpu_s, self._wall_s = cpu_seconds(), time.monotonic()
        self.value, self.bound = -math.inf, math.inf
        self.model = make()

    def now(self) -> tuple[float, float]:
        """Return CPU and wall seconds since the start, without the time of the reports."""
        return cpu_seconds() - self._cpu_s, time.monotonic() - self._wall_s

    def report(self, values: Floats | None, bound: float) -> None:
        """Check a report, keep what is better, and trace it."""
        with self._lock:
            now = self.now()
            cpu_s, wall_s = time.thread_time(), time.monotonic()
            if self.keep_improvement(values, bound):
                self.trace(now)
            self._cpu_s += time.thread_time() - cpu_s
            self._wall_s += time.monotonic() - wall_s

    def trace(self, now: tuple[float, float]) -> None:
        """Append the best value and bound so far; a cell stays empty until there is one."""
        both = (x if math.isfinite(x) else "" for x in (self.value, self.bound))
        self._rows.writerow((*now, *both))
        self._out.flush()

    def keep_improvement(self, values: Floats | None, bound: float) -> bool:
        """Keep a plan with a higher value that breaks no row, and a tighter bound.

        Returns whether either of them is new.
        """
        new = not math.isnan(bound) and bound < self.bound
        if new:
            self.bound = float(bound)
        if values is not None and self.model.feasible(values):
            value = float(self.model.value @ values)
            if value > self.value:
                self.value = value
                new = True
        return new


def run(task: SweepTask, folder: Path) -> None:
    """Measure one run, and end the process."""
    engine, version = load(task.policy)
    *earlier, make = problems(task)
    how = task.options
    limits = SolveLimits(how["limit_s"], how["gap_asked"], how["threads"], task.seed)
    hint, model = WarmStart(), make()
    for make_before in earlier:
        before = make_before()
        answer = engine(before, limits, hint, lambda values, bound: None)
        hint = _make_hint(before, answer, model)
        del before, answer
    until_s = late_s(limits.time_s)
    figures: Json = {
        "version": version,
        "columns": model.n,
        "rows": model.m,
        "entries": len(model.coef),
        "jobs": sum(len(f.labels) for f in model.families if f.kind == "at_most_one"),
        "ended": "killed",
        "ready_cpu_s": cpu_seconds(),
        "wall_s": until_s,
    }
    del model  # the engine that is measured has its own, and the memory to itself
    write_metrics(folder, figures)
    # nothing handles the signal, so that it ends an engine that holds the interpreter, too
    signal.setitimer(signal.ITIMER_REAL, until_s)
    with (folder / TRACE).open("w", encoding="utf-8", newline="") as out:
        meter = SolverMeter(make, out)
        try:
            answer = engine(meter.model, limits, hint, meter.report)
        except Exception as error:
            answer = SolverResult(Termination.FAILED, detail=f"{type(error).__name__}: {error}")
        figures |= _check_answer(meter, answer)
    write_metrics(folder, figures)
    os._exit(0)  # some solver libraries hang while they release their resources


def _make_hint(before: LinearModel, answer: SolverResult, now: LinearModel) -> WarmStart:
    """Return the warm start that an answer gives to the next round.

    It has the plan, for options that kept their indices, and the prices by row.
    """
    values = answer.values if answer.values is not None and len(answer.values) == now.n else None
    prices = (
        None if answer.prices is None else Memory.of("", before, answer.prices).row_prices(now)[0]
    )
    return WarmStart(values, prices)


def _check_answer(meter: SolverMeter, answer: SolverResult) -> Json:
    """Check the plan of the answer against the rows, and its bound; return the figures.

    The bound is checked against all plans seen and against the bound that the prices prove.
    """
    model, detail, by = meter.model, answer.detail, "engine"
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
    meter.trace(now)
    return {
        **dict(zip(POINT, now, strict=False)),
        "ended": str(answer.termination),
        "bound_by": by if math.isfinite(meter.bound) else "",
        "detail": " ".join(detail[:300].split()),
        "peak_mb": peak_memory_mb(),
    }


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
