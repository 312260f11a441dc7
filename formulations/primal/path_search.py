"""Search the plans above a value among the paths of diagrams, and count the priced rows exactly.

At prices p for the rows that no diagram keeps, a plan of paths has the value

    L(p) - sum of what its arcs lose - sum_r |p_r| (what it leaves of row r)

where an arc loses what the longest path through it is shorter than the longest one that begins at
its node (formulations/bounds/blocks.py). All terms are at least 0. So a plan above a value loses
less than L(p) is above this value, in all arcs and rows together, and leaves next to nothing of a
row with a high price.

Partial plans are extended arc by arc, block by block. Those at the same node that leave the same of
every counted row are one state, of which the least loss counts. Rows without a price are counted
only after the best plan broke them. What the open arcs still lose at least is in a table for every
counted row alone:

    T_t(left) = min over options of step t of loss + T_{t+1}(left - use),   T_end(left) = |p_r| left

This is dynamic programming over losses against the relaxation (Martello, Pisinger and Toth 1999,
"Dynamic programming and strong bounds for the 0-1 knapsack problem"), for several rows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from formulations.bounds.blocks import BlockBound
from formulations.bounds.diagrams import Diagrams
from formulations.bounds.kept_rows import unit_of
from formulations.bounds.lagrangian import project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.model.ragged import begins_run, ragged

STATES = 100_000  # after so many states in all, few are kept at once
FEW = 200  # states that are then kept at once
PLANS = 20  # best last states of which one has to keep all rows
TURNS = 4  # of counting rows that the best plan broke
CELLS = 6_000_000  # a row whose table would have more entries has none
RATES = 2.0 ** np.arange(-4, 8)  # largest uses of an option for each limit of the losses


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    plan : (J,) or None
        The best plan above the asked value, None if none was found.
    bound : float
        No plan of the searched columns has a value above the larger of this and the asked value.
    kept : int
        Number of partial plans that were kept.
    """

    plan: Ints | None
    bound: float
    kept: int


def find_path_plan(
    c: Choices,
    diagrams: Diagrams,
    near: BlockBound,
    value: float,
    width: int,
    until: float = math.inf,
) -> Found:
    """Search all plans of paths with a value above `value`.

    Parameters
    ----------
    near : BlockBound
        The bound of the diagrams at prices close to the best ones.
    width : int
        Largest number of states that are kept at once.
    until : float
        Latest end (time.monotonic).
    """
    p = np.where(diagrams.kept, 0.0, project_prices(c, near.prices))
    magnitude = float(np.abs(p) @ c.total) + c.total_value
    margin = 1e-15 * (100 + c.J + c.R) * magnitude
    limit = near.bound - value + margin
    options = _Options.of(c, diagrams, p, limit)
    rows = [(int(r), 1 if p[r] > 0 else -1) for r in np.flatnonzero(p)]
    found = Found(None, math.inf, 0)
    for _ in range(TURNS):
        counted = _Counted.of(c, p, rows)
        if limit < counted.rent_of_rest:
            return replace(found, bound=-math.inf)
        steps = _Steps.of(c, diagrams, options, counted)
        search = _Search(c, steps, limit, width, until)
        turn = search.run(near.bound)
        plan = _better(c, found.plan, turn.plan)
        found = Found(plan, min(found.bound, turn.bound), found.kept + turn.kept)
        is_best = plan is not None and c.value_of(plan) >= found.bound - 2 * margin
        more = [row for row in search.broken if row not in rows]
        if is_best or not more:
            break
        rows += more
    return found


def _better(c: Choices, first: Ints | None, second: Ints | None) -> Ints | None:
    """Return the plan of the higher value, None if there is none."""
    plans = [plan for plan in (first, second) if plan is not None]
    return max(plans, key=c.value_of, default=None)


