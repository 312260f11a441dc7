"""Find plans above a value by branch and bound, or prove that there is none.

The linear relaxation of every node is solved by the dual simplex method, where the parts of a group
cost no row (formulations/branching/loops.py). A node is branched on a column, or on the use of a
row that all plans use in whole units: where ten tenants use 14.9 GPUs of a pool in all, no single
column tells that this is 14 or 15.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from formulations.bounds.lagrangian import project_prices
from formulations.branching import knapsack_loops, loops
from formulations.compilation import compile_functions, is_kept
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import begins_run, ragged, starts
from formulations.model.sparse_rows import SparseRows

WAITING = 2_000  # nodes that wait at once
LARGEST = 4_000_000  # columns times rows of a field that is searched
UNITS = (0.25, 0.5, 1.0)  # of rows that are branched on: GPUs and shares of them, but no cents


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    plan : (J,) or None
        The best plan above the given value, None if none was found.
    bound : float
        No plan of the searched columns has a value above it.
    steps : int
        Steps of the simplex method.
    """

    plan: Ints | None
    bound: float
    steps: int


def search_plans(
    c: Choices,
    near: Bools,
    nothing: Bools,
    value: float,
    gap: float,
    prices: Floats,
    steps: int,
    compiled: bool = True,
) -> Found | None:
    """Search the plans above a value; None if there are too many columns and rows.

    Parameters
    ----------
    near, nothing : (n,), (J,)
        The columns that are searched, and the groups that may go without one.
    value : float
        Plans that are not above it do not count.
    gap : float
        Relative gap of the best value that is enough.
    steps : int
        Most steps of the simplex method.
    compiled : bool
        Whether numba compiles the loops.
    """
    open_field = _Open.of(c, near, nothing, prices)
    if not open_field.has_plans:
        return Found(None, value, 0)
    k, R = len(open_field.column), len(open_field.low)
    if k * (R + 1) > LARGEST:
        return None
    if not len(open_field.groups):
        only = open_field.settled
        return Found(only if c.value_of(only) > value else None, max(value, c.value_of(only)), 0)
    best, bound, plan, done = open_field.search(value, gap, steps, kernel(compiled))
    if best <= value or not c.feasible(plan) or c.value_of(plan) <= value:
        return Found(None, bound, done)
    return Found(plan, bound, done)


@dataclass(frozen=True)
class _Open:
    """The groups with a choice, and what all others leave of the rows that can bind.

    Attributes
    ----------
    settled : (J,)
        Columns of the other groups.
    groups : (G,)
        The groups with a choice.
    column : (k,)
        Their columns, group by group; -1 is nothing.
    field : loops.Field
    low, high : (R,)
        What is left of the rows.
    has_plans : bool
        False if the other groups alone, or a group without columns, leave no plan.
    """

    settled: Ints
    groups: Ints
    column: Ints
    field: loops.Field
    low: Floats
    high: Floats
    price: Floats
    has_plans: bool

    @staticmethod
    def of(c: Choices, near: Bools, nothing: Bools, prices: Floats) -> _Open:
        """Return the field of the columns `near` (n,) and of nothing (J,), with prices (m,)."""
        count = np.bincount(c.group[near], minlength=c.J) + nothing
        is_open = count > 1
        alone = np.flatnonzero(near & ~is_open[c.group])
        settled = np.full(c.J, -1)
        settled[c.group[alone]] = alone
        columns, idle = np.flatnonzero(near & is_open[c.group]), np.flatnonzero(nothing & is_open)
        group = np.append(c.group[columns], idle)
        place = np.argsort(group, kind="stable")
        column = np.append(columns, np.full(len(idle), -1))[place]
        groups = np.flatnonzero(is_open)
        owner = np.searchsorted(groups, group[place])
        first = starts(owner, len(groups))
        entries = _Entries.of(c.matrix[columns], np.argsort(place)[: len(columns)], owner)
        use = c.use_of(settled)
        low, high = c.low - use, c.high - use
        least, most = entries.ranges(first)
        can_hold = (count > 0).all() and (least <= high).all() and (most >= low).all()
        binds, price = (most > high) | (least < low), project_prices(c, prices)
        rows = np.flatnonzero(binds)
        entries = entries.with_parts(binds, price)
        entries = entries.take_rows(np.append(rows, np.arange(c.R, entries.R)))
        low, high, price = low[rows], high[rows], price[rows]
        free = np.full(entries.R - len(rows), np.inf)
        base, value = c.value_of(settled), np.append(c.value, 0.0)[column]
        field = loops.Field(
            base,
            abs(base) + float(np.abs(value).sum()),
            np.bincount(entries.row, np.abs(entries.use), entries.R).astype(np.float64),
            first,
            owner,
            value,
            starts(entries.column, len(column)),
            entries.row,
            entries.use,
            entries.units(),
            *entries.rows_of_groups(len(groups)),
        )
        low, high, price = np.append(low, -free), np.append(high, free), np.append(price, 0 / free)
        return _Open(settled, groups, column, field, low, high, price, bool(can_hold))

    def search(
        self, value: float, gap: float, steps: int, search: Callable[..., Any]
    ) -> tuple[float, float, Ints, int]:
        """Return the best value, the bound, the plan (J,) of the best value, and the steps."""
        k, R, G = len(self.column), len(self.low), len(self.groups)
        plan, trial = np.zeros(G, dtype=np.int64), np.zeros(G, dtype=np.int64)
        root = _root(self.field, self.low, self.high, self.price)
        spare = _spare(root)
        best, bound = search(
            self.field,
            root,
            spare,
            _waiting(k, R, G),
            plan,
            trial,
            value,
            gap,
            float(steps),
        )
        chosen = self.settled.copy()
        if best > value:
            chosen[self.groups] = self.column[plan]
        return best, bound, chosen, int(spare.tally[0])


