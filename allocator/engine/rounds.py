"""Rounds that follow each other: a handle that keeps what one decision found for the next.

rounds = allocator.Rounds(gap=1e-3)
while True:
    result = rounds.solve(allocator.read_snapshot(folder))
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide_next_round
from allocator.policies.base import AnyPolicy, name_of
from allocator.problem import Problem as UserProblem
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP

if TYPE_CHECKING:
    from allocator.domain.plan import Plan
    from allocator.domain.problem import Problem
    from allocator.domain.snapshot import Snapshot
    from allocator.policies.base import Memory


class Rounds:
    """Decide one round after another; each starts from the prices of the one before.

    The plan found may differ from that of a cold start, within the gap.

    Parameters
    ----------
    policy, solver, time_limit_s, gap, seed, threads
        As of `allocator.solve`, for every round.

    Attributes
    ----------
    note : str
        What the last round started from, or why it could not.

    Examples
    --------
    >>> import allocator
    >>> rounds = allocator.Rounds(gap=1e-3)
    >>> for gpus in (8, 12):
    ...     plan = rounds.solve(
    ...         allocator.Problem.read("data/snapshots/demo").change({"pools.a100.gpus": gpus})
    ...     )
    ...     print(rounds.note.partition(":")[0], plan.status)
    cold optimal
    warm optimal
    """

    def __init__(
        self,
        *,
        policy: AnyPolicy = "mip",
        solver: str = "auto",
        time_limit_s: float = math.inf,
        gap: float = GAP,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        self._policy = policy
        self._solver = solver
        self._limits = SolveLimits(time_limit_s, gap, threads, seed)
        self._memory: Memory | None = None
        self.note = "no round yet"

    def __repr__(self) -> str:
        """Summarise the handle on one line."""
        return f"Rounds(policy={name_of(self._policy)!r}, note={self.note!r})"

    def solve(self, problem: UserProblem | Snapshot) -> Plan:
        """Decide the next round; a failed round is not remembered.

        Parameters
        ----------
        problem : Problem or Snapshot
            The round; a snapshot is checked first.

        Returns
        -------
        Plan
            The audited decision.

        Raises
        ------
        InvalidInput, UsageError, Infeasible, NoPlanInTime
            As of `allocator.solve`.

        Examples
        --------
        >>> import allocator
        >>> allocator.Rounds().solve(allocator.Problem.read("data/snapshots/demo")).status
        'optimal'
        """
        begin = time.monotonic()
        checked = problem.checked if isinstance(problem, UserProblem) else validate(problem)
        return self.decide(checked, time.monotonic() - begin)

    def decide(self, problem: Problem, validate_s: float = 0.0) -> Plan:
        """Decide the next round from a checked problem.

        Parameters
        ----------
        problem : allocator.domain.problem.Problem
            The round as arrays.
        validate_s : float
            Seconds that checking took, for the timings of the plan.

        Returns
        -------
        Plan
            The audited decision.

        Examples
        --------
        >>> import allocator
        >>> problem = allocator.Problem.read("data/snapshots/demo")
        >>> allocator.Rounds().decide(problem.checked).status
        'optimal'
        """
        self.note = self._warmth(problem)
        result, self._memory = decide_next_round(
            self._memory,
            problem,
            policy=self._policy,
            solver=self._solver,
            limits=self._limits,
            seconds={"validate": validate_s},
        )
        return result

    def _warmth(self, problem: Problem) -> str:
        if self._memory is None:
            return "cold: first round"
        if self._memory.objective != problem.objective:
            return f"cold: objective changed from {self._memory.objective} to {problem.objective}"
        plans = self._memory.plans
        more = "" if plans is None else f" and plans of {len(plans.jobs)} jobs"
        return f"warm: {len(self._memory.prices)} prices{more} of the round before"
