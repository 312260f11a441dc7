"""Close the gap between a plan and the bound of the prices, without a solver.

    branch and bound
    rows of few groups -> near ties -> partial plans, more and more of them -> branch and bound

With few groups the first line comes first (formulations/branching/branch_and_bound.py), unless very
few of them are open: then the second is faster, and the gap that is enough is 0. It is also the way
of many groups, and where branch and bound is not compiled.

1. Where few rows have a price, all plans are searched at once, with exact counts of these rows
   (formulations/primal/path_search.py). Either there is none above the value that is enough, which
   is the proof, or a better plan is found.
2. The rows of few groups are kept (formulations/bounds/blocks.py): first only those choices of a
   block that lose little at the prices. The bound falls, and good choices of all blocks are put
   together to a plan. If that is not enough, the other rows are priced again. The better bound and
   plan are, the fewer columns a still better plan can use. At last all choices of blocks that a
   better plan may have are searched together, as in step 1.
3. The groups nearest to a change are decided again, all others keep their columns.
4. With few groups, all plans are searched with exact counts of all rows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.blocks import (
    BlockBound,
    bound_all_plans,
    evaluate_blocks,
    find_losses,
    minimise_block_bound,
)
from formulations.bounds.diagram_building import Nearness, build_diagrams
from formulations.bounds.diagrams import Diagrams
from formulations.bounds.kept_rows import find_priced
from formulations.bounds.knapsacks import tighten_bound
from formulations.bounds.lagrangian import Dual, evaluate, project_prices
from formulations.branching.branch_and_bound import is_ready, search_plans
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import starts
from formulations.primal.block_plans import find_block_plan
from formulations.primal.partial_plans import Found, Losses, find_better_plan, improve_near_ties
from formulations.primal.path_search import find_path_plan
from formulations.primal.rounding import fill, repair

COUNTED = 6  # rows with a price that are counted at once
BRANCHED = 15  # rows with a price with which branch and bound comes at once
KEPT = 200  # partial plans that are kept at once to improve a plan
DENSE = 5_000  # states of a search from which on a better plan is looked for first
WIDTH = 20_000  # partial plans that a search keeps at once
# groups that may change before a search, and the most open groups x rows of the search
SEARCHES = ((40, 8_000), (80, 20_000))
MOST = 200_000  # a search that kept more partial plans in all is the last one
EXACT = 1e-9  # relative gap that counts as none
MORE = 1 + 1e-9  # times the difference to a value: what a plan above this value does not lose
LITTLE = 20  # with so few open groups the best plan is found, whatever gap is enough
FEW = 200  # with more groups, near ties come first where that loses little of the gap
MANY = 40_000  # columns of a better plan from which on no rows are kept
TURNS = 6  # of keeping rows
PAYS = 0.1  # share of the gap that keeping rows has to close
SHARE = 0.2  # of the gap, lost where rows can be kept, for which they are kept at once
LITTLE_GAIN = 0.02  # share of the gap; a bound that fell by less gives no better plan
WIDER = 0.3  # asked gaps that a choice of a block may lose at the prices ...
LEAST = 0.02  # ... or this share of the gap, where no gap is asked for ...
COLUMNS = 3  # ... or as much as so many columns of each group, on average, lose at most
CLOSE = 1.5  # asked gaps from which on all choices are looked at
# steps of branch and bound: with many groups, at first with few, and at last
QUICK_STEPS, FIRST_STEPS, STEPS = 3_000, 5_000, 30_000


def close_gap(
    c: Choices,
    dual: Dual,
    plan: Ints,
    gap: float,
    until: float = math.inf,
    bound: float = math.inf,
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
    """
    bound = min(bound, dual.bound)
    if c.J > FEW and bound - c.value_of(plan) <= gap * abs(c.value_of(plan)):
        return plan, bound  # to count the open groups would cost more than it may bring
    search = _Closing(c, dual, plan, gap, until)
    search.bound = bound
    if search.has_few_open():
        search.gap = 0.0
    search.close()
    if search.is_closed() and search.has_few_open():
        search.gap = 0.0
        search.close()
    return search.plan, max(search.bound, search.value)


def find_columns_of_better_plans(
    c: Choices, dual: Dual, plan: Ints, until: float = math.inf
) -> tuple[Ints, Ints]:
    """Return a plan that is not worse, and its columns and all that a still better one may use.

    Rows of few groups are kept for that. The parameters are those of `close_gap`.
    """
    search = _Closing(c, dual, plan, 0.0, until)
    search.keep_rows()
    near, _ = search.losses.leaves(search.value - EXACT * abs(search.value))
    near[search.plan[search.plan >= 0]] = True
    return search.plan, np.flatnonzero(near)


