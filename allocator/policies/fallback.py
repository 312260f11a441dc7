"""The last resort of all policies: any plan that keeps every hard rule, or why there is none."""

from __future__ import annotations

import dataclasses
import math

from allocator.errors import NoPlanInTime
from allocator.policies.base import Proposal, Task
from allocator.policies.conflict import raise_if_infeasible
from allocator.solvers.base import WarmStart
from formulations.colocation.rounding import round_pairs


def find_fallback_plan(task: Task) -> Proposal:
    """Return any plan that keeps the rules: the rounded dual, else the first plan of a solver.

    Raises Infeasible if the rules are proven to contradict each other, and NoPlanInTime if the time
    ends before.
    """
    rounded = round_pairs(task.choices, task.dual, task.end_of_rounding, math.inf)
    if rounded is not None:
        return Proposal(rounded, fallback="marginal")
    return find_plan_by_solver(task)


def find_plan_by_solver(task: Task) -> Proposal:
    """Return the first feasible plan of the task's solver; errors as in `find_fallback_plan`."""
    model = task.round.model
    limits = dataclasses.replace(task.remaining(), gap=math.inf)
    solver, _ = task.engine()
    answer = solver.solve(model, limits, WarmStart(None, task.dual.prices))
    if answer.values is not None:
        choice = task.choices.from_x(answer.values)
        if task.choices.feasible(choice):
            return Proposal(choice, fallback=solver.name)
    # the solver has found no plan, so its claim is checked
    raise_if_infeasible(task.round, task.remaining())
    raise NoPlanInTime(
        "no plan that keeps all hard rules was found in time"
        f" ({answer.detail or answer.termination})"
    )