@functools.cache
def kernel(compiled: bool, name: str = "search", /) -> Callable[..., Any]:
    """Return a loop of the search, compiled by numba or as a plain function.

    Arguments have no names: the cache would take the same ones with names for others.
    """
    module = loops if hasattr(loops, name) else knapsack_loops
    names = [own for own, part in vars(module).items() if isinstance(part, FunctionType)]
    inner = names[:-2] if module is loops else []
    made = compile_functions(module, names, inner) if compiled else vars(module)
    loop: Callable[..., Any] = made[name]
    return loop


def is_ready() -> bool:
    """Return whether the search is compiled; where it is not, another process begins to do it.

    To compile it takes longer than most rounds. So nobody waits for it: until it is kept on disk,
    and where nothing can be kept, rounds are decided without this search.
    """
    search: Any = kernel(True)
    if search.overloads or is_kept(search):
        return True
    _compile_elsewhere()
    return False


@functools.cache
def _compile_elsewhere() -> subprocess.Popen[bytes]:
    """Start a process that compiles the search, once in a process."""
    code = f"import os; os.nice(19); from {__name__} import compile_alone; compile_alone()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def compile_alone() -> None:
    """Compile the search for later processes, unless another process is about to do so."""
    search: Any = kernel(True)
    with contextlib.suppress(OSError):  # another one compiles, or nothing can be kept
        folder = Path(search.stats.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "compiling").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_kept(search):
                compile_search()


