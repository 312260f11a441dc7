"""The nodes of a simulated cluster, and when each of them goes down and comes back.

A node that node_events.csv names has the states that this file gives it. Any other node that is up
at the start fails at the rate SimulationOptions.failures_per_node_hour while it is up, and is up
again node_repair_s later. These times depend on the seed and the node alone (random_numbers.py), so
they are the same under every policy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.domain.problem import Floats, Ints, Nodes
from allocator.domain.workload import Workload
from allocator.simulator import random_numbers
from allocator.simulator.options import SimulationOptions
from allocator.simulator.revocations import HOUR

UP, DRAIN, DOWN = range(3)  # nodes.csv `state`
STATES = ("up", "drain", "down")


class SimulatedNodes:
    """The states of N nodes, as of the last event that was applied.

    Attributes
    ----------
    state : (N,)
        State of each node now.
    failures : (N,)
        How often each node went down.
    states : list of (node, state, since_s, until_s)
        The states that are over.
    next_event_s : float
        When the next node changes its state, inf = never.
    """

    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        problem = workload.problem
        self._nodes = problem.nodes
        self._events = workload.node_events
        self._options = options
        self._pools = len(problem.pools)
        self.state: Ints = problem.nodes.state.copy()
        n = len(self.state)
        self.failures: Ints = np.zeros(n, np.int64)
        self.states: list[tuple[int, int, float, float]] = []
        self._since_s: Floats = np.full(n, problem.now_s)
        self._next_row = 0
        # when a node fails or is repaired at random
        self._random_s: Floats = np.full(n, np.inf)
        if options.failures_per_node_hour > 0:
            is_random = (self.state == UP) & ~np.isin(np.arange(n), self._events.node)
            which = np.flatnonzero(is_random)
            self._random_s[which] = problem.now_s + self._draw_lifetimes(which)
        self.next_event_s = self._find_next_event()

    def capacity(self) -> Ints:
        """Return the GPUs of the nodes of each pool that are up, (P,)."""
        up = self.state == UP
        gpus = np.bincount(self._nodes.pool[up], self._nodes.gpus[up], minlength=self._pools)
        return gpus.astype(np.int64)

    def known(self, now: float, interval_s: float) -> Nodes:
        """Return the nodes as a round has them: states, and absences that were announced."""
        nodes, events, state = self._nodes, self._events, self.state.copy()
        leaves_s, returns_s = nodes.leaves_s.copy(), nodes.returns_s.copy()
        later = np.arange(len(events.at_s)) >= self._next_row
        for row in np.flatnonzero(later & (events.announced_s <= now)).tolist():
            n, at_s = int(events.node[row]), float(events.at_s[row])
            if events.state[row] != UP:
                if state[n] == UP:
                    leaves_s[n] = min(leaves_s[n], at_s)
            elif returns_s[n] == np.inf and (state[n] != UP or leaves_s[n] < np.inf):
                leaves_s[n] = leaves_s[n] if state[n] == UP else now
                returns_s[n], state[n] = at_s, UP
        known = replace(nodes, state=state, leaves_s=leaves_s, returns_s=returns_s)
        return known.at(now, interval_s)

    def _find_next_event(self) -> float:
        """Return the time of the next change of a node, inf if there is none."""
        return min(self._next_row_s(), float(self._random_s.min(initial=np.inf)))

    def next_return(self) -> float:
        """Return the time of the next event that may bring GPUs back, inf if there is none."""
        repairs = self._random_s[self.state == DOWN]
        return min(self._next_row_s(), float(repairs.min(initial=np.inf)))

    def apply_next_event(self, now: float) -> None:
        """Apply the next event, at the time `now`."""
        if self._next_row_s() <= now:
            row = self._next_row
            self._next_row += 1
            node = int(self._events.node[row])
            state = int(self._events.state[row])
        else:
            node = int(self._random_s.argmin())
            state = DOWN if self.state[node] == UP else UP
        self._change(node, state, now)
        if self._random_s[node] <= now:
            wait = self._options.node_repair_s
            if state == UP:
                wait = float(self._draw_lifetimes(np.array([node]))[0])
            self._random_s[node] = now + wait
        self.next_event_s = self._find_next_event()

    def spans(self, now: float) -> list[tuple[int, int, float, float]]:
        """Return (node, state, from_s, to_s) of all nodes until now, by node and time."""
        current = zip(
            range(len(self.state)), self.state.tolist(), self._since_s.tolist(), strict=True
        )
        return sorted([*self.states, *((n, s, since, now) for n, s, since in current)])

    def _change(self, node: int, state: int, now: float) -> None:
        if state == self.state[node]:
            return
        self.states.append((node, int(self.state[node]), float(self._since_s[node]), now))
        self.failures[node] += state == DOWN
        self.state[node], self._since_s[node] = state, now

    def _next_row_s(self) -> float:
        """Return the time of the next row of node_events.csv, inf if there is none."""
        at_s = self._events.at_s
        return float(at_s[self._next_row]) if self._next_row < len(at_s) else np.inf

    def _draw_lifetimes(self, nodes: Ints) -> Floats:
        """Return the seconds until each of the nodes, which are up, fails."""
        draws = random_numbers.exponential(
            self._options.seed, random_numbers.NODE, nodes, self.failures[nodes]
        )
        lifetimes: Floats = draws * HOUR / self._options.failures_per_node_hour
        return lifetimes
