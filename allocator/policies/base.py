"""The seam of policies: a Task in, a Decision out. A new policy is one function and one line in
registry.py.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from allocator.options.round import Round
from allocator.policies.memory import Plans
from allocator.solvers import registry
from allocator.solvers.base import Limits, Solver
from formulations.choices import Choices, choices
from formulations.lagrangian import Dual
from formulations.linear import Floats, Ints
from formulations.pairing import CLOSE, best_prices


@dataclass(frozen=True)
class Task:
    """One round to decide: the compiled round, effort and solver; its structure and dual are found
    when asked for.

    limits: effort; its time_s gives way to what is left until `deadline` (time.monotonic). solver:
    the back end that `mip` calls, also the last resort of the others when no heuristic finds a
    plan; None = chosen by size and structure when it is needed. prices: row prices (m,) to start
    the dual from, None = none known; plans: of the look ahead before. known: no plan is worth more;
    others: no plan with a pair of jobs that the round leaves out is (policies/pairs.py).
    """

    round: Round
    limits: Limits
    solver: Solver | None
    deadline: float
    prices: Floats | None = None
    plans: Plans | None = None
    known: float = math.inf
    others: float = -math.inf

    @cached_property
    def choices(self) -> Choices:
        """The round's model as one choice per job under coupling rows."""
        return choices(self.round.model)

    @cached_property
    def dual(self) -> Dual:
        """The Lagrangian dual: a bound and prices that need no solver. Takes at most half of the
        time that is left.
        """
        now = time.monotonic()
        return best_prices(
            self.choices, self.prices, now + 0.5 * max(0.0, self.deadline - now), self.close
        )

    @property
    def close(self) -> float:
        """Relative distance of the dual to the best one that is close enough for the asked gap."""
        return min(CLOSE, 0.1 * max(self.limits.gap, 1e-6))

    @property
    def bound(self) -> float:
        """No plan is worth more, by the dual alone."""
        return min(self.known, max(self.dual.bound, self.others))

    @property
    def has_dual(self) -> bool:
        """Whether somebody has asked for the dual: it costs nothing more to look at it."""
        return "dual" in vars(self)

    def left(self) -> Limits:
        """The limits with the time that is left now: several searches share one promise."""
        return dataclasses.replace(self.limits, time_s=max(0.0, self.deadline - time.monotonic()))

    def engine(self) -> tuple[Solver, str]:
        """The solver to call, and why it if the choice was left to us."""
        if self.solver is not None:
            return self.solver, ""
        name, why = registry.choose(self.round.model)
        return registry.get(name), f"auto: {name}, {why}"


@dataclass(frozen=True)
class Decision:
    """What a policy decided: choice (J,) columns of the round's model, -1 = nothing; it keeps every
    hard rule.

    bound: of all plans, proven by `bound_by`, inf when the policy proves nothing itself.
    termination: "gap", "time_limit" or "heuristic". fallback: who made the plan if it was not the
    policy. detail: anything a user should be told. plans: what a look ahead leaves to the next one.
    task: whose columns these are, if not the given one's: with more pairs.
    """

    choice: Ints
    bound: float = math.inf
    bound_by: str = ""
    termination: str = "heuristic"
    solver: str | None = None
    solver_version: str | None = None
    solver_choice: str = ""
    fallback: str | None = None
    detail: str = ""
    log: str = ""
    plans: Plans | None = None
    task: Task | None = None


Policy = Callable[[Task], Decision]


def relative_gap(bound: float, value: float) -> float:
    """(B - V) / max(|V|, 1e-9), contract section 5."""
    return (bound - value) / max(abs(value), 1e-9)