@dataclass(frozen=True)
class _Options:
    """What partial plans can be extended by: an arc, and a column of its sort.

    Attributes
    ----------
    block, layer, origin, to : (k,)
        Where the arc is. `to` is -1 at the end of a block, and so is `origin` at its begin.
    loss : (k,)
        What the option loses.
    group, column : (k,)
        The decision; column -1 is nothing.
    """

    block: Ints
    layer: Ints
    origin: Ints
    to: Ints
    loss: Floats
    group: Ints
    column: Ints

    @staticmethod
    def of(c: Choices, diagrams: Diagrams, p: Floats, limit: float) -> _Options:
        """Return the options of paths that lose at most `limit` at the prices p (R,)."""
        sorts = diagrams.sorts
        entry, gain = diagrams.gains(c.value - c.matrix @ p)
        best = diagrams.longest(gain)
        parts = [_Options._of_settled(c, diagrams, entry, gain, limit)]
        reached = -best[0]  # the longest path to each node, less the longest of its block
        for number, (layer, here, after) in enumerate(
            zip(diagrams.layers, best, best[1:], strict=False)
        ):
            length = reached[layer.origin] + gain[layer.sort]
            arc = np.flatnonzero(length + after[layer.to] >= -limit)
            at, place = sorts.entries_of(layer.sort[arc])
            arc = arc[at]
            less = gain[layer.sort[arc]] - entry[place]
            near = np.flatnonzero(length[arc] + after[layer.to[arc]] - less >= -limit)
            arc, place, less = arc[near], place[near], less[near]
            sort, origin, to = layer.sort[arc], layer.origin[arc], layer.to[arc]
            loss = here[origin] - gain[sort] - after[to] + less
            parts.append(
                _Options(
                    diagrams.block[sorts.owner[sort]],
                    np.full(len(arc), number),
                    origin if number else np.full(len(arc), -1),
                    to,
                    np.maximum(loss, 0.0),
                    sorts.owner[sort],
                    sorts.column[place],
                )
            )
            reached = np.full(len(after), -np.inf)
            np.maximum.at(reached, layer.to, length)
        joined = _Options(
            *map(np.concatenate, zip(*(vars(x).values() for x in parts), strict=True))
        )
        depth = np.zeros(diagrams.Q + c.J, dtype=np.int64)
        np.maximum.at(depth, joined.block, joined.layer + 1)
        is_last = joined.layer + 1 == depth[joined.block]
        return replace(joined, to=np.where(is_last, -1, joined.to))

    @staticmethod
    def _of_settled(
        c: Choices, diagrams: Diagrams, entry: Floats, gain: Floats, limit: float
    ) -> _Options:
        """Return the options of settled groups, each of which is a block of its own."""
        sorts = diagrams.sorts
        at, place = sorts.entries_of(diagrams.settled)
        sort = diagrams.settled[at]
        less = gain[sort] - entry[place]
        near = np.flatnonzero(less <= limit)
        sort, place, less = sort[near], place[near], less[near]
        none = np.full(len(sort), -1)
        owner = sorts.owner[sort]
        return _Options(
            diagrams.Q + owner,
            np.zeros_like(owner),
            none,
            none,
            less,
            owner,
            sorts.column[place],
        )


