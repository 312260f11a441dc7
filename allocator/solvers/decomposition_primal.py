"""Plans from the LP solution of the core: a dive that settles the large fractional groups one by one."""

from __future__ import annotations

import math
import time

import numpy as np

from allocator.solvers.decomposition_core import Core
from allocator.solvers.decomposition_pricing import Relaxation
from formulations.linear import Bools, Floats, Ints

WHOLE = 1e-6             # closer to 0 or 1 than this counts as whole
OPTIONS = 6              # columns of a group that the dive tries
SOLVES = 600             # LPs of one dive


def dive(relaxation: Relaxation, skip: float, until: float, solves: int = SOLVES) -> Ints:
    """Settle fractional groups, the most valuable first, each at the column whose LP is best (hot dual simplex).

    Groups whose values together stay below `skip` are left to rounding. Returns a choice (J,) that may
    still break rows.
    """
    core, c = relaxation.core, relaxation.core.choices
    core.set_penalty(None)
    if not core.run(False):
        return rounded(core, relaxation.x)
    x, p, _ = core.solution()
    settled = np.zeros(c.J, dtype=bool)
    while solves > 0 and time.monotonic() < until:
        j = _largest_open(core, x, settled, skip)
        if j < 0:
            break
        settled[j] = True
        core.add(c.columns_of(np.array([j])))
        mine = np.flatnonzero(c.group[core.columns] == j)
        x = np.append(x, np.zeros(len(core.columns) - len(x)))
        reduced = c.value[core.columns[mine]] - c.matrix[core.columns[mine]] @ p
        tried = mine[np.lexsort((-reduced, -(x[mine] > WHOLE).astype(float)))][:OPTIONS].tolist()
        best, at = -math.inf, None
        for option in [*tried, *([] if c.must[j] else [-1])]:
            core.bound_columns(mine, (mine == option).astype(float))
            solves -= 1
            if core.run(False) and core.objective() > best:
                best, at = core.objective(), option
        if at is None:
            core.engine.changeColsBounds(len(mine), (core.penalties + mine).astype(np.int32), np.zeros(len(mine)),
                                         np.ones(len(mine)))
        else:
            core.bound_columns(mine, (mine == at).astype(float))
        if not core.run(False):
            break
        x, p, _ = core.solution()
    return rounded(core, x)


def _largest_open(core: Core, x: Floats, settled: Bools, skip: float) -> int:
    """The open group of the most valuable fractional column; -1 if what is open is worth less than skip."""
    c = core.choices
    part = np.flatnonzero((x > WHOLE) & (x < 1 - WHOLE))
    part = part[~settled[c.group[core.columns[part]]]]
    if not len(part):
        return -1
    groups, inverse = np.unique(c.group[core.columns[part]], return_inverse=True)
    top = np.zeros(len(groups))
    np.maximum.at(top, inverse, np.abs(c.value[core.columns[part]]))
    return int(groups[np.argmax(top)]) if top.sum() > skip else -1


def rounded(core: Core, x: Floats) -> Ints:
    """Fixed groups as fixed, core groups at their column if it is whole, the others at their larger part if it is above
    one half."""
    choice = core.fixed.copy()
    on = np.flatnonzero(x > 0.5)
    choice[core.choices.group[core.columns[on]]] = core.columns[on]
    return choice
