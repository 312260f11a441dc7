"""The interface between formulations and solvers: model, limits and result.

Everything in a SolverResult is *as claimed by the solver*. The receiver checks it
(policies/fallback.py).
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
    """State why a search ended, as the solver claims; the receiver verifies it.

    Examples
    --------
    >>> Termination.TIME_LIMIT.value
    'time_limit'
    """

    GAP = "gap"  # the asked gap was proven (gap 0: optimal)
    TIME_LIMIT = "time_limit"  # stopped by time; values may or may not be present
    INFEASIBLE = "infeasible"  # proven: no plan keeps all rows
    # crash, invalid answer, refused model, or killed without an answer; see `detail`
    FAILED = "failed"


class ProgressWatcher(Protocol):
    """Receives the progress of a search. The plan does not depend on it."""

    def improved(self, value: float, bound: float) -> None:
        """Receive the value of the best known plan (-inf: none) and the bound on all plans."""

    def note(self, text: str) -> None:
        """Receive a description of a step, in one or more lines."""


@dataclass(frozen=True)
class SolveLimits:
    """State how long and how far to search, and who receives the progress.

    Parameters
    ----------
    time_s : float
        Wall seconds for the whole call; inf: no limit.
    gap : float
        Relative proof to stop at, (bound - value) / max(abs(value), 1e-9).
    threads, seed : int
        For the solver.
    log : bool
        Keep the solver's own log in its result.
    watch : ProgressWatcher, optional
        Receives the progress of the search; it stays in this process.

    Examples
    --------
    >>> SolveLimits(time_s=1.0).threads
    1
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
    """State what a solver claims.

    Parameters
    ----------
    termination : Termination
        Why the search ended.
    values : ndarray of float, shape (columns,), optional
        The best plan found.
    objective : float
        Value of that plan.
    bound : float
        No plan has a higher value; inf: not known.
    prices : ndarray of float, shape (rows,), optional
        Dual value of each row, at least 0 where an upper bound binds.
    solver, version : str
        Filled in by the package.
    seconds : float
        Wall time; filled in by the package.
    log, detail : str
        Log of the solver, and what a user should be told.

    Examples
    --------
    >>> import allocator
    >>> allocator.SolverResult(allocator.Termination.INFEASIBLE).bound
    inf
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
"""Function report(values or None, bound), which a back end calls during the search.

It reports a better plan, a better bound, or both.
"""


class Solver(Protocol):
    """A solver: one call. It raises nothing; a failure is a result with Termination.FAILED."""

    name: str

    def solve(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart | None = None
    ) -> SolverResult: ...


class Backend(Protocol):
    """The function `solve` of a back-end module (highs, cpsat, pulp_reference), run in a worker."""

    def __call__(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
    ) -> SolverResult: ...
