"""A trace to simulate: every job ever submitted, and the changes of the cluster over time."""

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Changes, Floats, Ints, Problem, Rows

__all__ = ["Changes", "NodeEvents", "RecordedTimes", "Workload"]


@dataclass(frozen=True)
class NodeEvents(Rows):
    """Rows of node_events.csv after the start, by time; arrays (E,)."""

    at_s: Floats
    node: Ints  # index into Nodes
    state: Ints  # as in Nodes
    announced_s: Floats  # inf = never


_NONE = np.zeros(0, dtype=np.int64)
NO_NODE_EVENTS = NodeEvents(np.zeros(0), _NONE, _NONE, np.zeros(0))


@dataclass(frozen=True)
class RecordedTimes(Rows):
    """What became of each job at its site, in the order of the jobs; arrays (J,), nan = unknown."""

    start_s: Floats
    end_s: Floats


NOT_RECORDED = RecordedTimes(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, repr=False)
class Workload:
    """Hold every job that is ever submitted, and the changes of the pools over time.

    Attributes
    ----------
    problem : allocator.domain.problem.Problem
        All jobs by time of submission, each queued with its total work left; pools as they are at
        the start, `problem.now_s`.
    changes : Changes
        Changes of the pools after that.
    node_events : NodeEvents
        States of nodes after that.
    assumed : str
        What is assumed of the jobs because their log does not say it; also in `problem.warnings`.
    recorded : RecordedTimes
        When each job started and ended at its site, on the clock of the workload; without rows
        where that is recorded of no job.

    Examples
    --------
    >>> import allocator
    >>> allocator.read_workload("data/workloads/demo")
    Workload('demo', jobs=24, pools=1, changes=0)
    """

    problem: Problem
    changes: Changes
    node_events: NodeEvents = NO_NODE_EVENTS
    assumed: str = ""
    recorded: RecordedTimes = NOT_RECORDED

    def __repr__(self) -> str:
        """Summarise the workload on one line."""
        p = self.problem
        return (
            f"Workload({p.name!r}, jobs={len(p.jobs)}, pools={len(p.pools)},"
            f" changes={len(self.changes)})"
        )
