"""A tighter bound: rows that concern few groups (a tenant's quota) are kept instead of priced.

L(p) adds p_r for every unit that a plan leaves unused in row r, but some units cannot be used: a
tenant with three large jobs does not fill its quota exactly. Let blocks q be disjoint sets of
groups, each with one row that touches groups of the block only and has coefficients k_c, whole
multiples of a unit (GPUs; cents). At prices p any plan loses against L(p) at least

    delta_q = min over choices of block q with low <= u <= high, u = sum of their k:
                  sum of losses  +  sum_{rows r with coefficients k} (rent_r - p_r u)

so L(p) - sum_q delta_q is a bound. delta_q is a multiple-choice knapsack over sums u (Kellerer,
Pferschy and Pisinger 2004, section 11.5). It is small because only columns of loss below the cost
of a known plan matter. This is a partial dualisation; prices alone give a weaker bound (Geoffrion
1974, integrality property).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from formulations.bounds.lagrangian import Dual, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.ragged import begins_run
from formulations.model.sparse_rows import SparseRows

UNITS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
# Largest product of states and columns of one block. Larger blocks use only columns of little loss,
# which gives a weaker delta.
WORK = 4_000_000


@dataclass(frozen=True)
class TighterBound:
    """A bound L(p) - sum of deltas.

    Attributes
    ----------
    bound : float
        The bound.
    credit : (J,)
        Delta of the group's block, 0 outside of blocks.
    choice : (J,)
        The plan with the best choice of each block that was solved; it may break the rows between
        blocks.
    """

    bound: float
    credit: Floats
    choice: Ints


@dataclass(frozen=True)
class _Block:
    row: int
    rows: Ints  # all rows with the same coefficients, `row` among them
    groups: Ints
    unit: float  # coefficients are whole multiples of it


def tighten_bound(
    choices: Choices, dual: Dual, plan: Ints, enough: float, deadline: float
) -> TighterBound:
    """Subtract from L of `dual` the deltas of the blocks that cost the plan most.

    It stops when the bound is <= enough, when the remaining blocks cost nothing, or at the deadline
    (time.monotonic). The plan must be feasible.
    """
    c = choices
    p = project_prices(c, dual.prices)
    loss = np.maximum(np.repeat(dual.reduced, np.diff(c.start)) - (c.value - c.matrix @ p), 0.0)
    lost = np.where(plan >= 0, np.append(loss, 0.0)[plan], dual.reduced)
    rent = _rent(c, p, c.use_of(plan))
    credit = np.zeros(c.J)
    bound = dual.bound
    choice = plan.copy()
    a = c.matrix.transpose()
    rows = _candidates(c, a, rent)
    blocks = max(
        (_blocks(c, rows, share) for share in (0.5, 1.0)),
        key=lambda bs: sum(rent[b.row] for b in bs),
    )
    costs = [float(lost[b.groups].sum() + rent[b.rows].sum()) for b in blocks]
    scale = abs(dual.bound) + 1e-300
    for i in np.argsort(costs)[::-1]:
        if bound <= enough or costs[i] <= 1e-9 * scale or time.monotonic() >= deadline:
            break
        b = blocks[i]
        delta, chosen = _delta(c, a, p, loss, dual, b, costs[i] * (1 + 1e-9))
        if chosen is not None:
            choice[b.groups] = chosen
        delta -= 1e-10 * (
            delta + float(np.abs(p[b.rows] * np.nan_to_num(c.high[b.rows], posinf=0.0)).sum())
        )
        if delta > 0:
            credit[b.groups] = delta
            bound -= delta
    return TighterBound(bound, credit, choice)


def _rent(c: Choices, p: Floats, use: Floats) -> Floats:
    """Return the price of a plan's unused (or missing) units of each row, (R,).

    It is >= 0 if the plan is feasible.
    """
    edge = np.where(p > 0, c.high, np.where(p < 0, c.low, use))
    return np.asarray(np.maximum(p * (edge - use), 0.0), dtype=np.float64)


def _candidates(c: Choices, a: SparseRows, rent: Floats) -> list[_Block]:
    """List rows with a cost and with positive coefficients of one unit, the most wasteful first."""
    mark = np.random.default_rng(0).random(c.n)
    prints = a @ mark  # equal rows have equal fingerprints
    found = []
    for r in np.argsort(-rent, kind="stable"):
        columns, k = a.entries_of(int(r))
        if rent[r] <= 0:
            break
        unit = unit_of(k)
        if unit:
            alike = [
                int(s)
                for s in np.flatnonzero(prints == prints[r])
                if all(
                    np.array_equal(x, y)
                    for x, y in zip(a.entries_of(int(s)), (columns, k), strict=True)
                )
            ]
            group = c.group[columns]
            found.append(_Block(int(r), np.array(alike), group[begins_run(group)], unit))
    return found


def unit_of(k: Floats) -> float:
    """Return the largest of UNITS that divides all positive coefficients, else 0."""
    if not len(k) or not (k > 0).all():
        return 0.0
    return next((u for u in UNITS if _are_multiples(k[:100], u) and _are_multiples(k, u)), 0.0)


def _are_multiples(k: Floats, u: float) -> bool:
    return bool((np.abs(k / u - np.rint(k / u)) <= 1e-12 * k / u).all())


def _blocks(c: Choices, rows: list[_Block], share: float) -> list[_Block]:
    """Select rows of up to a share of the groups, in order, so that no group is in two blocks.

    With share 1 that may be one pool.
    """
    taken = np.zeros(c.J, dtype=bool)
    blocks = []
    for b in rows:
        # the budget of all jobs in cents has too many sums
        few = share if b.unit == 1.0 else min(share, 0.5)
        if len(b.groups) <= few * c.J and not taken[b.groups].any():
            blocks.append(b)
            taken[b.groups] = True
    return blocks


def _delta(
    c: Choices, a: SparseRows, p: Floats, loss: Floats, dual: Dual, b: _Block, most: float
) -> tuple[float, Ints | None]:
    """Return delta of a block whose best known choice costs `most`, and the columns that attain it.

    The columns are (groups of the block,). The result is smaller than delta if the knapsack is too
    large.
    """
    # bounds carry the model's tolerance of 1e-9, more than the rounding errors of sums of multiples
    # of a unit
    low = float(np.ceil(c.low[b.rows].max() / b.unit - 1e-6))
    high = float(np.floor(c.high[b.rows].min() / b.unit + 1e-6))
    columns = c.columns_of(b.groups)
    cheap = np.flatnonzero(loss[columns] <= most)
    columns = columns[cheap]
    k = np.zeros(len(cheap))
    touching, size = a.entries_of(b.row)
    near = np.flatnonzero(loss[touching] <= most)
    k[np.searchsorted(columns, touching[near])] = np.rint(size[near] / b.unit)
    nothing = np.flatnonzero(~c.mandatory[b.groups] & (dual.reduced[b.groups] <= most))
    owner = np.searchsorted(b.groups, c.group[columns])
    items = _Items(
        np.concatenate([owner, nothing]),
        np.concatenate([k, np.zeros(len(nothing))]).astype(np.int64),
        np.concatenate([loss[columns], dual.reduced[b.groups][nothing]]),
        np.concatenate([columns, np.full(len(nothing), -1)]),
    )
    if not np.isfinite(high):
        high = items.largest()
    limit = most
    while items.work(high) > WORK:
        limit *= 0.5
        if limit < 1e-12 * most:
            return 0.0, None
        items = items.take(np.flatnonzero(items.cost <= limit))
    best, picks = _knapsack(items.tidy(), int(high))
    u = b.unit * np.arange(len(best))
    total = np.where(np.arange(len(best)) >= low, best, np.inf)
    for r in b.rows[p[b.rows] != 0]:
        total += np.maximum(p[r] * ((c.high if p[r] > 0 else c.low)[r] - u), 0.0)
    at = int(np.argmin(total))
    if not np.isfinite(total[at]):
        return limit, None
    return float(min(total[at], limit)), _trace(picks, at, len(b.groups))


@dataclass(frozen=True)
class _Items:
    """Entries of a multiple-choice knapsack: owner, size k, cost, and column (-1 = nothing)."""

    owner: Ints
    k: Ints
    cost: Floats
    column: Ints

    def take(self, at: Ints) -> _Items:
        return _Items(self.owner[at], self.k[at], self.cost[at], self.column[at])

    def tidy(self) -> _Items:
        """Sort by owner and size, and keep only the cheapest of equal sizes."""
        near = self.take(np.lexsort((self.cost, self.k, self.owner)))
        return near.take(np.flatnonzero(begins_run(near.owner, near.k)))

    def work(self, high: float) -> float:
        """Return columns x states of the knapsack."""
        count = np.bincount(self.owner, minlength=int(self.owner.max(initial=-1)) + 1)
        alone = count[self.owner] == 1
        return float((~alone).sum()) * max(0.0, high + 1 - float(self.k[alone].sum()))

    def largest(self) -> float:
        """Return the sum of the owners' largest sizes."""
        top = np.zeros(int(self.owner.max(initial=-1)) + 1)
        np.maximum.at(top, self.owner, self.k)
        return float(top.sum())


