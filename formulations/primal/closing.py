"""Close the gap between a plan and the bound of the prices by branch and bound.

Every step searches the plans of some columns (formulations/branching/branch_and_bound.py):

1. few groups, those nearest to a change, may change; all others keep their columns
2. more groups may
3. all columns of plans above the value that is enough are searched, for a short time, which is
   the proof if the search ends
4. if it does not, the caller asks a solver about the columns of all better plans if they are few,
   or else about the groups nearest to a change
5. if every column uses one row: drawn rows are emptied and filled again
   (formulations/primal/knapsacks.py)
6. groups drawn at random may change, more often those that are near to a change or
   lose much, as many as can be searched, or where that fails sums of combinations
   (formulations/primal/sums.py), as long as this finds better plans
7. step 3 again, for a longer time

The better the plan, the fewer columns has the proof. Steps 5 and 6 are large neighbourhood search
(Shaw, "Using constraint programming and local search methods to solve vehicle routing problems",
1998).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from formulations.bounds.lagrangian import Dual
from formulations.branching.branch_and_bound import is_ready, search_plans
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Ints
from formulations.primal.knapsacks import Knapsacks
from formulations.primal.moves import Losses
from formulations.primal.sums import find_sum

GROUPS = (100, 400)  # that may change in the first steps
# of a search for plans, and of the proof: columns times steps of the simplex method
FIRST, LAST = 2e7, 2e8
NEIGHBOURHOOD = 1e6  # the same, of a search of groups that are drawn
PATIENCE = 600  # searches that may find nothing, or as many as were made before the last success
FEWEST = 5.0  # groups that are drawn
AIM = 0.25  # of the loss that a better plan may have, the share that the first sum may have
SUM = 12  # searches that have to fail before sums are tried
SUMMED = 400.0  # groups that are drawn for a sum
EMPTIED = 0.6  # share of the rows that are emptied and filled again
LONG = 0.3  # seconds that have to be left for a sum
LITTLE = 20  # with so few open groups the best plan is found, whatever gap is enough
EXACT = 1e-9  # relative gap that counts as none

Report = Callable[[str, float, float], None]
Ask = Callable[[Ints], tuple[Ints, float]]


def close_gap(
    c: Choices,
    dual: Dual,
    plan: Ints,
    gap: float,
    until: float = math.inf,
    bound: float = math.inf,
    report: Report | None = None,
    ask: Ask | None = None,
) -> tuple[Ints, float]:
    """Return the best plan that was found and a bound on the value of every plan.

    Where few groups can change in a better plan, the best plan of all is found and proven.

    Parameters
    ----------
    dual : Dual
        Prices, close to the best ones, with their bound.
    plan : (J,)
        A feasible plan.
    gap : float
        Relative gap that is enough.
    until : float
        Latest end (time.monotonic).
    bound : float
        No plan has a higher value, as known before.
    report : callable, optional
        It is given the name of every step, and value and bound after it.
    ask : callable, optional
        Given the best plan (J,), it returns a plan (J,), and a bound on the value of every plan.
    """
    search = Search(c, dual, plan, gap, until, min(bound, dual.bound))
    steps: list[tuple[str, Callable[[], None]]] = [
        *((f"change of {few} groups", partial(search.change_few_groups, few)) for few in GROUPS),
        ("all better plans", partial(search.prove, FIRST)),
        *((("solver", partial(search.ask, ask)),) if ask is not None else ()),
        ("rows as knapsacks", search.fill_rows),
        ("neighbourhoods", search.improve),
        ("all better plans again", partial(search.prove, LAST)),
    ]
    for name, step in steps:
        if search.is_closed() or time.monotonic() >= until:
            break
        if name == "solver" or search.may_go_on():
            step()
            if report is not None:
                report(name, search.value, search.bound)
    return search.plan, max(search.bound, search.value)


class Search:
    """The best plan, the bound on all plans, and what columns lose."""

    pace = EXACT  # most seconds for a column and a step, of searches that were not finished

    def __init__(
        self, c: Choices, dual: Dual, plan: Ints, gap: float, until: float, bound: float
    ) -> None:
        self.c, self.dual, self.plan, self.until, self.bound = c, dual, plan, until, math.inf
        self.value, self.unit = c.value_of(plan), c.value_unit
        self.tighten(bound)
        self.losses, self.compiled = Losses.of(c, dual), True
        # a better plan is better by a unit of the values at least
        least = (1 - EXACT) * self.unit / max(abs(self.value), abs(self.bound), EXACT)
        self.gap = max(least, 0.0 if len(self.find_open(self.value)) <= LITTLE else gap)

    @property
    def enough(self) -> float:
        """The bound that proves the gap of the plan."""
        return self.value + self.gap * abs(self.value)

    def is_closed(self) -> bool:
        """Return whether the gap is proven."""
        return self.bound <= self.value + max(self.gap * (1 + EXACT), 2 * EXACT) * abs(self.value)

    def may_go_on(self) -> bool:
        """Return whether a search can begin: few groups are open, or the loops are compiled."""
        is_quick = len(self.find_open(self.enough)) <= LITTLE
        # a new process searches few groups sooner than it loads the compiler
        self.compiled = (not is_quick or "numba" in sys.modules) and is_ready()
        return is_quick or self.compiled

    def find_open(self, value: float) -> Ints:
        """Return the groups that can change in a plan above a value, or have to."""
        return np.flatnonzero(self.losses.changes(self.c, self.plan, value)[1])

    def change_few_groups(self, groups: int) -> None:
        """Find a better plan that differs in few groups."""
        if len(self.find_open(self.enough)) > 2 * groups:
            loss = self.losses.of_change(self.c, self.plan)
            self.search(*self.near(np.argsort(loss, kind="stable")[:groups]), FIRST)

    def ask(self, ask: Ask) -> None:
        """Take the plan and the bound of a solver."""
        plan, bound = ask(self.plan)
        self.take(plan)
        self.tighten(bound)

    def improve(self) -> None:
        """Find better plans in drawn groups, or as sums if that fails, while some are found."""
        random, size, aim = np.random.default_rng(0), 4 * FEWEST, AIM
        tried = last = failed = 0
        while tried - last <= max(PATIENCE, last) and time.monotonic() < self.until:
            open_, before = self.find_open(self.enough), self.value
            if self.is_closed() or len(open_) <= LITTLE:
                return
            is_sum = failed >= SUM and time.monotonic() < self.until - LONG
            groups = self.draw(open_, SUMMED if is_sum else size, random)
            near = self.near(groups)
            if is_sum:
                self.take(
                    find_sum(self.c, self.dual.prices, self.losses, near, before, aim, random)
                )
                aim = aim / 2 if self.value > before else min(1.0, aim * 1.5)
            else:
                bound = self.search(*near, NEIGHBOURHOOD)
                if len(groups) == len(open_):
                    self.tighten(max(bound, self.enough))
                size = max(FEWEST, size * (1.02 if bound <= self.enough else 0.97))
            tried += 1
            if self.value > before:
                last, failed = tried, SUM * is_sum
            else:
                failed = 0 if is_sum else failed + 1

    def fill_rows(self) -> None:
        """Empty rows and fill them again, where every column uses one, while this helps."""
        knapsacks = Knapsacks.of(self.c, self.dual.reduced) if self.compiled else None
        if knapsacks is None:
            return
        self.tighten(knapsacks.find_prices(self.enough, self.until))
        random, rows, failed = np.random.default_rng(0), np.arange(self.c.R), 0
        some = rows
        while failed < 4 * self.c.R and not self.is_closed() and time.monotonic() < self.until:
            before = self.value
            # another plan of the same value leads to others, too
            self.take(knapsacks.dive(some, self.plan, before - EXACT * abs(before), self.until))
            failed = 0 if self.value > before else failed + 1
            some = random.permutation(rows)[: round(EMPTIED * self.c.R)]

    def draw(self, open_: Ints, size: float, random: np.random.Generator) -> Ints:
        """Draw groups, more often those that are near to a change or lose much."""
        loss = np.maximum(self.losses.of_change(self.c, self.plan)[open_], 0.0)
        scale = np.sort(loss)[min(len(loss) - 1, int(2 * size))]
        own = self.losses.of_plan(self.plan)[open_]
        weight = np.exp(-loss / max(scale, EXACT)) + own / max(own.max(), EXACT)
        key = random.exponential(size=len(loss)) / np.maximum(weight, EXACT)
        return open_[np.argsort(key, kind="stable")[: int(size)]]

    def near(self, groups: Ints) -> tuple[Bools, Bools]:
        """Return what better plans may use in which only these groups change.

        These are columns, (n,), and groups that may hold nothing, (J,).
        """
        moves = np.zeros(self.c.J, dtype=bool)
        moves[groups] = True
        others = self.losses.of_plan(self.plan)[~moves].sum()  # what they lose, too
        near, nothing = self.losses.leaves(self.value + others)
        near, nothing = near & moves[self.c.group], nothing & moves
        near[self.plan[self.plan >= 0]] = True
        return near, nothing | (self.plan < 0)

    def prove(self, work: float) -> None:
        """Search all better plans."""
        bound = self.search(*self.losses.leaves(self.enough), work)
        self.tighten(max(bound, self.enough))

    def tighten(self, bound: float) -> None:
        """Take a bound if it is lower; where values have a unit, it is a multiple of it."""
        if self.unit and math.isfinite(bound):
            bound = self.unit * math.floor(bound / self.unit + EXACT)
        self.bound = min(self.bound, bound)

    def search(self, near: Bools, nothing: Bools, work: float) -> float:
        """Search the plans of some columns, (n,), and nothings, (J,); return their bound."""
        begin, columns = time.monotonic(), 1 + np.count_nonzero(near)
        steps = int(min(work, (self.until - begin) / self.pace) / columns)
        prices, value = self.dual.prices, self.value
        ended = search_plans(self.c, near, nothing, value, self.gap, prices, steps, self.compiled)
        if ended is None:
            return math.inf
        if ended.steps >= steps > 0:
            self.pace = max(self.pace, (time.monotonic() - begin) / (steps * columns))
        self.take(ended.plan)
        return ended.bound

    def take(self, plan: Ints | None) -> None:
        """Take a plan if it is not worse."""
        if plan is not None and self.c.value_of(plan) >= self.value and self.c.feasible(plan):
            self.plan, self.value = plan, self.c.value_of(plan)
