"""The port through which the controller sees a cluster.

The simulator is one implementation, and the queue with an executor is another.
"""

from __future__ import annotations

from typing import Protocol

from allocator.domain.problem import Problem
from allocator.engine.decided import Decision


class ControlledCluster(Protocol):
    """A cluster that lives between decisions.

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
