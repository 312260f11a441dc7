"""Run a solver in another process, so that it cannot hang, crash or mislead this one.

The worker is warm: it is kept between calls, and serves one user at a time. At the time limit plus
GRACE_S it is killed with all processes that it started, and the answer is the best plan that it had
reported. So a time limit is a promise, and two libraries that cannot share a process can be used
together.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np

from allocator.solvers.base import SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.isolation.worker_processes import ProtocolError, Worker, WorkerPool
from formulations.model.linear import Floats, LinearModel

GRACE_S = 0.2
START_S = 60.0  # a worker that has not loaded its back end by then is killed
POOL = WorkerPool()  # warm workers of this process


class Isolated:
    """A Solver whose back end `module` (a function `solve`, base.Backend) runs in a worker process.

    It may be used from several threads, because each call has its own worker. `paths` are folders
    added to the worker's sys.path.
    """

    def __init__(
        self, name: str, module: str, paths: tuple[str, ...] = (), pool: WorkerPool = POOL
    ) -> None:
        self.name = name
        self._module = module
        self._paths = tuple(paths)
        self._pool = pool

    def solve(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart | None = None
    ) -> SolverResult:
        """Solve in a worker, and return by limits.time_s + GRACE_S.

        Only KeyboardInterrupt and similar exceptions are raised.
        """
        begin = time.monotonic()
        if limits.time_s <= 0.0:
            return SolverResult(
                Termination.TIME_LIMIT, solver=self.name, detail="no time was given"
            )
        call = _Call(self, model, limits, hint or WarmStart(), begin)
        answer = dataclasses.replace(
            call.run(), solver=self.name, version=call.version, seconds=time.monotonic() - begin
        )
        if limits.watch is not None:
            limits.watch.note(_log_of_result(answer, model))
        return answer


class _Call:
    """One call: the worker, the deadline, and the best reports so far."""

    def __init__(
        self,
        solver: Isolated,
        model: LinearModel,
        limits: SolveLimits,
        hint: WarmStart,
        begin: float,
    ) -> None:
        self._solver = solver
        # a copy without cached properties, which would be sent to the worker as well
        self._model = dataclasses.replace(model)
        self._hint = hint
        self._watch = limits.watch
        self._limits = dataclasses.replace(limits, watch=None)
        self._deadline = begin + limits.time_s
        self._values: Floats | None = None
        self._objective = -math.inf
        self._bound = math.inf
        self.version = ""

    def run(self) -> SolverResult:
        pool = self._solver._pool
        module = self._solver._module
        paths = self._solver._paths
        try:
            worker = pool.take(module, paths)
        except OSError as error:
            return self._best_result(Termination.FAILED, f"no worker could be started: {error}")
        keep = False
        try:
            answer, keep = self._exchange(worker)
            return answer
        finally:
            # also on KeyboardInterrupt: a worker that is still busy cannot be used again
            if keep:
                pool.give(module, paths, worker)
            else:
                worker.kill()

    def _exchange(self, worker: Worker) -> tuple[SolverResult, bool]:
        """Return the answer, and whether the worker may be used again."""
        try:
            wrong = worker.wait_ready(min(self._deadline, worker.born + START_S))
        except TimeoutError:
            if time.monotonic() < worker.born + START_S:  # let it warm up for the next call
                return self._best_result(
                    Termination.TIME_LIMIT, "the worker was still starting"
                ), True
            return (
                self._best_result(Termination.FAILED, f"the worker did not start in {START_S:g} s"),
                False,
            )
        except (EOFError, OSError, ProtocolError) as error:
            return (
                self._best_result(
                    Termination.FAILED,
                    f"the worker did not start: {_describe_failure(error, worker)}",
                ),
                False,
            )
        if wrong:
            return self._best_result(Termination.FAILED, wrong), False
        self.version = worker.version
        kill_at = self._deadline + GRACE_S
        worker.uses += 1
        try:
            with worker.killed_at(kill_at):
                worker.channel.send(
                    ("solve", worker.uses, self._model, self._limits, self._deadline, self._hint)
                )
                answer = self._collect(worker)
        except (EOFError, OSError, ProtocolError) as error:
            if time.monotonic() >= kill_at:
                detail = f"killed {GRACE_S:g} s after its time limit"
                return self._best_result(Termination.TIME_LIMIT, detail, worker.printed()), False
            return self._best_result(
                Termination.FAILED, f"the solver died: {_describe_failure(error, worker)}"
            ), False
        return answer, answer.termination is not Termination.FAILED

    def _collect(self, worker: Worker) -> SolverResult:
        while True:
            message = worker.receive()
            if not isinstance(message, tuple) or len(message) < 3 or message[1] != worker.uses:
                raise ProtocolError(f"an unexpected message of type {type(message).__name__}")
            if message[0] == "answer" and len(message) == 3:
                return self._check_result(message[2])
            if message[0] != "report" or len(message) != 4:
                raise ProtocolError("an unknown kind of message")
            self._accept_report(message[2], message[3])

    def _accept_report(self, values: Any, bound: Any) -> None:
        """Keep a report if it is the best so far; only plans that keep every rule count."""
        if fault := _fault(values, bound, self._model.n):
            raise ProtocolError(f"a report with {fault}")
        self._bound = min(self._bound, float(bound))
        if values is not None:
            plan_value = float(self._model.value @ values)
            if plan_value > self._objective and self._model.feasible(values):
                self._values = values
                self._objective = plan_value
        if self._watch is not None:
            self._watch.improved(self._objective, self._bound)

    def _check_result(self, given: object) -> SolverResult:
        """Return the back end's answer, completed by its reports; FAILED if it is invalid."""
        if not isinstance(given, SolverResult) or not isinstance(given.termination, Termination):
            return self._best_result(
                Termination.FAILED, f"the solver returned a {type(given).__name__}, not an answer"
            )
        answer: SolverResult = given
        if fault := _fault(answer.values, answer.bound, self._model.n):
            return self._best_result(Termination.FAILED, f"the solver returned {fault}")
        if answer.prices is not None and _fault(answer.prices, 0.0, self._model.m):
            answer = dataclasses.replace(answer, prices=None)
        if answer.termination is Termination.INFEASIBLE:
            return answer
        if answer.values is None:
            return dataclasses.replace(
                self._best_result(answer.termination, str(answer.detail), str(answer.log)),
                bound=min(float(answer.bound), self._bound),
                prices=answer.prices,
            )
        return dataclasses.replace(
            answer,
            objective=float(self._model.value @ answer.values),
            bound=min(float(answer.bound), self._bound),
        )

    def _best_result(self, termination: Termination, detail: str, log: str = "") -> SolverResult:
        return SolverResult(
            termination,
            self._values,
            self._objective,
            self._bound,
            detail=detail,
            log=log if self._limits.log else "",
        )


def _log_of_result(answer: SolverResult, model: LinearModel) -> str:
    """Return an answer as lines of a log."""
    head = (
        f"{answer.solver} {answer.version}: {model.n} columns, {model.m} rows; ended by"
        f" {answer.termination} after {answer.seconds:.2f} s, value {answer.objective:.7g}, bound"
        f" {answer.bound:.7g}"
    )
    return "\n".join(filter(None, (head, answer.detail, answer.log.rstrip())))


def _fault(values: Any, bound: Any, n: int) -> str:
    """Return what is wrong with the numbers of a report or answer, '' if nothing."""
    if not isinstance(bound, int | float | np.floating) or math.isnan(bound):
        return "a bound that is no number"
    if values is None:
        return ""
    if not isinstance(values, np.ndarray) or values.dtype != np.float64 or values.shape != (n,):
        return f"values that are not {n} numbers"
    return "" if np.isfinite(values).all() else "values that are not finite"


def _describe_failure(error: Exception, worker: Worker) -> str:
    return worker.fate() if isinstance(error, EOFError | ConnectionError) else str(error)
