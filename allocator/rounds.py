"""Rounds that follow each other: a handle that keeps what one decision found for the next.

rounds = allocator.Rounds(gap=1e-3)
while True:
    result = rounds.solve(allocator.read_snapshot(folder))
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from allocator.decision import decide_after
from allocator.domain.validate import validate
from allocator.solvers.base import Limits
from allocator.solvers.effort import GAP

if TYPE_CHECKING:
    from allocator.domain.problem import Problem
    from allocator.domain.result import Result
    from allocator.domain.snapshot import Snapshot
    from allocator.policies.memory import Memory


class Rounds:
    """Decides one round after another; each starts from the prices of the one before.

    The plan found may differ from that of a cold start, within the gap. `note` says what the last
    round started from, or why it could not.
    """

    def __init__(
        self,
        *,
        policy: str = "mip",
        solver: str = "auto",
        time_limit_s: float = math.inf,
        gap: float = GAP,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        """Parameters as of `allocator.solve`; they hold for every round."""
        self._policy, self._solver = policy, solver
        self._limits = Limits(time_limit_s, gap, threads, seed)
        self._memory: Memory | None = None
        self.note = "no round yet"

    def solve(self, snapshot: Snapshot) -> Result:
        """Decide the next round from a snapshot; errors as of `allocator.solve`. A failed round
        is not remembered.
        """
        begin = time.monotonic()
        problem = validate(snapshot)
        return self.decide(problem, time.monotonic() - begin)

    def decide(self, problem: Problem, validate_s: float = 0.0) -> Result:
        """The same for a validated problem."""
        self.note = self._warmth(problem)
        result, self._memory = decide_after(
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