@dataclass(frozen=True)
class _Counted:
    """Rows whose use is counted in whole units, each for one of its bounds.

    Attributes
    ----------
    rows, sign : (E,), (E,)
        The rows; the sign is -1 for a lower bound.
    unit, rent : (E,), (E,)
        A unit, and the price of one that is left.
    bound : (E,)
        What may be used, in units, times the sign.
    rent_of_rest : float
        Price of what no whole units can use.
    """

    rows: Ints
    sign: Ints
    unit: Floats
    rent: Floats
    bound: Ints
    rent_of_rest: float

    @staticmethod
    def of(c: Choices, p: Floats, rows: list[tuple[int, int]]) -> _Counted:
        """Return those of some rows, with their signs, that have a unit."""
        a = c.matrix.transpose()
        sizes = [a.entries_of(r)[1] for r, _ in rows]
        units = [unit_of(size) if len(size) else 1.0 for size in sizes]
        on = [i for i, unit in enumerate(units) if unit]
        row = np.array([rows[i][0] for i in on], dtype=np.int64)
        sign = np.array([rows[i][1] for i in on], dtype=np.int64)
        unit = np.array([units[i] for i in on])
        edge = np.where(sign > 0, c.high[row], -c.low[row])
        bound = np.floor(edge / unit + 1e-6)
        price = np.maximum(p[row] * sign, 0.0)  # the other bound of a row has no price
        rest = float(price @ (edge - bound * unit))
        return _Counted(row, sign, unit, price * unit, bound.astype(np.int64), rest)

    def use(self, c: Choices, columns: Ints) -> Ints:
        """Return what columns (k,) use of the rows, -1 is nothing, (k, E)."""
        use = np.zeros((len(columns), len(self.rows)))
        on = np.flatnonzero(columns >= 0)
        use[on] = c.matrix[columns[on]].take_columns(self.rows).toarray()
        return np.rint(use / self.unit).astype(np.int64) * self.sign


@dataclass(frozen=True)
class _Steps:
    """The decisions one after the other; blocks with a single path are settled.

    Attributes
    ----------
    settled : (J,)
        Columns of the settled blocks.
    options : _Options
        By step and origin; the options of step t are first[t] .. first[t+1].
    use : (k, E)
        What each option uses of the counted rows, less what the usual option of its step uses.
    left : (E,)
        What the settled blocks and the usual options leave of the counted rows.
    """

    counted: _Counted
    settled: Ints
    options: _Options
    first: Ints
    use: Ints
    left: Ints

    @staticmethod
    def of(c: Choices, diagrams: Diagrams, options: _Options, counted: _Counted) -> _Steps:
        """Order the options: blocks whose use differs most, at its price, come first."""
        depth = np.zeros(diagrams.Q + c.J, dtype=np.int64)
        np.maximum.at(depth, options.block, options.layer + 1)
        is_settled = (np.bincount(options.block, minlength=len(depth)) == depth)[options.block]
        use = counted.use(c, options.column)
        settled = np.full(c.J, -1)
        settled[options.group[is_settled]] = options.column[is_settled]
        left = counted.bound - use[is_settled].sum(axis=0)
        o = np.flatnonzero(~is_settled)
        o = o[np.lexsort((options.layer[o], options.block[o]))]
        first = np.flatnonzero(begins_run(options.block[o], options.layer[o]))
        weight = np.zeros(len(depth))
        if len(o):
            spread = np.maximum.reduceat(use[o], first) - np.minimum.reduceat(use[o], first)
            np.maximum.at(weight, options.block[o[first]], spread @ counted.rent)
        block, layer = options.block[o], options.layer[o]
        o = o[np.lexsort((options.origin[o], layer, block, -weight[block]))]
        first = np.flatnonzero(begins_run(options.block[o], options.layer[o]))
        step = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(o))))
        use, own = use[o], _Options(*(x[o] for x in vars(options).values()))
        usual = use[np.lexsort((own.loss, step))[first]]
        left = left - usual.sum(axis=0)
        return _Steps(counted, settled, own, np.append(first, len(o)), use - usual[step], left)

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.first) - 1


