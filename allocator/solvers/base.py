"""The seam between formulations and solvers: what to solve, how hard to try, and what came back.

Everything in an Answer is *as claimed by the solver*; whoever receives it checks it
(policies/optimise).
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
    """Why a search ended. `as claimed`: the receiver verifies value and bound."""

    GAP = "gap"  # the asked gap was proven (gap 0: optimal)
    TIME_LIMIT = "time_limit"  # stopped by time; values may or may not be present
    INFEASIBLE = "infeasible"  # proven: no plan keeps all rows
    # crash, garbage, refused model, killed without answer: see detail
    FAILED = "failed"


class ProgressWatcher(Protocol):
    """Who is told how a search goes on. The plan does not depend on it."""

    def improved(self, value: float, bound: float) -> None:
        """The best plan known has this value (-inf: none is known), and no plan has more than
        the bound.
        """

    def note(self, text: str) -> None:
        """What was done, in one or more lines."""


@dataclass(frozen=True)
class SolveLimits:
    """How hard to try, and who is told.

    time_s: wall seconds for the whole call, inf = none. gap: relative, (bound - value) /
    max(|value|, 1e-9). threads, seed: passed to the solver. log: keep the solver's own log in the
    Answer. watch: stays in this process.
    """

    time_s: float = math.inf
    gap: float = GAP
    threads: int = 1
    seed: int = 0
    log: bool = False
    watch: ProgressWatcher | None = None


@dataclass(frozen=True)
class WarmStart:
    """A plan to start from and prices of the rows; either may be None. Wrong or infeasible hints
    are allowed.

    values: (n,) one number per column. prices: (m,) one per row, >= 0 where only the upper bound
    binds.
    """

    values: Floats | None = None
    prices: Floats | None = None


@dataclass(frozen=True)
class SolverResult:
    """What a solver claims. values (n,) or None; objective of the values; bound >= best possible
    (inf: none); prices (m,): dual value of each row (>= 0 for a binding upper bound), or None."""

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
    """A back end: one call. Raises nothing a caller must know; failure is an Answer with
    Termination.FAILED.
    """

    name: str

    def solve(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart | None = None
    ) -> SolverResult: ...


class Backend(Protocol):
    """The function `solve` of a back-end module (highs, cpsat, pulp); runs inside a worker
    process.
    """

    def __call__(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
    ) -> SolverResult: ...
