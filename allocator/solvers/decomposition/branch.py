"""Small MIPs: a heuristic around the best plan, or a proof over all columns of better plans.

Reduced-cost test: at prices p with bound L(p), a plan that uses a column of loss d has at most the
value L(p) - d. With a plan of value V known, columns with d > L(p) - V are in no better plan, so a
MIP over the other columns is a proof for all plans.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.solvers.decomposition.core import RestrictedMaster
from allocator.solvers.decomposition.pricing import (
    losses,
    select_doubtful_columns,
    select_largest_groups,
)
from allocator.solvers.decomposition.primal import round_solution
from formulations.bounds.lagrangian import Dual
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

OnPlan = Callable[[Ints, float], None]


@dataclass(frozen=True)
class Neighbourhood:
    """Columns (k,) and groups (J,) that a MIP may change.

    `exact` is True if no better plan lies outside.
    """

    columns: Ints
    free: Bools
    exact: bool


@dataclass(frozen=True)
class BranchResult:
    """Result of a MIP.

    Attributes
    ----------
    plan : (J,), optional
        Best plan that was found.
    bound : float
        No plan of the neighbourhood has a higher value.
    status : str
        Status of HiGHS.
    """

    plan: Ints | None
    bound: float
    status: str


def find_surviving_columns(
    choices: Choices, dual: Dual, plan: Ints | None, credit: Floats | None = None
) -> Neighbourhood:
    """Return all columns that a plan better than `plan` may use; without a plan, every column.

    credit (J,) is what the bound lost by keeping rows (formulations/bounds/knapsacks, at the same
    prices). A column already pays for the rows of its own block, so its group gets the credit back.
    """
    slack = np.full(choices.J, math.inf)
    if plan is not None:
        given = np.zeros(choices.J) if credit is None else credit
        # one number per block; groups with equal credit count as one block
        blocks = np.unique(given)
        slack = dual.bound - blocks.sum() - choices.value_of(plan) + given + 1e-9 * abs(dual.bound)
    loss = losses(choices, dual)
    near = loss <= slack[choices.group]
    nothing = np.where(choices.mandatory, np.inf, dual.reduced) <= slack
    count = np.bincount(choices.group[near], minlength=choices.J) + nothing
    free = count > 1
    return _field(choices, near & free[choices.group], free, plan, dual, True)


def neighbourhood(
    choices: Choices, dual: Dual, plan: Ints, fractional: Ints, want: int
) -> Neighbourhood:
    """Return the columns around a plan that a better plan may use.

    They are near ties, and the columns of fractional groups, of groups that the plan moved away
    from their best column, and of the most valuable groups.
    """
    loss = losses(choices, dual)
    columns, free = select_doubtful_columns(choices, dual, loss, want)
    near = np.zeros(choices.n, dtype=bool)
    near[columns] = True
    extra = choices.columns_of(
        np.union1d(fractional, select_largest_groups(choices, want)).astype(np.int64)
    )
    extra = extra[loss[extra] < dual.bound - choices.value_of(plan)]
    near[extra] = True
    free[choices.group[extra]] = True
    free[plan != dual.choice] = True
    return _field(choices, near, free, plan, dual, False)


def _field(
    choices: Choices, near: Bools, free: Bools, plan: Ints | None, dual: Dual, exact: bool
) -> Neighbourhood:
    """Return the neighbourhood, with the columns that the plan and the prices chose."""
    for held in (dual.choice, plan):
        if held is not None:
            own = held[free]
            near[own[own >= 0]] = True
    return Neighbourhood(np.flatnonzero(near & free[choices.group]), free, exact)


def solve_neighbourhood(
    choices: Choices,
    plan: Ints | None,
    fallback: Ints,
    field: Neighbourhood,
    value_scale: float,
    gap: float,
    target: float,
    nodes: int,
    until: float,
    on_plan: OnPlan,
) -> BranchResult:
    """Solve the MIP of the neighbourhood `field` by HiGHS, from `plan`.

    Groups outside keep their column of `fallback`. The search ends when the bound is within `gap`
    (in units of the value), at the value `target`, after `nodes` nodes (the same on every machine),
    or at `until` (time.monotonic). on_plan receives every better plan with the bound at that time.
    """
    core = RestrictedMaster(choices, field.free, fallback, field.columns, value_scale)
    core.load(True, None)
    engine: Any = core.engine
    base = core.base
    # presolve pays on what the reduced-cost test leaves (2.5 times), unlike on whole models
    options: dict[str, Any] = {
        "presolve": "on",
        "mip_rel_gap": 0.0,
        "mip_abs_gap": max(0.0, gap) / value_scale,
        "mip_detect_symmetry": False,
        "mip_max_nodes": nodes,
        "mip_feasibility_tolerance": 1e-9,
        "primal_feasibility_tolerance": 1e-9,
    }
    if math.isfinite(target):
        options["objective_target"] = (base - target) / value_scale
        options["mip_max_stall_nodes"] = max(50, nodes // 4)
    if math.isfinite(until):
        options["time_limit"] = max(0.01, until - time.monotonic())
    for name, value in options.items():
        engine.setOptionValue(name, value)
    if plan is not None:
        start = np.concatenate(
            [np.zeros(core.penalties), np.isin(core.columns, plan[plan >= 0]).astype(float)]
        )
        engine.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)

    def upper(dual_bound: float) -> float:
        known = math.isfinite(dual_bound)
        return (
            float(base - dual_bound * value_scale)
            + 1e-9 * (abs(base) + abs(dual_bound) * value_scale)
            if known
            else math.inf
        )

    def better(event: Any) -> None:
        x = np.array(event.data_out.mip_solution)[core.penalties :]
        on_plan(round_solution(core, x), upper(event.data_out.mip_dual_bound))

    def late(event: Any) -> None:
        if time.monotonic() > until:
            event.interrupt()

    engine.cbMipImprovingSolution += better
    engine.cbMipInterrupt += late
    engine.run()
    info = engine.getInfo()
    status = engine.getModelStatus()
    name = str(engine.modelStatusToString(status))
    if status == core.kinds.kInfeasible:
        return BranchResult(None, -math.inf, name)
    bound = upper(info.mip_dual_bound)
    if info.primal_solution_status != core.feasible_status:
        return BranchResult(None, bound, name)
    return BranchResult(
        round_solution(core, np.array(engine.getSolution().col_value)[core.penalties :]),
        bound,
        name,
    )
