"""A policy that fails in turn, to show that a controller survives it.

In fixed rounds it hangs, breaks rules or crashes.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from allocator.audit import audit
from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.errors import AuditFailure

TURNS = ("", "", "hang", "", "lie", "", "crash")
"""What happens in consecutive rounds, repeated; "" means nothing."""


class Sabotage:
    """Decides like decide_round, except in the bad rounds of TURNS."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, problem: Problem, **effort: Any) -> Decision:
        """Decide a round. Raises AuditFailure or ZeroDivisionError, or never returns."""
        turn = TURNS[self.rounds % len(TURNS)]
        self.rounds += 1
        if turn == "hang":
            _hang()
        if turn == "crash":
            raise ZeroDivisionError("sabotage")
        decision = decide_round(problem, **effort)
        if turn == "lie":
            most = int(problem.pools.gpus.max(initial=1))
            plan = replace(
                decision.allocation,
                pool=np.zeros_like(decision.allocation.pool),
                gpus=np.full_like(decision.allocation.gpus, most),
            )
            of = decision.round
            audited = audit(of.problem, plan, of.repairs, of.offer)
            raise AuditFailure(audited.faults or ("no fault found",))
        return decision


def _hang() -> None:
    """Hang forever, whatever exception is raised that an `except Exception` catches."""
    while True:
        try:
            time.sleep(0.05)
        except Exception:
            continue
