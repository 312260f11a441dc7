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
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from formulations.bounds.lagrangian import project_prices
from formulations.branching import fields, knapsack_loops, loops
from formulations.compilation import compile_functions, is_kept
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, SparseRows, begins_run

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
    open_field = _Open.of(c, near, nothing, prices, compiled)
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
    def of(
        c: Choices, near: Bools, nothing: Bools, prices: Floats, compiled: bool = False
    ) -> _Open:
        """Return the field of the columns `near` (n,) and of nothing (J,), with prices (m,)."""
        count = np.bincount(c.group[near], minlength=c.J) + nothing
        groups, settled = np.flatnonzero(count > 1), np.full(c.J, -1)
        alone = np.flatnonzero(near & (count == 1)[c.group])
        settled[c.group[alone]] = alone
        use, matrix = c.use_of(settled), c.matrix
        column, sides, can_hold, heads, entries = kernel(compiled, "build_field")(
            groups,
            c.start,
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int64, copy=False),
            matrix.data,
            near,
            nothing,
            c.low - use,
            c.high - use,
            project_prices(c, prices),
            np.array(UNITS),
        )
        can_hold = can_hold and count.all()
        base, value = c.value_of(settled), np.append(c.value, 0.0)[column]
        size = abs(base) + float(np.abs(value).sum())
        field = loops.Field(*(base, size, *heads, value, *entries))
        return _Open(*(settled, groups, column, field, *sides, bool(can_hold)))

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
    module = next(each for each in (loops, knapsack_loops, fields) if hasattr(each, name))
    names = [own for own, part in vars(module).items() if isinstance(part, FunctionType)]
    inner = names[:-2] if module is loops else []
    functions = compile_functions(module, names, inner) if compiled else vars(module)
    loop: Callable[..., Any] = functions[name]
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
    """Compile the loops by searching the plans of one group with one column."""
    one, two = np.zeros(1), np.zeros(2, dtype=np.int64)
    line, cell = one[:, None], two[:1]
    kernel(True, "match")(line, one, line, one, cell, cell, two, one, one, 0.0, 0.0, two[None])
    items = knapsack_loops.Items(two, cell, one, cell + 1, one > 0)
    kernel(True, "improve_prices")(items, cell, cell, one == 0, one, one, 0.0, 1.0)
    matrix, every = SparseRows(one + 1, cell, np.array([0, 1]), (1, 1)), one == 0
    smallest = Choices.of_columns(one + 1, cell, ~every, one - np.inf, one, matrix)
    search_plans(smallest, every, every, 0.0, 0.0, one, 1)


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
