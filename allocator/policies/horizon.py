"""The policy `horizon`: plans for several intervals at once, of which the first is carried out.

Every round looks H intervals ahead ([horizon] rounds of config.toml, or --horizon) with
allocator/solvers/horizon. The pause of a change is compared with its gain over all intervals, a job
that ends soon with what its GPUs bring afterwards, and announced machines are part of the plan.
Later intervals are planned again in the next round, from the previous plans where they are known.
Formulas: formulations/README.md, section "The horizon".

GPUs that are announced to leave within the coming interval are given to no job, because it would
lose work. If the rules allow no such plan, they are used as long as they are present.

Plans are found by prices and rounding. A solver is called only if one is named (--solver): it finds
a little more in small rounds, but its turns are measured in seconds, so the plan may then depend on
the machine.

`mip` decides in the other cases: H = 1, objectives that are not linear in work and time, rounds
with colocation, rounds without a plan of several intervals or with a failed search, and rounds with
too little time.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from allocator.domain.schema.columns import HORIZON
from allocator.errors import Infeasible, NoPlanInTime
from allocator.options.announced_capacity import fixed_gpus, gpus_ahead, with_gpus
from allocator.options.instance_building import same_columns
from allocator.options.look_ahead import build_horizon, linear_objective
from allocator.policies.base import LookAheadPlans, Proposal, Task
from allocator.policies.fallback import find_fallback_plan
from allocator.policies.mip import mip
from allocator.solvers.base import SolveLimits
from allocator.solvers.horizon import HorizonStart, look_ahead
from formulations.model.linear import Ints

# with less time left no look ahead begins: loading the compiled pricing takes most of it
LEAST_S = 1.5
# share of the time left for the look ahead; its steps overrun, and `mip` may have to answer
SHARE = 0.6
# least gap that is asked for, because plans beyond the first interval are uncertain anyway
COARSEST = 1e-2


def horizon(task: Task) -> Proposal:
    """Return the first interval of the best plans found; the errors are those of `mip`."""
    rounds = int(task.round.problem.settings.get("horizon", {}).get("rounds", HORIZON[0].default))
    gpus = gpus_ahead(task.round.problem, rounds)
    now = task.round.instance.capacity
    gpus[0] = np.maximum(gpus[0], np.minimum(now, fixed_gpus(task.round)))
    if (gpus[0] < now).any():
        try:
            return _propose(task, gpus)
        # because of a rule that requires GPUs that will leave
        except (Infeasible, NoPlanInTime):
            gpus[0] = now
    return _propose(task, gpus)


def _propose(task: Task, gpus: Ints) -> Proposal:
    """Return the proposal with the GPUs of the pools in each interval, (H, P)."""
    seen = task
    if (gpus != task.round.instance.capacity).any():
        seen = dataclasses.replace(task, round=with_gpus(task.round, gpus), prices=None)
    proposal = _plan_intervals(seen, gpus)
    if seen is task:
        return proposal
    # the proof holds for the GPUs of the plan only
    ended = "heuristic" if proposal.termination == "gap" else proposal.termination
    return dataclasses.replace(
        proposal,
        choice=same_columns(seen.round, proposal.choice, task.round),
        bound=math.inf,
        bound_by="",
        termination=ended,
        task=None,
    )


def _plan_intervals(task: Task, gpus: Ints) -> Proposal:
    H, left_s = len(gpus), task.deadline - time.monotonic()
    if H == 1 or not len(task.round.instance.job):
        return mip(task)
    if linear_objective(task.round.problem.objective) is None:
        return _propose_single_round(
            task, f"the objective {task.round.problem.objective} has no look ahead"
        )
    if (task.round.instance.primary >= 0).any():
        return _propose_single_round(task, "jobs may share GPUs, which a look ahead does not know")
    if left_s < LEAST_S:
        return _propose_single_round(
            task, f"{left_s:.1f} s are too short to look ahead", "time_limit"
        )
    try:
        x = build_horizon(task.round, task.choices, gpus)
        limits = SolveLimits(SHARE * left_s, max(task.limits.gap, COARSEST), 1, task.limits.seed)
        ahead = look_ahead(x, limits, _start_search(task, H), task.solver)
    except (Infeasible, NoPlanInTime):
        raise
    # whatever the failure is, the round gets a plan
    except Exception as error:
        return _propose_single_round(
            task, f"the look ahead failed: {type(error).__name__}: {error}"
        )
    if ahead.plan is None or not task.choices.feasible(ahead.plan[:, 0]):
        return _propose_single_round(task, f"no plan of {H} intervals was found")
    gap = f"within {ahead.gap:.2%} of the best" if math.isfinite(ahead.gap) else "without a bound"
    late = math.isfinite(left_s) and ahead.seconds >= SHARE * left_s * 0.9
    return Proposal(
        ahead.plan[:, 0].copy(),
        termination="time_limit" if late else "heuristic",
        solver_choice=f"look ahead: {H} intervals, {gap}",
        plans=LookAheadPlans.of(task.round, task.choices.rows, ahead.plan, ahead.prices),
    )


def _start_search(task: Task, H: int) -> HorizonStart:
    """Return plans and prices to start from: those of the previous round.

    Without them the single round's prices hold in all intervals. Running jobs continue if the rules
    allow it (the look ahead tries that in any case). If rows have lower bounds, any plan that keeps
    them is used.
    """
    if task.plans is not None:
        plan, prices = task.plans.restart_from(task.round, task.choices.rows, H)
        if task.choices.feasible(plan[:, 0]):
            return HorizonStart(plan, prices)
    else:
        prices = np.tile(task.dual.prices[task.choices.rows], (H, 1))
    unchanged_choice: Ints = task.round.unchanged_choice()
    if task.choices.feasible(unchanged_choice) or not (
        np.isfinite(task.choices.low).any() or task.choices.mandatory.any()
    ):
        return HorizonStart(None, prices)
    return HorizonStart(np.repeat(find_fallback_plan(task).choice[:, None], H, axis=1), prices)


def _propose_single_round(task: Task, why: str, ended: str | None = None) -> Proposal:
    """Return the single round's plan; `ended` replaces its termination."""
    proposal = mip(task)
    detail = f"{why}; {proposal.detail}" if proposal.detail else why
    return dataclasses.replace(
        proposal,
        fallback=proposal.fallback or "mip",
        detail=detail,
        termination=ended or proposal.termination,
    )