class _Tables:
    """The table T_t of every counted row, for those places that a plan can reach.

    It may lose at most `limit`. A row without a price has no use for more than all steps can take.
    """

    def __init__(self, s: _Steps, limit: float) -> None:
        E = len(s.left)
        self.low = np.zeros((s.count + 1, E), dtype=np.int64)
        self.cap = np.full((s.count + 1, E), np.iinfo(np.int64).max)
        self.tables: list[list[Floats]] = []
        step = np.repeat(np.arange(s.count), np.diff(s.first))
        for e in range(E):
            low, high = self._range(s, e, limit)
            self.low[:, e] = low
            if s.counted.rent[e] == 0.0:
                self.cap[:, e] = high
            if (high - low + 1).sum() > CELLS:
                self.tables.append([])
                continue
            order = np.lexsort((s.options.loss, s.use[:, e], step))
            order = order[begins_run(step[order], s.use[order, e])]
            begin = np.searchsorted(step[order], np.arange(s.count + 1)).tolist()
            moves = list(zip(s.use[order, e].tolist(), s.options.loss[order].tolist(), strict=True))
            by_step = [moves[a:b] for a, b in pairwise(begin)]
            is_capped = s.counted.rent[e] == 0.0
            places = np.arange(low[-1], high[-1] + 1)
            table = np.where(places >= 0, places * s.counted.rent[e], np.inf)
            self.tables.append(_tabulate(by_step, low.tolist(), high.tolist(), table, is_capped))

    def _range(self, s: _Steps, e: int, limit: float) -> tuple[Ints, Ints]:
        """Return the least and the most that can be left of a row before each step, and last."""
        up, down = (_reach(s, sign * s.use[:, e], limit) for sign in (1, -1))
        left, rent = int(s.left[e]), s.counted.rent[e]
        low = np.maximum(-down[0], left - up[1])
        final = int(min(limit / rent, 2.0**40)) if rent > 0 else 0
        high = np.minimum(final + up[0], left + down[1]) if rent > 0 else up[0]
        return low, np.maximum(high, low)

    def at(self, t: int, left: Ints, lost: Floats) -> Floats:
        """Return what states lose at least when all is decided; t steps are decided."""
        most = lost
        for e, tables in enumerate(self.tables):
            if tables:
                at = left[:, e] - self.low[t, e]
                is_in = (at >= 0) & (at < len(tables[t]))
                rest = np.where(is_in, tables[t][np.where(is_in, at, 0)], np.inf)
                most = np.maximum(most, lost + rest)
        return most


def _reach(s: _Steps, use: Ints, limit: float) -> tuple[Ints, Ints]:
    """Return bounds on the use (k,) of the steps from each one on, and of those before it, (T+1,).

    Plans may lose at most `limit`: for any rate q >= 0, use <= q limit + sum max (use - q loss).
    """
    q = RATES[:, None] * max(float(np.abs(use).max(initial=0)), 1e-9) / max(limit, 1e-300)
    most = np.zeros((len(q), s.count))
    if s.count:
        most = np.maximum.reduceat(use - q * s.options.loss, s.first[:-1], axis=1)
    none = np.zeros((len(q), 1))
    before = np.hstack([none, np.cumsum(most, axis=1)])
    after = np.hstack([none, np.cumsum(most[:, ::-1], axis=1)])[:, ::-1]
    a, b = (np.floor((x + q * limit).min(axis=0) + 1e-6).astype(np.int64) for x in (after, before))
    return a, b


def _tabulate(
    by_step: list[list[tuple[int, float]]],
    low: list[int],
    high: list[int],
    last: Floats,
    is_capped: bool,
) -> list[Floats]:
    """Return the tables of a row, by step; table t has the places low[t] .. high[t].

    `by_step` has the use and the loss of options. Above a range that is capped its last place
    counts, above others nothing is possible.
    """
    tables = [last]
    for t in reversed(range(len(by_step))):
        a, b, x, y = low[t], high[t], low[t + 1], high[t + 1]
        after, table = tables[-1], np.full(b - a + 1, np.inf)
        for use, loss in by_step[t]:
            begin, end = max(a, x + use), min(b, y + use) + 1
            if begin < end:
                part = table[begin - a : end - a]
                np.minimum(part, after[begin - use - x : end - use - x] + loss, out=part)
            if is_capped and (above := max(a, y + use + 1)) <= b:
                part = table[above - a :]
                np.minimum(part, after[-1] + loss, out=part)
        tables.append(table)
    return tables[::-1]


