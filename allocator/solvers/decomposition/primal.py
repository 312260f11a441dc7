"""Plans from the LP solution of the core: a dive that fixes large fractional groups one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from allocator.solvers.decomposition.core import RestrictedMaster
from allocator.solvers.decomposition.pricing import Relaxation, find_violated_columns
from formulations.bounds.lagrangian import evaluate, spread_prices
from formulations.model.linear import Bools, Floats, Ints

WHOLE = 1e-6  # closer to 0 or 1 than this counts as whole
OPTIONS = 6  # columns of a group that the dive tries
LUMP = 10.0  # times `skip`: a fractional group of more value makes the first rounding useless
# most columns that repricing adds at once, so that a hot start stays fast
MISSING = 140
# numbers of settled groups after which the LP solution is rounded
STOPS = (0, 1, 3, 8, 16, 32, 64)


def dive_for_plan(relaxation: Relaxation, skip: float, until: float) -> Iterator[Ints]:
    """Fix fractional groups, the most valuable first, each at the column whose LP is best.

    The LP is solved by a hot dual simplex. Choices (J,) are yielded at STOPS and at the end; they
    may still break rows. Groups whose values together stay below `skip` are left to rounding.
    """
    core = relaxation.core
    c = relaxation.core.choices
    core.set_penalty(None)
    if not core.run(False):
        yield round_solution(core, relaxation.x)
        return
    x, p, u = core.solution()
    settled = np.zeros(c.J, dtype=bool)
    for turn in range(STOPS[-1] + 1):
        j, size = _largest_open(core, x, settled, skip)
        if turn in STOPS and (turn > 1 or size <= LUMP * skip):
            yield round_solution(core, x)
        if j < 0 or time.monotonic() >= until:
            break
        settled[j] = True
        before = core.objective()
        _fix_group(core, j, x, p, before - float(u[j]))
        if not core.run(False):
            break
        if before - core.objective() > 0.25 * skip and not _reprice(core, settled, 0.1 * skip):
            break
        x, p, u = core.solution()
    yield round_solution(core, x)


def _reprice(core: RestrictedMaster, settled: Bools, tol: float, turns: int = 4) -> bool:
    """Bring in the columns that the LP has missed since a large group was fixed.

    It ends when they can add less than tol. The result is False if HiGHS fails.
    """
    for _ in range(turns):
        _, p, u = core.solution()
        here = evaluate(core.choices, spread_prices(core.choices, p))
        new, groups, missing = find_violated_columns(core, here, p, u, ~settled, MISSING)
        if missing <= tol or (not len(new) and not len(groups)):
            return True
        core.add(new, groups)
        if not core.run(True):
            return False
    return True


def _fix_group(core: RestrictedMaster, j: int, x: Floats, p: Floats, rest: float) -> None:
    """Fix group j at the option where the LP loses least.

    The columns that the LP or the prices prefer are tried. `rest` is the value of the LP without
    what it pays for the group.
    """
    c = core.choices
    core.add(c.columns_of(np.array([j])))
    mine = np.flatnonzero(c.group[core.columns] == j)
    part = np.append(x, np.zeros(len(core.columns) - len(x)))[mine] > WHOLE
    reduced = c.value[core.columns[mine]] - c.matrix[core.columns[mine]] @ p
    order = np.lexsort((-reduced, ~part))[:OPTIONS]
    tried = [(int(mine[k]), float(reduced[k])) for k in order]
    best = -math.inf
    at = None
    for option, column_value in [*tried, *([] if c.mandatory[j] else [(-1, 0.0)])]:
        if rest + column_value <= best:  # by its reduced value the option cannot do better
            continue
        core.bound_columns(mine, (mine == option).astype(float), (mine == option).astype(float))
        if core.run(False) and core.objective() > best:
            best = core.objective()
            at = option
    # no column of this group keeps the rows: leave it to rounding
    if at is None:
        core.bound_columns(mine, np.zeros(len(mine)), np.ones(len(mine)))
    else:
        core.bound_columns(mine, (mine == at).astype(float), (mine == at).astype(float))


def _largest_open(
    core: RestrictedMaster, x: Floats, settled: Bools, skip: float
) -> tuple[int, float]:
    """Return the open group of the most valuable fractional column, and the column's value.

    The group is -1 if no open column has a value of at least `skip`.
    """
    c = core.choices
    part = np.flatnonzero((x > WHOLE) & (x < 1 - WHOLE))
    part = part[~settled[c.group[core.columns[part]]]]
    if not len(part):
        return -1, 0.0
    groups, inverse = np.unique(c.group[core.columns[part]], return_inverse=True)
    top = np.zeros(len(groups))
    np.maximum.at(top, inverse, np.abs(c.value[core.columns[part]]))
    return int(groups[np.argmax(top)]) if top.sum() > skip else -1, float(top.max())


def round_solution(core: RestrictedMaster, x: Floats) -> Ints:
    """Return the choice (J,) of an LP solution.

    Fixed groups keep their column. A core group takes the column with more than one half of it, or
    nothing.
    """
    choice = core.fixed.copy()
    on = np.flatnonzero(x > 0.5)
    choice[core.choices.group[core.columns[on]]] = core.columns[on]
    return choice
