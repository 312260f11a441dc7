"""The interface between formulations and solvers: what to solve, with which limits, and the answer.

Everything in a SolverResult is *as claimed by the solver*; the receiver checks it
(policies/mip.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from allocator.solvers.effort import GAP
from formulations.model.linear import Floats, LinearModel


class Termination(StrEnum):
    """Why a search ended, as claimed by the solver: the receiver verifies value and bound."""

    GAP = "gap"  # the asked gap was proven (gap 0: optimal)
    TIME_LIMIT = "time_limit"  # stopped by time; values may or may not be present
    INFEASIBLE = "infeasible"  # proven: no plan keeps all rows
    # crash, garbage, refused model, killed without answer: see detail
    FAILED = "failed"


class ProgressWatcher(Protocol):
    """Receives the progress of a search. The plan does not depend on it."""

    def improved(self, value: float, bound: float) -> None:
        """Receive the value of the best known plan (-inf: none is known) and the bound on all
        plans.
        """

    def note(self, text: str) -> None:
        """Receive a description of a step, in one or more lines."""


@dataclass(frozen=True)
class SolveLimits:
    """How long and how exactly to solve, and who watches.

    Attributes
    ----------
    time_s : float
        Wall seconds of the whole call, inf = no limit.
    gap : float
        Relative gap, (bound - value) / max(|value|, 1e-9).
    threads, seed : int
        Passed to the solver.
    log : bool
        Whether to keep the solver's own log in the result.
    watch : ProgressWatcher
        Receives the progress; it stays in this process.
    """

    time_s: float = math.inf
    gap: float = GAP
    threads: int = 1
    seed: int = 0
    log: bool = False
    watch: ProgressWatcher | None = None


@dataclass(frozen=True)
class WarmStart:
    """A plan to start from and prices of the rows; either may be None, wrong or infeasible.

    Attributes
    ----------
    values : (n,)
        One number per column.
    prices : (m,)
        One number per row, >= 0 where only the upper bound binds.
    """

    values: Floats | None = None
    prices: Floats | None = None


@dataclass(frozen=True)
class SolverResult:
    """What a solver claims.

    Attributes
    ----------
    values : (n,) or None
        Value of each column.
    objective : float
        Objective of the values.
    bound : float
        At least the best possible objective, inf = none.
    prices : (m,) or None
        Dual value of each row, >= 0 for a binding upper bound.
    """

    termination: Termination
    values: Floats | None = None
    objective: float = -math.inf
    bound: float = math.inf
    prices: Floats | None = None
    solver: str = ""
    version: str = ""
    seconds: float = 0.0
    log: str = ""
    detail: str = ""


ReportProgress = Callable[[Floats | None, float], None]
"""report(values or None, bound): an improving plan and / or a better bound, sent while the
search goes on.
"""


class Solver(Protocol):
    """A solver: one call. It raises nothing; a failure is a result with Termination.FAILED."""

    name: str

    def solve(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart | None = None
    ) -> SolverResult: ...


class Backend(Protocol):
    """The function `solve` of a back-end module (highs, cpsat, pulp_reference); it runs in a
    worker.
    """

    def __call__(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
    ) -> SolverResult: ...
