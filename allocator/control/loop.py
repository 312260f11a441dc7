"""The one loop of every round: observe, decide (which audits), apply. It knows neither policies
nor machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from allocator.control.ports import Cluster
from allocator.decision import Decided
from allocator.domain.problem import Problem
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime

Decide = Callable[[Problem], Decided]


@dataclass(frozen=True)
class Turn:
    """One round that is over.

    decided: the audited plan, None when there was none; failure: then why (Infeasible,
    NoPlanInTime). decision_s: wall seconds it took to decide. changes: jobs that the plan changes.
    """

    number: int
    problem: Problem
    decided: Decided | None
    failure: AllocatorError | None
    decision_s: float
    changes: int


def turns(cluster: Cluster, decide: Decide, first: int = 0) -> Iterator[Turn]:
    """Run the cluster round by round, numbered from `first`; each turn is yielded after its plan
    was applied.

    A round without a plan changes nothing and is reported; any other error of `decide` ends the
    loop.
    """
    number = first
    while cluster.wait():
        problem = cluster.observe()
        begin = time.perf_counter()
        decided: Decided | None = None
        failure: AllocatorError | None = None
        try:
            decided = decide(problem)
        except (Infeasible, NoPlanInTime) as error:
            failure = error
        took_s = time.perf_counter() - begin
        changes = cluster.apply(decided, took_s) if decided is not None else 0
        yield Turn(number, problem, decided, failure, took_s, changes)
        number += 1