def compile_search() -> None:
    """Compile the loops by searching a field of one group with one column."""
    one, two = np.zeros(1), np.zeros(2, dtype=np.int64)
    line, cell = one[:, None], two[:1]
    kernel(True, "match")(line, one, line, one, cell, cell, two, one, one, 0.0, 0.0, two[None])
    items = knapsack_loops.Items(two, cell, one, cell + 1, one > 0)
    kernel(True, "improve_prices")(items, cell, cell, one == 0, one, one, 0.0, 1.0)
    first = np.array([0, 2])
    start, index = np.array([0, 0, 1]), np.zeros(1, dtype=np.int64)
    sizes = 0.0, 0.0, one, first, two, np.zeros(2)
    field = loops.Field(*sizes, start, index, np.ones(1), np.ones(1), first[:2] // 2, index)
    low = np.array([-np.inf])
    smallest = _Open(np.array([-1]), index, np.array([-1, 0]), field, low, one, np.zeros(1), True)
    smallest.search(0.0, 0.0, 1, kernel(True))


@dataclass(frozen=True)
class _Entries:
    """What columns use of R rows, (e,), by column and by row; `owner` (k,) is their group."""

    column: Ints
    row: Ints
    use: Floats
    owner: Ints
    R: int

    @staticmethod
    def of(matrix: SparseRows, place: Ints, owner: Ints) -> _Entries:
        """Return the entries of a matrix whose rows are the columns number `place`."""
        column = np.repeat(place, np.diff(matrix.indptr))
        row, use, at = matrix.indices.astype(np.int64), matrix.data, np.flatnonzero(matrix.data)
        return _Entries(column[at], row[at], use[at], owner, matrix.shape[1]).sorted()

    def sorted(self) -> _Entries:
        """Sort by column, then by row."""
        at = np.argsort(self.column * self.R + self.row, kind="stable")
        return replace(self, column=self.column[at], row=self.row[at], use=self.use[at])

    def ranges(self, first: Ints) -> tuple[Floats, Floats]:
        """Return the least and the most that all groups together use of each row, (R,) each."""
        key = self.owner[self.column] * self.R + self.row
        order = np.argsort(key, kind="stable")
        begin = np.flatnonzero(begins_run(key[order]))
        if not len(begin):
            return np.zeros(self.R), np.zeros(self.R)
        group, row = np.divmod(key[order][begin], self.R)
        # some columns of a group may not use the row
        is_part = np.diff(np.append(begin, len(key))) < np.diff(first)[group]
        least = np.minimum.reduceat(self.use[order], begin)
        most = np.maximum.reduceat(self.use[order], begin)
        least = np.where(is_part, np.minimum(least, 0.0), least)
        most = np.where(is_part, np.maximum(most, 0.0), most)
        sums = [np.bincount(row, use, self.R).astype(np.float64) for use in (least, most)]
        return sums[0], sums[1]

    def take_rows(self, rows: Ints) -> _Entries:
        """Return the entries of some rows, which are counted anew."""
        number = np.full(self.R, -1)
        number[rows] = np.arange(len(rows))
        at = np.flatnonzero(number[self.row] >= 0)
        row = number[self.row[at]]
        return _Entries(self.column[at], row, self.use[at], self.owner, len(rows))

    def units(self) -> Floats:
        """Return the unit of all uses of each row, (R,), 0 if it has none or too fine a one."""
        unit = np.zeros(self.R)
        for one in UNITS:
            count = self.use / one
            odd = np.abs(count - np.rint(count)) > 1e-12 * np.abs(count)
            unit[np.bincount(self.row[odd], minlength=self.R) == 0] = one
        return unit

    def with_parts(self, binds: Bools, price: Floats) -> _Entries:
        """Return further rows: what the columns of priced rows use of rows in whole units.

        A node can be branched on these as well, such as the GPUs of every pool that a tenant with a
        tight budget holds. Rows that do not bind are no rows to branch on otherwise.
        """
        bounds, units = starts(self.column, len(self.owner)), self.units()
        total = np.bincount(self.row, minlength=self.R)
        priced = np.flatnonzero((binds & (units == 0) & (price != 0))[self.row])
        own = self.column[priced]
        place, at = ragged(bounds[own], bounds[own + 1])
        is_whole = units[self.row[at]] > 0
        of, at = self.row[priced][place[is_whole]], at[is_whole]
        pair = of * self.R + self.row[at]
        order = np.argsort(pair, kind="stable")
        pair, at = pair[order], at[order]
        begin = np.flatnonzero(begins_run(pair))
        size, whole = np.diff(np.append(begin, len(at))), pair[begin] % self.R
        some = np.flatnonzero((size < total[whole]) | ~binds[whole])
        parts: dict[bytes, Ints] = {}
        for first, end in zip(begin[some].tolist(), (begin + size)[some].tolist(), strict=True):
            parts.setdefault(at[first:end].tobytes(), at[first:end])
        if not parts:
            return self
        at = np.concatenate(list(parts.values()))
        number = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
        return _Entries(
            np.append(self.column, self.column[at]),
            np.append(self.row, self.R + number),
            np.append(self.use, self.use[at]),
            self.owner,
            self.R + len(parts),
        ).sorted()

    def rows_of_groups(self, groups: int) -> tuple[Ints, Ints]:
        """Return where the rows that each group uses begin, (groups+1,), and these rows."""
        is_used = np.zeros(groups * self.R, dtype=bool)
        is_used[self.owner[self.column] * self.R + self.row] = True
        group, row = np.divmod(np.flatnonzero(is_used), self.R)
        return starts(group, groups), row


def _root(field: loops.Field, low: Floats, high: Floats, price: Floats) -> loops.Node:
    """Return the node of all columns: the best of each group is its key, all rows are basic."""
    k, R = len(field.group), len(low)
    column = np.repeat(np.arange(k), np.diff(field.start))
    gain = field.value - np.bincount(column, field.entry * price[field.index], k)
    best = np.flatnonzero(gain == np.maximum.reduceat(gain, field.first[:-1])[field.group])
    key = best[begins_run(field.group[best])]
    place = np.full(k, -1)
    place[key] = -2
    return loops.Node(
        low.copy(),
        high.copy(),
        np.zeros(k, dtype=np.bool_),
        k + np.arange(R),
        key,
        np.zeros(R, dtype=np.int64),
        place,
        np.zeros((R, R)),
        np.zeros(R),
        price.copy(),
    )


def _spare(root: loops.Node) -> loops.Spare:
    k, R, G = len(root.banned), len(root.low), len(root.key)
    return loops.Spare(
        np.zeros(R),
        np.zeros(R),
        np.zeros((R, R)),
        np.zeros(R),
        np.zeros(R),
        np.zeros(R),
        np.zeros(k),
        np.zeros(G),
        np.zeros(G),
        np.zeros(G, dtype=np.int64),
        np.zeros((G + 1, R)),
        np.zeros((G + 1, R)),
        np.zeros(3),
        loops.Node(*(part.copy() for part in root)),
        np.zeros(R + G, dtype=np.int64),
        np.zeros(R + G),
        np.zeros(2),
        np.zeros(2, dtype=np.int64),
        np.zeros(2),
    )


def _waiting(k: int, R: int, G: int) -> loops.Waiting:
    """Return empty places; clearing the memory of all of them takes longer than most searches."""
    return loops.Waiting(
        np.full(WAITING, -np.inf),
        np.empty((WAITING, R)),
        np.empty((WAITING, R)),
        np.empty((WAITING, k), dtype=np.bool_),
        np.empty((WAITING, R), dtype=np.int32),
        np.empty((WAITING, G), dtype=np.int32),
        np.empty((WAITING, R), dtype=np.int8),
    )