_Stage = tuple[_Items, Ints]  # entries of one owner; per state the entry that reached it


def _knapsack(items: _Items, high: int) -> tuple[Floats, list[_Stage]]:
    """Return the least cost of one entry per owner with sum of k equal to u, for u = 0 .. high.

    It is inf where impossible. The second result serves to trace the entries back. Owners with one
    entry only shift the sums; they come first.
    """
    if not len(items.owner):
        return np.append(0.0, np.full(high, np.inf)), []
    first = np.flatnonzero(begins_run(items.owner))
    bounds = np.append(first, len(items.owner))
    single = np.diff(bounds) == 1
    alone = items.take(first[single])
    shift = int(alone.k.sum())
    if shift > high:
        return np.full(high + 1, np.inf), []
    state = np.full(high + 1 - shift, np.inf)
    state[0] = alone.cost.sum()
    stages: list[_Stage] = [(alone, np.zeros(0, dtype=np.int64))]
    for a, e in zip(bounds[:-1][~single], bounds[1:][~single], strict=True):
        own = items.take(np.arange(a, e))
        new = np.full(len(state), np.inf)
        pick = np.full(len(state), -1)
        for n, (size, price) in enumerate(zip(own.k.tolist(), own.cost.tolist(), strict=True)):
            if size < len(state):
                reached = state[: len(state) - size] + price
                better = reached < new[size:]
                new[size:][better] = reached[better]
                pick[size:][better] = n
        state = new
        stages.append((own, pick))
    return np.concatenate([np.full(shift, np.inf), state]), stages


def _trace(stages: list[_Stage], u: int, groups: int) -> Ints:
    """Return the columns (groups,) that reach the sum u."""
    chosen = np.full(groups, -1)
    if not stages:
        return chosen
    alone, _ = stages[0]
    chosen[alone.owner] = alone.column
    u -= int(alone.k.sum())
    for own, pick in reversed(stages[1:]):
        n = pick[u]
        chosen[own.owner[n]] = own.column[n]
        u -= int(own.k[n])
    return chosen
