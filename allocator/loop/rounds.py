"""The loop of every round: observe, decide and audit, apply; and when rounds are due.

It depends on no policy and on no machine. Tick n is at start_s + n interval_s, in the simulator and
in the controller alike. Early rounds move no tick, late polls do not add up, and a controller that
takes over goes on with the same ticks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime

Decide = Callable[[Problem], Decision]


class ControlledCluster(Protocol):
    """A cluster that lives between decisions: the simulator, or a queue with an executor.

    The controller calls wait, observe and apply in this order, once per round. If no plan was
    found, it leaves out apply, and everything that runs stays as before.
    """

    def wait(self) -> bool:
        """Wait for the next round and return True; False: nothing is left to decide."""
        ...

    def observe(self) -> Problem:
        """Return the problem of now, as it is believed: open jobs, what runs, and the pools."""
        ...

    def apply(self, decision: Decision, took_s: float) -> int:
        """Carry out the audited plan of the problem that was observed last.

        `took_s` is the seconds that the decision took. Returns how many jobs change (start, resize,
        move or pause).
        """
        ...


@dataclass(frozen=True)
class RoundOutcome:
    """One round that is over.

    `decision` is the audited plan, None if there was none; `failure` then says why (Infeasible or
    NoPlanInTime). `decision_s` is the wall seconds that the decision took. `changes` is the number
    of jobs that the plan changes.
    """

    number: int
    problem: Problem
    decision: Decision | None
    failure: AllocatorError | None
    decision_s: float
    changes: int


def run_rounds(
    cluster: ControlledCluster, decide: Decide, first: int = 0
) -> Iterator[RoundOutcome]:
    """Run the cluster round by round, and yield each round after its plan was applied.

    Rounds are numbered from `first`. A round without a plan changes nothing and is yielded too. Any
    other error of `decide` ends the loop.
    """
    number = first
    while cluster.wait():
        problem = cluster.observe()
        begin = time.perf_counter()
        decision: Decision | None = None
        failure: AllocatorError | None = None
        try:
            decision = decide(problem)
        except (Infeasible, NoPlanInTime) as error:
            failure = error
        took_s = time.perf_counter() - begin
        changes = cluster.apply(decision, took_s) if decision is not None else 0
        yield RoundOutcome(number, problem, decision, failure, took_s, changes)
        number += 1


EXACT = 1e-9  # share of an interval: a time so close before a tick counts as the tick


def latest_tick(at_s: float, start_s: float, interval_s: float) -> int:
    """Return the number of the latest tick that is not after at_s."""
    return math.floor((at_s - start_s) / interval_s + EXACT)
