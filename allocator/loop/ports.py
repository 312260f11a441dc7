"""What the controller sees of a cluster. The simulator is one implementation, executors of real
machines are others.
"""

from __future__ import annotations

from typing import Protocol

from allocator.domain.problem import Problem
from allocator.engine.decision import Decision


class ControlledCluster(Protocol):
    """A cluster that lives between decisions.

    The controller calls wait, observe, apply in this order, once per round; apply is left out when
    no plan was found: everything that runs then stays as it is.
    """

    def wait(self) -> bool:
        """Return when the next round is due; False: nothing is left to decide."""
        ...

    def observe(self) -> Problem:
        """The state of now, as believed: what was submitted and is not done, what runs, what the
        pools hold.
        """
        ...

    def apply(self, decision: Decision, took_s: float) -> int:
        """Make the audited plan of the problem observed last come true; took_s: seconds the
        decision took. Returns how many jobs change (start, resize, move or pause)."""
        ...
