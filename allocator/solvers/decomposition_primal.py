"""Plans from the core: a dive that settles the large fractional groups, and a small MIP around the best plan."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from allocator.solvers.decomposition_core import Core
from allocator.solvers.decomposition_pricing import Relaxation, doubtful, losses, lumps
from formulations.choices import Choices
from formulations.lagrangian import Dual, project, spread
from formulations.linear import Floats, Ints

WHOLE = 1e-6             # closer to 0 or 1 than this counts as whole
OPTIONS = 6              # columns of a group that the dive tries
SOLVES = 600             # LPs of one dive


def dive(relaxation: Relaxation, skip: float, until: float) -> tuple[Ints, Floats]:
    """Settle fractional groups, the most valuable first, each at the column whose LP is best (hot dual simplex).

    Groups whose values together stay below `skip` are left to rounding. Returns the choice (J,) of whole groups (-1
    for what is still open) and the prices (R,) of the last LP.
    """
    core, c = relaxation.core, relaxation.core.choices
    core.set_penalty(None)
    if not core.run(False):
        core.set_penalty(_soft(core))
        core.run(True)
        return rounded(core, relaxation.x), project(c, relaxation.dual.prices)
    x, p, _ = core.solution()
    settled = np.zeros(c.J, dtype=bool)
    solves = 1
    while solves < SOLVES and time.monotonic() < until:
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
            solves += 1
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
    return rounded(core, x), project(c, spread(c, p))


def _soft(core: Core) -> Floats:
    return np.full(core.choices.R, 1e3 * core.worth)


def _largest_open(core: Core, x: Floats, settled: np.ndarray, skip: float) -> int:
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


def neighbourhood(choices: Choices, dual: Dual, plan: Ints, open_groups: Ints, want: int) -> tuple[Ints, np.ndarray]:
    """Columns and groups (J,) of a small MIP around a plan: near ties, fractional groups, groups that the plan moved
    away from their best, and lumps with the columns that a better plan may still use (reduced cost test)."""
    loss = losses(choices, dual)
    columns, free = doubtful(choices, dual, loss, want)
    slack = dual.bound - choices.value_of(plan)
    extra = choices.columns_of(np.union1d(open_groups, lumps(choices, want)).astype(np.int64))
    extra = extra[loss[extra] < slack]
    columns = np.union1d(columns, extra)
    free[choices.group[extra]] = True
    moved = np.flatnonzero(plan != dual.choice)
    free[moved] = True
    held = np.concatenate([plan[free], dual.choice[free]])
    return np.union1d(columns, held[held >= 0]), free


def improve(choices: Choices, dual: Dual, plan: Ints, around: tuple[Ints, np.ndarray], worth: float, target: float,
            nodes: int, until: float) -> tuple[Ints | None, str]:
    """The best plan that HiGHS finds in the neighbourhood, started from `plan`; stops at the value `target`.

    Returns None if there is nothing better or nothing feasible. Effort is limited by nodes and stalled nodes, so that
    it is the same on every machine; `until` (time.monotonic) is the emergency brake.
    """
    columns, free = around
    core = Core(choices, free, plan, columns, worth)
    core.load(True, None)
    engine: Any = core.engine
    start = np.concatenate([np.zeros(core.penalties), np.isin(columns, plan[plan >= 0]).astype(float)])
    options = {"mip_rel_gap": 0.0, "mip_abs_gap": 0.0, "mip_detect_symmetry": False, "mip_max_nodes": nodes,
               "mip_max_stall_nodes": max(50, nodes // 4), "mip_feasibility_tolerance": 1e-9,
               "primal_feasibility_tolerance": 1e-9, "objective_target": (core.base - target) / worth,
               "time_limit": max(0.01, until - time.monotonic())}
    for name, value in options.items():
        engine.setOptionValue(name, value)
    engine.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)

    def stop(event: Any) -> None:
        if time.monotonic() > until:
            event.interrupt()

    engine.cbMipInterrupt += stop
    engine.run()
    if engine.getInfo().primal_solution_status != core._hp.kSolutionStatusFeasible:
        return None, "no plan"
    x = np.array(engine.getSolution().col_value)[core.penalties:]
    return rounded(core, x), str(engine.modelStatusToString(engine.getModelStatus()))
