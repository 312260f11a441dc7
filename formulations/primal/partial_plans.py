"""Find plans above a value: decide group by group, and drop partial plans that cannot reach it.

A partial plan has the value w and uses u of the rows; the groups of a set O are still open. For any
prices p (formulations/bounds/lagrangian.py) none of its completions has a value above

    w + sum_{j of O} max_c (v_c - a_c'p) + sum_r p_r min(b_r - u_r, most_r)

where most_r is the most that the groups of O can use of row r. Rows with a lower bound are treated
alike. Several prices give several bounds, and the least counts. Of partial plans that use the same
of all rows that concern O, only the best one can become a best plan. This is dynamic programming
with bounds (Martello, Pisinger and Toth 1999, "Dynamic programming and strong bounds for the 0-1
knapsack problem") for several rows, and for several columns of a group.

Where there are too many partial plans, those with the lowest bounds are dropped. The highest of the
dropped bounds is then a bound on every plan that was not looked at.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.exact_rows import CountedRows, JointTable, RowTables, count_states
from formulations.bounds.knapsacks import unit_of
from formulations.bounds.lagrangian import Dual, group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

LARGEST = 4_000_000  # problems with more entries of options are not searched
WORK = 4_500_000  # after so many entries of partial plans a search becomes narrow
WIDE = 0.34  # a row that concerns more than this share of the open groups is wide
CHANGES = (0.8, 1.25)  # the price of a wide row is changed by these factors, for further bounds
FEW = 100  # partial plans that are kept at once where no row is counted exactly
NARROW = (100, 300)  # least and most partial plans that are kept after some have been dropped
LONGEST = 150  # most units of a row of few units
MOST_UNITS = 20_000  # most units of a row that is counted exactly
MANY = 150  # with more open groups only rows of few units are counted
JOINT_STATES = 8_000  # most entries of a table of several rows
SAME = 1e-13  # relative: smaller differences of use are rounding errors
SLACK = 1e-10  # relative: by how much a partial plan may break a row, against rounding errors


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


@dataclass(frozen=True)
class Losses:
    """What columns lose: a plan with a column has at most the value bound - its loss.

    Attributes
    ----------
    prices : (m,)
        Prices of the model's rows.
    bound : float
        No plan has a higher value.
    column, nothing : (n,), (J,)
        Loss of every column, and of leaving each group without one; inf where that is impossible.
    adds_up : bool
        Whether a plan with several columns loses at least their sum.
    """

    prices: Floats
    bound: float
    column: Floats
    nothing: Floats
    adds_up: bool

    @staticmethod
    def of(c: Choices, dual: Dual) -> Losses:
        """Return the losses against the best column of each group at the prices."""
        reduced = c.value - c.matrix @ project_prices(c, dual.prices)
        loss = np.maximum(np.repeat(dual.reduced, np.diff(c.start)) - reduced, 0.0)
        nothing = np.where(c.mandatory, np.inf, dual.reduced)
        return Losses(dual.prices, dual.bound, loss, nothing, True)

    def and_also(self, other: Losses) -> Losses:
        """Return what both together prove; the prices are those of the lower bound."""
        low, high = (self, other) if self.bound <= other.bound else (other, self)
        more = high.bound - low.bound
        column = np.maximum(low.column, high.column - more)
        nothing = np.maximum(low.nothing, high.nothing - more)
        return Losses(low.prices, low.bound, column, nothing, False)

    def leaves(self, value: float) -> tuple[Bools, Bools]:
        """Return which columns, (n,), and nothings, (J,), a plan above a value may use."""
        return self.column <= self.bound - value, self.nothing <= self.bound - value


def find_better_plan(
    c: Choices,
    losses: Losses,
    value: float,
    width: int,
    until: float = math.inf,
    largest: float = math.inf,
) -> Found:
    """Search all plans with a value above `value`.

    A column that loses more at the prices than the bound exceeds the value is in no such plan.

    Parameters
    ----------
    width : int
        Largest number of partial plans that are kept at once.
    until : float
        Latest end (time.monotonic).
    largest : float
        Nothing is searched if the number of open groups times that of the rows is larger.
    """
    near, nothing = losses.leaves(value)
    is_open = np.bincount(c.group[near], minlength=c.J) + nothing > 1
    if np.count_nonzero(is_open) * c.R > largest:
        return Found(None, losses.bound, 0)
    return _search(c, losses, value, near, nothing, width, until, counts=True)


def improve_near_ties(
    c: Choices,
    losses: Losses,
    plan: Ints,
    groups: int,
    width: int,
    until: float = math.inf,
    counts: bool = False,
) -> Ints:
    """Return the best plan that differs from a feasible plan in the groups nearest to a change.

    `groups` is the number of groups that may change. The plan itself is returned if none is better.
    `counts` asks for rows to be counted exactly, which pays where most groups may change.
    """
    value = c.value_of(plan)
    held = np.zeros(c.n, dtype=bool)
    held[plan[plan >= 0]] = True
    lost = np.where(plan >= 0, np.append(losses.column, 0.0)[plan], losses.nothing)
    least = -group_max(c, -np.where(held, np.inf, losses.column), -np.inf)
    least = np.where(plan >= 0, np.minimum(least, losses.nothing), least)
    moves = np.zeros(c.J, dtype=bool)
    moves[np.argsort(least - lost, kind="stable")[:groups]] = True
    certain = float(lost[~moves].sum()) if losses.adds_up else 0.0
    near, nothing = losses.leaves(value + certain)
    near, nothing = held | (moves[c.group] & near), (plan < 0) | (moves & nothing)
    found = _search(c, losses, value, near, nothing, width, until, counts)
    return plan if found.plan is None else found.plan


def _search(
    c: Choices,
    losses: Losses,
    value: float,
    near: Bools,
    nothing: Bools,
    width: int,
    until: float,
    counts: bool,
) -> Found:
    """Search the plans above `value` in the columns `near` (n,) and in nothing (J,).

    Rows are counted exactly only if `counts`, where few partial plans at once do not suffice.
    """
    field = _Field.of(c, project_prices(c, losses.prices), near, nothing)
    if field is None:
        return Found(None, losses.bound, 0)
    if not field.can_hold:
        return Found(None, -math.inf, 0)
    rest = _Rest.of(field)
    first = min(FEW, width) if counts else width
    found = _search_field(c, field, rest, value, first, until, gives_up=counts)
    if found is None:
        tables = _Tables.of(field, rest)
        rest = replace(rest, tables=tables, margin=rest.margin * (2 + len(field.price)))
        found = _search_field(c, field, rest, value, width, until)
        assert found is not None
    return replace(found, bound=min(found.bound, losses.bound))


def _search_field(
    c: Choices,
    field: _Field,
    rest: _Rest,
    value: float,
    width: int,
    until: float,
    gives_up: bool = False,
) -> Found | None:
    """Search the options of a field; None if it gives up because of too many partial plans."""
    states = _States(np.array([field.value]), field.use[None, :])
    dropped, kept = -math.inf, 0
    steps: list[_Step] = []
    often = WORK // (1 + field.count * len(field.price))  # so many plans can be kept at every step
    width, narrow = min(width, max(8 * often, NARROW[1])), min(NARROW[1], max(often, NARROW[0]))
    for k in range(field.count):
        if time.monotonic() >= until:
            return Found(None, math.inf, kept)
        floor = value - rest.margin
        states, step, lost = _decide(states, field, rest, k, floor, width, narrow)
        steps.append(step)
        dropped, kept = max(dropped, lost), kept + len(states.value)
        if lost > -math.inf:
            if gives_up:
                return None
            width = min(width, narrow)  # it proves little from here on, but may find a plan
        elif kept * len(field.price) > WORK:
            width = narrow
    if not len(states.value):
        return Found(None, dropped + rest.margin, kept)
    at = int(np.argmax(states.value))
    plan = field.settled.copy()
    bound = max(dropped, float(states.value[at])) + rest.margin
    for k in reversed(range(field.count)):
        option = steps[k].option[at]
        plan[field.group[option]] = field.column[option]
        at = steps[k].parent[at]
    is_better = c.feasible(plan) and c.value_of(plan) > value
    return Found(plan if is_better else None, bound, kept)


@dataclass(frozen=True)
class _Field:
    """The groups with more than one option, in the order in which they are decided.

    Attributes
    ----------
    settled : (J,)
        Columns of all other groups.
    value, use : float, (R,)
        Value of the settled groups, and what they use of the rows.
    low, high, price : (R,)
        Bounds of the rows, a little wider than those of the model, and their prices.
    group, column, gain, uses : (k,), (k,), (k,), (k, R)
        Options of the open groups: their value, and what they use. Column -1 is nothing.
    start : (G+1,)
        Group number g has the options start[g] .. start[g+1].
    can_hold : bool
        False if the settled groups break a row that no open group can change.
    """

    settled: Ints
    value: float
    use: Floats
    low: Floats
    high: Floats
    price: Floats
    group: Ints
    column: Ints
    gain: Floats
    uses: Floats
    start: Ints
    can_hold: bool

    @property
    def count(self) -> int:
        """Number of open groups."""
        return len(self.start) - 1

    @staticmethod
    def of(c: Choices, p: Floats, near: Bools, nothing: Bools) -> _Field | None:
        """Return the field of the columns `near` (n,) and of nothing (J,), None if it is too large.

        Rows that cannot bind and have no price are left out.
        """
        count = np.bincount(c.group[near], minlength=c.J) + nothing
        is_open = count > 1
        alone = np.flatnonzero(near & ~is_open[c.group])
        settled = np.full(c.J, -1)
        settled[c.group[alone]] = alone
        columns, idle = np.flatnonzero(near & is_open[c.group]), np.flatnonzero(nothing & is_open)
        part = c.matrix[columns]
        rows = np.unique(part.indices)
        entries = (len(columns) + len(idle)) * len(rows)
        if entries > LARGEST:
            return None
        group = np.append(c.group[columns], idle)
        column = np.append(columns, np.full(len(idle), -1))
        uses = np.vstack([part.take_columns(rows).toarray(), np.zeros((len(idle), len(rows)))])
        low, high = c.low - SLACK * (1.0 + np.abs(c.low)), c.high + SLACK * (1.0 + np.abs(c.high))
        use = c.use_of(settled)
        broken = (use > high) | (use < low)
        broken[rows] = False
        low, high, use = low[rows], high[rows], use[rows]
        groups, place = np.flatnonzero(is_open), np.argsort(group, kind="stable")
        least, most = _ranges(uses[place], np.cumsum(count[groups]) - count[groups])
        can_bind = (use + most.sum(axis=0) > high) | (use + least.sum(axis=0) < low)
        matters = can_bind | (p[rows] != 0)
        rank = np.zeros(c.J, dtype=np.int64)
        rank[groups] = _ranks((most > least)[:, matters], (most - least) @ np.abs(p[rows]))
        place = np.lexsort((column, rank[group]))
        group, column, uses = group[place], column[place], uses[np.ix_(place, matters)]
        return _Field(
            settled,
            c.value_of(settled),
            use[matters],
            low[matters],
            high[matters],
            p[rows][matters],
            group,
            column,
            np.append(c.value, 0.0)[column],
            uses,
            np.append(0, np.cumsum(count[groups[np.argsort(rank[groups])]])),
            not broken.any(),
        )


def _ranges(uses: Floats, begin: Ints) -> tuple[Floats, Floats]:
    """Return the least and the largest use of each row by each group, (G, R) each."""
    if not len(begin):
        return np.zeros((0, uses.shape[1])), np.zeros((0, uses.shape[1]))
    return np.minimum.reduceat(uses, begin), np.maximum.reduceat(uses, begin)


def _ranks(touches: Bools, size: Floats) -> Ints:
    """Return the place of every group in the order of decisions, (G,).

    Groups that narrow rows connect are decided one after the other, so that few rows concern both
    decided and open groups. In each such set large groups come first, because small ones fill what
    is left. Groups without a narrow row come last.

    Parameters
    ----------
    touches : (G, R)
        Whether the choice of a group changes the use of a row.
    size : (G,)
        Largest change of use, at the prices.
    """
    count = touches.sum(axis=0)
    part = _connected_parts(touches[:, count <= WIDE * len(size)])
    total = np.where(np.bincount(part)[part] > 1, np.bincount(part, size)[part], 0.0)
    rank = np.empty(len(size), dtype=np.int64)
    rank[np.lexsort((-size, part, -total))] = np.arange(len(size))
    return rank


def _connected_parts(touches: Bools) -> Ints:
    """Return the first group that rows connect with each group, directly or not, (G,)."""
    G = len(touches)
    part = np.arange(G)
    while True:
        of_row = np.where(touches, part[:, None], G).min(axis=0, initial=G)
        least = np.minimum(part, np.where(touches, of_row, G).min(axis=1, initial=G))
        if np.array_equal(least, part):
            return part
        part = least[least]


@dataclass(frozen=True)
class _Rest:
    """What the groups that are open after k decisions can do, for k = 0 .. G.

    Attributes
    ----------
    least, most : (G+1, R)
        Least and largest use of each row.
    best : (G+1, P)
        Largest sum of reduced values at each of the prices.
    prices : (P, R)
        Prices of the rows.
    margin : float
        More than the rounding errors of a bound.
    tables : _Tables, optional
        Further bounds, at the first of the prices.
    """

    least: Floats
    most: Floats
    best: Floats
    prices: Floats
    margin: float
    tables: _Tables | None = None

    @staticmethod
    def of(field: _Field) -> _Rest:
        """Return it at the prices of the rows, and at changed prices of wide rows."""
        own, begin = field.price, field.start[:-1]
        least, most = _ranges(field.uses, begin)
        wide = ((most > least).sum(axis=0) > WIDE * field.count) & (own != 0)
        prices = [own]
        for row in np.flatnonzero(wide):
            for factor in CHANGES:
                changed = own.copy()
                changed[row] *= factor
                prices.append(changed)
        P = np.array(prices)
        reduced = field.gain[:, None] - field.uses @ P.T
        best = np.maximum.reduceat(reduced, begin) if len(begin) else np.zeros((0, len(P)))
        largest = np.abs(field.use) + np.abs(least).sum(axis=0) + np.abs(most).sum(axis=0)
        magnitude = abs(field.value) + np.abs(field.gain).sum() + float((np.abs(P) @ largest).max())
        margin = 1e-15 * (100 + field.count + len(own)) * magnitude
        return _Rest(_from_end(least), _from_end(most), _from_end(best), P, margin)


@dataclass(frozen=True)
class _Tables:
    """Rows counted exactly, each alone and some together.

    A table lowers the bound of the prices. Tables that concern different groups lower it by the sum
    of what each of them does.

    Attributes
    ----------
    each : RowTables
        Every row of few units.
    long : list of JointTable
        Every row of many units, such as a budget in cents.
    apart : (D,)
        Rows of `each` and `long` that concern different groups and lower the bound most.
    joint : JointTable or None
        The rows of few units that lower the bound most together.
    aside : (D',)
        Rows that concern other groups than the rows of `joint`, and than each other.
    best : (G+1,)
        What the groups open after k decisions can gain at the prices.
    """

    each: RowTables
    long: list[JointTable]
    apart: Ints
    joint: JointTable | None
    aside: Ints
    best: Floats

    @staticmethod
    def of(field: _Field, rest: _Rest) -> _Tables | None:
        """Return the tables of a field, None if no row can be counted."""
        counted = _counted_rows(field, rest.most[0])
        if not len(counted.rows):
            return None
        short = counted.take(np.flatnonzero(counted.most <= LONGEST))
        long = counted.take(np.flatnonzero(counted.most > LONGEST))
        p, uses, start = field.price, field.uses, field.start
        reduced = field.gain - uses @ p
        tables = _Tables(
            RowTables(short, reduced[:, None] + uses[:, short.rows] * p[short.rows], uses, start),
            [_tabulate(field, reduced, long.take(np.array([e]))) for e in range(len(long.rows))],
            np.zeros(0, dtype=np.int64),
            None,
            np.zeros(0, dtype=np.int64),
            rest.best[:, 0],
        )
        none = field.use[None, :]
        change = tables.changes(none, _rent(field, rest, none, 0), 0)[0]
        rows = np.append(short.rows, long.rows)
        order = np.lexsort((-p[rows], change))
        together: list[int] = []
        for e in order[order < len(short.rows)].tolist():
            if count_states(short.take(np.array([*together, e]))) <= JOINT_STATES:
                together.append(e)
        least, most = _ranges(uses, start[:-1])
        touches = (most > least)[:, rows]
        nothing = np.zeros(field.count, dtype=bool)
        tables = replace(tables, apart=_select_apart(touches, order, nothing))
        if len(together) < 2:
            return tables
        return replace(
            tables,
            joint=_tabulate(field, reduced, short.take(np.array(together))),
            aside=_select_apart(touches, order, np.asarray(touches[:, together].any(axis=1))),
        )

    def changes(self, use: Floats, rent: Floats, k: int) -> Floats:
        """Return by how much each row alone changes the bound of partial plans, (K, E).

        `use` (K, R) is what they use, and `rent` (K, R) the price of what they leave.
        """
        long = [table.at(k, use) - rent[:, table.counted.rows[0]] for table in self.long]
        each = self.each.at(k, use) - rent[:, self.each.counted.rows]
        return np.asarray(np.column_stack([each, *long]) - self.best[k], dtype=np.float64)

    def bounds(self, states: _States, rent: Floats, k: int) -> Floats:
        """Return bounds on the completions of partial plans, (K,), with their rents (K, R)."""
        change = self.changes(states.use, rent, k)
        lowest = np.minimum(change.min(axis=1), change[:, self.apart].sum(axis=1))
        if self.joint is not None:
            jointly = self.joint.at(k, states.use) - self.best[k]
            jointly -= rent[:, self.joint.counted.rows].sum(axis=1)
            lowest = np.minimum(lowest, jointly + change[:, self.aside].sum(axis=1))
        return np.asarray(states.value + rent.sum(axis=1) + self.best[k] + lowest)


def _tabulate(field: _Field, reduced: Floats, counted: CountedRows) -> JointTable:
    """Return the table of some rows; `reduced` (k,) are the options' values at all prices."""
    gain = reduced + field.uses[:, counted.rows] @ field.price[counted.rows]
    return JointTable(counted, gain, field.uses, field.start)


def _select_apart(touches: Bools, order: Ints, taken: Bools) -> Ints:
    """Select rows in order that concern (G, E) no group that is taken (G,) or of another one."""
    taken, selected = taken.copy(), []
    for e in order.tolist():
        if not (taken & touches[:, e]).any():
            taken |= touches[:, e]
            selected.append(e)
    return np.array(selected, dtype=np.int64)


def _counted_rows(field: _Field, most: Floats) -> CountedRows:
    """Return the rows with a price whose use can be counted.

    `most` (R,) is what all groups together can use of a row.
    """
    rows, unit, bound = [], [], []
    units = MOST_UNITS if field.count <= MANY else LONGEST
    for r in np.flatnonzero(field.price):
        size = field.uses[:, r]
        one = unit_of(size[size != 0])
        edge = field.low[r] if field.price[r] < 0 else min(field.high[r], field.use[r] + most[r])
        if one and (edge - field.use[r]) / one <= units:
            rows.append(int(r))
            unit.append(one)
            bound.append(edge)
    at = np.array(rows, dtype=np.int64)
    counted = CountedRows.of(
        at, np.array(unit), field.price[at] < 0, np.array(bound), field.use[at]
    )
    return counted.take(np.flatnonzero(counted.most > 0))


def _rent(field: _Field, rest: _Rest, use: Floats, k: int) -> Floats:
    """Return the price of what partial plans leave of each row, as far as it can be used, (K, R).

    `use` (K, R) is what they use.
    """
    p, least, most = field.price, rest.least[k], rest.most[k]
    rent = np.zeros(use.shape)
    up, down = np.flatnonzero(p > 0), np.flatnonzero(p < 0)
    rent[:, up] = np.minimum(field.high[up] - use[:, up], most[up]) * p[up]
    rent[:, down] = np.maximum(field.low[down] - use[:, down], least[down]) * p[down]
    return rent


def _from_end(x: Floats) -> Floats:
    """Return the sums of x (G, ...) from each place to the end, and 0, (G+1, ...)."""
    total = np.zeros((len(x) + 1, x.shape[1]))
    total[:-1] = np.cumsum(x[::-1], axis=0)[::-1]
    return total


@dataclass(frozen=True)
class _States:
    """Partial plans: value (K,) and use of the rows (K, R)."""

    value: Floats
    use: Floats

    def take(self, at: Ints) -> _States:
        return _States(self.value[at], self.use[at])


@dataclass(frozen=True)
class _Step:
    """How the partial plans came from those before: parent (K,) and option (K,)."""

    parent: Ints
    option: Ints

    def take(self, at: Ints) -> _Step:
        return _Step(self.parent[at], self.option[at])


def _decide(
    states: _States, field: _Field, rest: _Rest, k: int, floor: float, width: int, narrow: int
) -> tuple[_States, _Step, float]:
    """Decide group number k in all partial plans, and keep those that may exceed `floor`.

    If they are more than `width`, at most `narrow` of them are kept. The last result is the highest
    bound of those that were dropped for that.
    """
    first, end = field.start[k], field.start[k + 1]
    value = (states.value[:, None] + field.gain[first:end]).ravel()
    use = (states.use[:, None, :] + field.uses[first:end]).reshape(len(value), len(field.use))
    step = _Step(*np.divmod(np.arange(len(value)), end - first))
    step = _Step(step.parent, step.option + first)
    at = np.flatnonzero(_can_be_completed(use, field, rest, k + 1))
    states, step = _States(value[at], use[at]), step.take(at)
    bound = np.full(len(at), np.inf)
    # first the bound of one price, then those of all others
    for prices in (slice(1), slice(1, None)) if rest.tables is None else (slice(1),):
        bound = np.minimum(bound, _price_bounds(states, field, rest, k + 1, prices))
        at = np.flatnonzero(bound > floor)
        if len(at) < len(bound):
            states, step, bound = states.take(at), step.take(at), bound[at]
    if rest.tables is not None and len(at):
        rent = _rent(field, rest, states.use, k + 1)
        bound = np.minimum(bound, rest.tables.bounds(states, rent, k + 1))
        at = np.flatnonzero(bound > floor)
        states, step, bound = states.take(at), step.take(at), bound[at]
    at = _find_distinct(states, rest, k + 1) if len(at) > 8 else np.arange(len(at))
    dropped = -math.inf
    if len(at) > width:
        width = min(width, narrow)
        at = at[np.argpartition(-bound[at], width)]
        dropped = float(bound[at[width:]].max())
        at = np.sort(at[:width])
    return states.take(at), step.take(at), dropped


def _can_be_completed(use: Floats, field: _Field, rest: _Rest, k: int) -> Bools:
    """Return whether the groups that are open after k decisions can keep each row, (K,)."""
    fits = (use <= field.high - rest.least[k]) & (use >= field.low - rest.most[k])
    return np.asarray(fits.all(axis=1))


def _price_bounds(states: _States, field: _Field, rest: _Rest, k: int, prices: slice) -> Floats:
    """Return the least of the bounds of some prices on the completions of partial plans, (K,)."""
    p = rest.prices[prices].T
    left = np.minimum(field.high - states.use, rest.most[k])
    needed = np.maximum(field.low - states.use, rest.least[k])
    most = left @ np.maximum(p, 0.0) + needed @ np.minimum(p, 0.0) + rest.best[k, prices]
    return np.asarray(states.value + most.min(axis=1, initial=np.inf))


def _find_distinct(states: _States, rest: _Rest, k: int) -> Ints:
    """Find the best of all partial plans that leave the same to the groups open after k decisions.

    Return their places.
    """
    use = states.use[:, rest.least[k] != rest.most[k]]
    scale = SAME * (1.0 + np.abs(use).max(axis=0, initial=0.0))
    key = np.rint(use / scale).astype(np.int64)
    weight = np.random.default_rng(0).integers(1, 2**62, key.shape[1])
    code = key @ weight  # equal keys have equal codes; it may overflow
    order = np.argsort(code)
    key, value, is_first = (
        key[order],
        states.value[order],
        np.append(True, np.diff(code[order]) != 0),
    )
    repeats = np.flatnonzero(~is_first)
    is_first[repeats] = (key[repeats] != key[repeats - 1]).any(axis=1)
    alike = np.cumsum(is_first) - 1
    best = np.flatnonzero(value == np.maximum.reduceat(value, np.flatnonzero(is_first))[alike])
    first = np.append(True, np.diff(alike[best]) != 0)
    return np.asarray(order[best[first]], dtype=np.int64)