class _Closing:
    """The best plan, the bound on all plans, and what columns lose against it."""

    def __init__(self, c: Choices, dual: Dual, plan: Ints, gap: float, until: float) -> None:
        self.c, self.dual, self.plan, self.gap, self.until = c, dual, plan, gap, until
        self.value = c.value_of(plan)
        self.bound = dual.bound
        self.priced = self.losses = Losses.of(c, dual)  # `priced` are those of the given prices
        self._is_wide = c.J <= FEW
        self._is_loaded = False  # whether branch and bound was used before
        self._in_vain = 2 * c.n  # columns for which keeping rows did not pay

    @property
    def enough(self) -> float:
        """The bound that proves the gap of the plan."""
        return self.value + self.gap * abs(self.value)

    def is_closed(self) -> bool:
        """Return whether the gap is proven."""
        return self.bound <= self.value + max(self.gap * (1 + EXACT), EXACT) * abs(self.value)

    def has_few_open(self) -> bool:
        """Return whether few groups can change in a better plan."""
        near, nothing = self.losses.leaves(self.value)
        count = np.bincount(self.c.group[near], minlength=self.c.J) + nothing
        return bool(np.count_nonzero(count > 1) <= LITTLE)

    def close(self) -> None:
        """Close the gap, as far as it can be closed."""
        is_small = self.c.J <= FEW
        if self._is_to_branch():
            self.branch_and_bound(FIRST_STEPS)
        priced = np.count_nonzero(self.dual.prices)
        if not is_small and priced <= BRANCHED:
            self._improve(SEARCHES[0][0])
            self.branch_and_bound(QUICK_STEPS)
        if not is_small and priced <= COUNTED:
            self._count_rows()
        if is_small or self._is_lost_in_blocks():
            self.keep_rows()
        self.search()
        self.branch_and_bound(STEPS)

    def _is_to_branch(self) -> bool:
        """Return whether branch and bound comes before other searches.

        With few open groups these take less time than to load it.
        """
        return self.c.J <= FEW and (self._is_loaded or not self.has_few_open())

    def branch_and_bound(self, steps: int) -> None:
        """Search all better plans by branch and bound, if it is compiled."""
        if self.is_closed() or time.monotonic() >= self.until or not is_ready():
            return
        self._is_loaded = True
        near, nothing = self.losses.leaves(self.enough)
        prices = self.losses.prices
        found = search_plans(self.c, near, nothing, self.value, self.gap, prices, steps)
        if found is not None:
            self.bound = min(self.bound, max(found.bound, self.enough))
            self.offer(found.plan)

    def _count_rows(self) -> None:
        """Search all plans, and count every row with a price."""
        for _ in range(TURNS):
            before, few = self.value, self._take_open()
            if few is None:
                return
            diagrams = Diagrams.without_rows(few.view)
            best = evaluate_blocks(few.view, diagrams, self.dual.prices)
            self._search_paths(few, diagrams, best, self.enough)
            if self.value == before:
                return

    def _is_lost_in_blocks(self) -> bool:
        """Return whether the plan loses much of the gap where rows with a price can be kept."""
        c, prices = self.c, self.losses.prices
        p, dual = project_prices(c, prices), evaluate(c, prices)
        reduced = np.append(c.value - c.matrix @ p, 0.0)
        edge = np.where(p > 0, c.high, np.where(p < 0, c.low, 0.0))
        group = np.maximum(dual.reduced - reduced[self.plan], 0.0)
        row = np.maximum(p * (edge - c.use_of(self.plan)), 0.0)
        rows, groups = find_priced(c, prices)
        lost = row[rows].sum() + group[groups].sum()
        return bool(lost > SHARE * (row.sum() + group.sum()))

    def offer(self, plan: Ints | None) -> None:
        """Take a plan if it is better."""
        if plan is not None and self.c.value_of(plan) > self.value and self.c.feasible(plan):
            self.plan, self.value = plan, self.c.value_of(plan)

    def keep_rows(self) -> None:
        """Keep rows of few groups as long as that closes a good part of the gap."""
        for turn in range(TURNS):
            before, enough, value = self.bound - self.value, self.enough, self.value
            few = self._take_open()
            if few is None or (turn == 0 and 2 * len(few.columns) > self._in_vain):
                return
            near = self._nearness()
            is_wide, self._is_wide = near.more >= near.most, True
            diagrams = self._build(few.view, near)
            if diagrams is None:
                return
            first = evaluate_blocks(few.view, diagrams, self.dual.prices)
            bound, reserve = bound_all_plans(diagrams, first)
            self.bound = min(self.bound, max(bound, self.enough))
            gained = before - (self.bound - self.value)
            # the first time it is only tried
            is_trial = turn == 0 and self.c.J <= FEW and self._in_vain > self.c.n
            if is_trial and gained < PAYS * before and not self.is_closed():
                self._in_vain = len(few.columns)
                return
            certain = max(enough, reserve)
            puts = turn == 0 or self.c.J <= FEW
            if puts and gained > LITTLE_GAIN * before:
                self._put_together(few, diagrams, first)
            if self.is_closed():
                return
            best = minimise_block_bound(few.view, diagrams, first.prices, certain, self.until)
            self._find_losses(few, diagrams, best, enough, certain)
            if puts and not self.is_closed():
                self._put_together(few, diagrams, best)
            if is_wide:
                self._search_paths(few, diagrams, best, certain)
                if self.bound - self.value > 0.7 * before and self.value == value:
                    return

    def _take_open(self) -> _Columns | None:
        """Return the columns of plans above the value that is enough.

        None stands for no such plan, for too many columns, and for an end of the search.
        """
        near, nothing = self.losses.leaves(self.enough)
        is_over = self.is_closed() or time.monotonic() >= self.until
        if is_over or np.count_nonzero(near) > MANY:
            return None
        if not (nothing | (np.bincount(self.c.group[near], minlength=self.c.J) > 0)).all():
            self.bound = min(self.bound, self.enough)
            return None
        return _Columns.of(self.c, near, nothing, self.plan)

    def _build(self, view: Choices, near: Nearness) -> Diagrams | None:
        """Return diagrams, None if they are of no use.

        Rows without a price make the search of all paths longer, so they are not kept for it.
        """
        is_wide = near.more >= near.most and self.c.J > FEW
        wanted = self.dual.prices[self.c.rows] != 0 if is_wide else None
        diagrams = build_diagrams(view, near, wanted)
        if diagrams is None or diagrams.has_path.all():
            return diagrams
        if (diagrams.left_out[~diagrams.has_path] == -np.inf).any():
            self.bound = min(self.bound, self.enough)
        return None

    def _search_paths(
        self, few: _Columns, diagrams: Diagrams, best: BlockBound, certain: float
    ) -> None:
        """Search the paths of diagrams (formulations/primal/path_search.py).

        Where they are too many a better plan is looked for, because above it there are fewer.
        """
        before, least = self.value, max(self.enough, certain)
        # first only plans that would close the gap at once
        first = best.bound - self.gap * abs(self.value)
        targets = [least] if self.c.J <= FEW or first <= least else [first, least]
        for target in targets:
            if self.bound > target:
                found = self._find_path_plan(few, diagrams, best, target, WIDTH)
                self.bound = min(self.bound, max(found.bound, target))
                is_hard = found.bound > target or (target > least and found.kept > DENSE)
                if is_hard and self.value == before and self.c.J > FEW:
                    self._find_path_plan(few, diagrams, best, self.value, KEPT)
            if self.is_closed() or self.value > before:
                return

    def _find_path_plan(
        self, few: _Columns, diagrams: Diagrams, best: BlockBound, value: float, width: int
    ) -> Found:
        """Search the paths of plans above a value, and take the best plan."""
        found = find_path_plan(few.view, diagrams, best, value, width, self.until)
        self.offer(None if found.plan is None else few.widen(found.plan))
        return found

    def _nearness(self) -> Nearness:
        """Return which choices of blocks are looked at: those that lose little at the prices.

        With few groups, or a gap that is almost closed, these are all choices of a plan above the
        one that is enough.
        """
        prices = self.dual.prices
        most = max(0.0, evaluate(self.c, prices).bound - self.enough)
        asked = self.gap * abs(self.value)
        is_close = self._is_wide or most <= CLOSE * asked
        more = max(WIDER * asked, LEAST * most, self._loss_of(COLUMNS * self.c.J))
        return Nearness(prices, most if is_close else more, most)

    def _loss_of(self, count: int) -> float:
        """Return the loss that so many columns have at most, and one more has at least."""
        loss = self.priced.column
        return float(np.partition(loss, count)[count]) if count < len(loss) else np.inf

    def _put_together(self, few: _Columns, diagrams: Diagrams, best: BlockBound) -> None:
        """Put a plan together from good choices of blocks."""
        prices = self._with_kept_prices(diagrams, best)
        good = self.bound - self.gap * abs(self.value)
        plan = find_block_plan(few.view, diagrams, best.prices, best.bound, good, self.until)
        if plan is None:
            plan = repair(few.view, best.choice, prices, self.until)
        if plan is not None:
            full = fill(few.view, plan, prices, until=self.until, enough_value=good)
            self.offer(few.widen(full))

    def _find_losses(
        self, few: _Columns, diagrams: Diagrams, best: BlockBound, enough: float, certain: float
    ) -> None:
        """Take a bound, and what columns lose.

        All plans above `enough` have only columns of the view, and those above `certain` are in the
        diagrams.
        """
        column, nothing = find_losses(few.view, diagrams, best.prices)
        bound = max(best.bound, certain)
        more = bound - best.bound
        # a plan that is not in the diagrams may use any column of the view, and loses this
        most = (bound - certain) * MORE
        own = Losses(
            self._with_kept_prices(diagrams, best),
            bound,
            few.spread(np.minimum(column + more, most), (bound - enough) * MORE),
            np.minimum(nothing + more, most),
            False,
        )
        self.bound = min(self.bound, bound)
        self.losses = self.losses.and_also(own)

    def _with_kept_prices(self, diagrams: Diagrams, best: BlockBound) -> Floats:
        """Return the prices (m,) of a bound, and for rows that the diagrams keep those given."""
        kept = np.zeros(self.c.model.m, dtype=bool)
        kept[self.c.rows[diagrams.kept]] = True
        return np.where(kept, self.dual.prices, best.prices)

    def search(self) -> None:
        """Search plans group by group, and keep rows again where that gave a better plan."""
        for groups, largest in SEARCHES:
            if self.is_closed():
                return
            before = self.value, self.bound
            self._improve(groups)
            if self.c.J > FEW or self.value > before[0]:
                self.keep_rows()
            if self._is_to_branch():
                self.branch_and_bound(STEPS)
            is_stuck = (self.value, self.bound) == before and groups > SEARCHES[0][0]
            if self.is_closed() or is_stuck:
                return
            if self.c.J > FEW:
                continue
            enough = self.enough
            found = find_better_plan(self.c, self.losses, enough, WIDTH, self.until, largest)
            self.bound = min(self.bound, max(found.bound, enough))
            self.offer(found.plan)
            if found.kept > MOST:
                return

    def _improve(self, groups: int) -> None:
        """Decide the groups nearest to a change again, and count knapsacks at the prices."""
        if self.is_closed():
            return
        counts = self.c.J <= FEW
        self.offer(
            improve_near_ties(self.c, self.losses, self.plan, groups, KEPT, self.until, counts)
        )
        if self.losses.prices is self.dual.prices and self.bound > self.enough:
            self._count_knapsacks()

    def _count_knapsacks(self) -> None:
        """Tighten the bound by rows of few groups at the prices there are."""
        tighter = tighten_bound(self.c, self.dual, self.plan, self.enough, self.until)
        if tighter.bound >= self.bound:
            return
        # a column pays for the rows of its block already, so it gets what they took off
        column = np.maximum(self.priced.column - tighter.credit[self.c.group], 0.0)
        nothing = np.maximum(self.priced.nothing - tighter.credit, 0.0)
        self.bound = tighter.bound
        own = Losses(self.dual.prices, tighter.bound, column, nothing, False)
        self.losses = self.losses.and_also(own)


@dataclass(frozen=True)
class _Columns:
    """A model with only some of its columns, `columns` (k,) of the whole model with `n`."""

    view: Choices
    columns: Ints
    n: int

    @staticmethod
    def of(c: Choices, near: Bools, nothing: Bools, plan: Ints) -> _Columns:
        """Take the columns `near` (n,) and nothing for the groups `nothing` (J,), and a plan."""
        near, nothing = near.copy(), nothing | (plan < 0)
        near[plan[plan >= 0]] = True
        columns = np.flatnonzero(near)
        group = c.group[columns]
        view = replace(
            c,
            model=c.model.take(columns),
            start=starts(group, c.J),
            group=group,
            mandatory=~nothing,
            matrix=c.matrix[columns],
        )
        return _Columns(view, columns, c.n)

    def widen(self, choice: Ints) -> Ints:
        """Translate a choice (J,) of the view to the whole model."""
        return np.append(self.columns, -1)[choice]

    def spread(self, loss: Floats, other: float) -> Floats:
        """Translate losses (k,) to all columns, (n,), of which the others lose `other`."""
        whole = np.full(self.n, other)
        whole[self.columns] = loss
        return whole