class _Search:
    """The search of the steps. `broken` are rows that the best plans break, with their signs."""

    def __init__(self, c: Choices, s: _Steps, limit: float, width: int, until: float) -> None:
        self.c, self.s, self.limit, self.until = c, s, limit, until
        self.width = width
        self.tables = _Tables(s, limit - s.counted.rent_of_rest)
        self.broken: set[tuple[int, int]] = set()
        self._trail: list[tuple[Ints, Ints]] = []  # parent and option of the states of every step

    def run(self, top: float) -> Found:
        """Return the best plan; `top` is the bound that losses are subtracted from."""
        s = self.s
        left, lost, node = s.left[None, :], np.array([s.counted.rent_of_rest]), np.array([-1])
        dropped, kept = math.inf, 0
        for t in range(s.count):
            if time.monotonic() >= self.until:
                return Found(None, math.inf, kept)
            own = s.options.origin[s.first[t] : s.first[t + 1]]
            begin, end = (np.searchsorted(own, node, side) for side in ("left", "right"))
            parent, option = ragged(s.first[t] + begin, s.first[t] + end)
            left = np.minimum(left[parent] - s.use[option], self.tables.cap[t + 1])
            lost = lost[parent] + s.options.loss[option]
            least = self.tables.at(t + 1, left, lost)
            on = np.flatnonzero(least <= self.limit)
            on = on[_find_undominated(s.options.to[option[on]], left[on], lost[on], s.counted.rent)]
            if len(on) > self.width:
                on = on[np.argpartition(least[on], self.width)]
                dropped = min(dropped, float(least[on[self.width :]].min()))
                on = on[: self.width]
            parent, option, left, lost = parent[on], option[on], left[on], lost[on]
            node = s.options.to[option]
            self._trail.append((parent, option))
            kept += len(on)
            if kept > STATES:
                self.width = min(self.width, FEW)
        total = lost + left @ s.counted.rent
        total[(left < 0).any(axis=1)] = np.inf
        bound = top - min(dropped, float(total.min(initial=np.inf)))
        return Found(self._first_plan(total), bound, kept)

    def _first_plan(self, total: Floats) -> Ints | None:
        """Return the first plan that keeps all rows, of the states that lose least."""
        c = self.c
        best = np.argsort(total, kind="stable")[:PLANS]
        for state in best[total[best] <= self.limit].tolist():
            plan, at = self.s.settled.copy(), state
            for parent, option in reversed(self._trail):
                chosen = option[at]
                plan[self.s.options.group[chosen]] = self.s.options.column[chosen]
                at = parent[at]
            if c.feasible(plan):
                return plan
            use = c.use_of(plan)
            self.broken |= {(int(r), 1) for r in np.flatnonzero(use > c.high)}
            self.broken |= {(int(r), -1) for r in np.flatnonzero(use < c.low)}
        return None


def _find_undominated(node: Ints, left: Ints, lost: Floats, rent: Floats) -> Ints:
    """Return the places of states that no other one dominates.

    Of states at the same node that leave the same of all rows but the one of the finest unit, one
    that leaves less of it has to lose less, the price of what is left included.
    """
    if len(node) < 2:
        return np.arange(len(node))
    total, fine = lost, np.zeros(len(node), dtype=np.int64)
    columns = [node, *left.T]
    if len(rent):
        fine = columns.pop(1 + int(np.argmin(rent)))
        total = lost + fine * rent.min()
    least = [column.min() for column in columns]
    width = [int(column.max() - low) + 1 for column, low in zip(columns, least, strict=True)]
    if math.prod(width) < 2**62:
        key = np.zeros(len(node), dtype=np.int64)
        for column, low, many in zip(columns, least, width, strict=True):
            key = key * many + (column - low)
        columns = [key]
    order = np.lexsort((-fine, total, *columns))
    is_first = begins_run(*(column[order] for column in columns))
    fine = fine[order] - fine.min()
    above = fine + (np.cumsum(is_first) - 1) * (fine.max() + 1)
    is_first[1:] |= above[1:] > np.maximum.accumulate(above)[:-1]
    return np.asarray(order[is_first])
