"""Free capacity under every hard rule while a plan is filled job by job.

The rules are the rows of the round's model (formulations/model/single_round.py). Heuristics read
single numbers thousands of times in a round. They read them through `array.data`, whose items are
plain Python numbers. That costs a tenth of numpy scalars, and options that are never read are not
converted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from allocator.options.instance_building import CompiledRound
from formulations.model.linear import (
    CAPACITY,
    CHURN,
    COLOCATION,
    GUARANTEE,
    LEAVING,
    REQUESTED,
    TAKEOVER,
    Bools,
    Ints,
)

ROUNDING = 1e-9  # GPUs that sums of shares may miss by


class FreeCapacity:
    """What is left under every rule, and the plan so far.

    No change may take a row further beyond its bounds: a job never gives up GPUs that its tenant is
    owed. The limit on changes counts only if the plan starts from another plan. A plan from nothing
    is checked when it is complete.

    Attributes
    ----------
    round : CompiledRound
        The round.
    pinned : (J,)
        Jobs that keep what they hold; by default those that must.
    choice : (J,)
        Columns of the round's instance, -1 = nothing.
    free : (P,)
        Free GPUs.
    """

    def __init__(
        self, round_: CompiledRound, start: Ints | None = None, pinned: Bools | None = None
    ) -> None:
        i, c = round_.instance, round_.choices
        self.round = round_
        self.pinned: Bools = i.mandatory if pinned is None else pinned
        self.choice: Ints = np.full(c.J, -1) if start is None else start.copy()
        self._now = self.choice.data
        use = c.use_of(self.choice)
        self._use: list[float] = use.tolist()
        self.free: list[float] = (i.capacity - use[: len(i.capacity)]).tolist()
        matrix = c.matrix
        self._entries = (matrix.indptr.data, matrix.indices.data, matrix.data.data)
        rows = {kind: c.model.rows_of(kind)[c.rows] for kind in (CHURN, GUARANTEE)}
        low = np.where(rows[CHURN], -np.inf, c.low) if start is None else c.low
        self._low: list[float] = low.tolist()
        self._high: list[float] = c.high.tolist()
        self._guarantees = dict(
            zip(np.flatnonzero(rows[GUARANTEE]).tolist(), np.flatnonzero(i.guarantee), strict=True)
        )
        self._guarantee = i.guarantee
        of_place = c.model.rows_of(CAPACITY, REQUESTED, LEAVING, COLOCATION, TAKEOVER)[c.rows]
        self._of_place = set(np.flatnonzero(of_place).tolist())

    @property
    def is_full(self) -> bool:
        """Whether no GPU is free."""
        return not any(self.free)

    def waiting(self, order: Ints) -> list[int]:
        """Return the jobs of `order` (k,) that have no option in the plan so far."""
        waiting: list[int] = order[self.choice[order] < 0].tolist()
        return waiting

    def movable(self, order: Ints) -> Ints:
        """Return the jobs of `order` (k,) that have an option in the plan and need not keep it."""
        return order[(self.choice[order] >= 0) & ~self.pinned[order]]

    @property
    def owed(self) -> Ints:
        """GPUs that each guarantee still lacks, (K,), 0 where it lacks none."""
        lacks = np.zeros(len(self._guarantee), dtype=np.int64)
        for r, k in self._guarantees.items():
            lacks[k] = max(0, self._guarantee[k] - round(self._use[r]))
        return lacks

    def assign(self, j: int, o: int) -> bool:
        """Give job j the option o instead of its present one.

        Return False, without a change, on a conflict.
        """
        old = self._now[j]
        return o >= 0 if old == o else self._replace(j, old, o)

    def withdraw(self, j: int) -> bool:
        """Take from job j what it has; return False, without a change, if a rule forbids it."""
        return self._now[j] < 0 or self._replace(j, self._now[j], -1)

    def assign_first(self, j: int, options: Iterable[int]) -> bool:
        """Give job j the first of the options that fits; return False if none does."""
        return any(self.assign(j, o) for o in options)

    def can_afford(self, o: int) -> bool:
        """Return whether quotas and budgets allow option o of a job that has nothing.

        Neither GPUs of the pool nor other jobs on the same GPUs are checked.
        """
        return all(
            r in self._of_place or self._use[r] + amount <= self._high[r]
            for r, amount in self._entries_of(o)
        )

    def owes(self, o: int) -> bool:
        """Return whether option o counts for a guarantee that is not met."""
        return any(
            r in self._guarantees and self._use[r] < self._low[r] for r, _ in self._entries_of(o)
        )

    def needs(self, o: int) -> bool:
        """Return whether a guarantee would not be met without option o of the plan."""
        return any(
            r in self._guarantees and self._use[r] - amount < self._low[r]
            for r, amount in self._entries_of(o)
        )

    def has_secondary(self, o: int) -> bool:
        """Return whether a job runs on the GPUs of option o of the plan."""
        return any(amount < 0 and self._use[r] > -0.5 for r, amount in self._entries_of(o))

    def copy(self) -> FreeCapacity:
        """Return the same state with a plan of its own."""
        other = copy.copy(self)
        other.choice = self.choice.copy()
        other._now = other.choice.data
        other._use, other.free = list(self._use), list(self.free)
        return other

    def _entries_of(self, o: int) -> Iterable[tuple[int, float]]:
        """Return the rows that an option uses, and how much of each."""
        first, row, amount = self._entries
        at = slice(first[o], first[o + 1])
        return zip(row[at], amount[at], strict=True)

    def _replace(self, j: int, old: int, o: int) -> bool:
        """Give job j option o in place of old (-1 = nothing), unless that breaks a rule."""
        use = self._use
        change = dict(self._entries_of(o)) if o >= 0 else {}
        for r, amount in self._entries_of(old) if old >= 0 else ():
            change[r] = change.get(r, 0.0) - amount
        for r, amount in change.items():
            if (amount > 0 and use[r] + amount > self._high[r]) or (
                amount < 0 and use[r] + amount < self._low[r]
            ):
                return False
        for r, amount in change.items():
            use[r] += amount
            if r < len(self.free):  # the rows of pools come first
                self.free[r] -= amount
        self._now[j] = o
        return True


def keeps_rules(round_: CompiledRound, choice: Ints, guarantees: bool = True) -> bool:
    """Return whether a choice (J,) keeps every hard rule.

    With guarantees=False guarantees are not checked.
    """
    c = round_.choices
    if not guarantees:
        c = replace(c, low=np.where(c.model.rows_of(GUARANTEE)[c.rows], -np.inf, c.low))
    return c.feasible(choice)
