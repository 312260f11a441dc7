"""The policy `horizon`: plans for several intervals at once, of which the first interval is carried
out.

Every round looks H intervals ahead ([horizon] rounds of config.toml, or --horizon) with
allocator/solvers/horizon: the pause of a change is set against what it brings in all of them, a job
that ends soon against what its GPUs bring afterwards, and machines that are announced to come or go
are planned with. What was planned for later is planned anew, from the plans of the round before
where they are known. Formulas: formulations/README.md, section "The horizon".

GPUs that are announced to go within the coming interval are left to nobody, as whoever holds them
loses work; where the rules allow no such plan, they are used as long as they are there.

Plans are found by prices and rounding. A solver is asked only if one is named (--solver): it finds
a little more in small rounds, and as its turns are measured in seconds, the plan may then depend on
the machine.

H = 1 is the single round and left to `mip`, as is what the look ahead does not know: objectives
that are not linear in work and time, rounds in which jobs may share GPUs, those in which it found
no plan or failed, and those with too little time to look.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from allocator.domain.columns import HORIZON
from allocator.errors import Infeasible, NoPlanInTime
from allocator.options.ahead import ahead, linear_objective
from allocator.options.announced import fixed_gpus, gpus_ahead, same_options, with_gpus
from allocator.policies.base import Decision, Task
from allocator.policies.memory import Plans
from allocator.policies.optimise import mip
from allocator.policies.rescue import last_resort
from allocator.solvers.base import Limits
from allocator.solvers.horizon import Ahead, Start, look_ahead
from formulations.horizon_pricing import has_numba
from formulations.linear import Ints

# with less time left no look ahead begins: loading the compiled pricing takes most of it
LEAST_S = 1.5
# of the time left is the look ahead's; steps overrun, and `mip` may have to answer
SHARE = 0.6
# runs of options in a look ahead without compiled pricing: five intervals of 1,000 jobs, 4 s
REACH = 170_000
# asked gap at least: what is planned beyond the first interval is a guess anyway
COARSEST = 1e-2


def horizon(task: Task) -> Decision:
    """The first interval of the best plans found. Errors as of `mip`."""
    asked = int(task.round.problem.settings.get("horizon", {}).get("rounds", HORIZON[0].default))
    gpus = gpus_ahead(task.round.problem, asked)
    now = task.round.instance.capacity
    gpus[0] = np.maximum(gpus[0], np.minimum(now, fixed_gpus(task.round)))
    if (gpus[0] < now).any():
        try:
            return _decided(task, gpus, asked)
        # of a rule that asks for GPUs that will go
        except (Infeasible, NoPlanInTime):
            gpus[0] = now
    return _decided(task, gpus, asked)


def _decided(task: Task, gpus: Ints, asked: int) -> Decision:
    """The decision with what the pools have in each interval, (H, P)."""
    seen = task
    if (gpus != task.round.instance.capacity).any():
        seen = dataclasses.replace(task, round=with_gpus(task.round, gpus), prices=None)
    decision = _of(seen, gpus[: _within_reach(asked, seen)], asked)
    if seen is task:
        return decision
    # what was proven holds for the GPUs that were planned with
    ended = "heuristic" if decision.termination == "gap" else decision.termination
    return dataclasses.replace(
        decision,
        choice=same_options(seen.round, decision.choice, task.round),
        bound=math.inf,
        bound_by="",
        termination=ended,
    )


def _of(task: Task, gpus: Ints, asked: int) -> Decision:
    H, left_s = len(gpus), task.deadline - time.monotonic()
    if H == 1 or not len(task.round.instance.job):
        return mip(task)
    if linear_objective(task.round.problem.objective) is None:
        return _single(task, f"the objective {task.round.problem.objective} has no look ahead")
    if (task.round.instance.host >= 0).any():
        return _single(task, "jobs may share GPUs, which a look ahead does not know")
    if left_s < LEAST_S:
        return _single(task, f"{left_s:.1f} s are too short to look ahead", "time_limit")
    try:
        x = ahead(task.round, task.choices, gpus)
        limits = Limits(SHARE * left_s, max(task.limits.gap, COARSEST), 1, task.limits.seed)
        found = look_ahead(x, limits, _start(task, H), task.solver)
    except (Infeasible, NoPlanInTime):
        raise
    # whatever it is, the round has a plan
    except Exception as error:
        return _single(task, f"the look ahead failed: {type(error).__name__}: {error}")
    if found.plan is None or not task.choices.feasible(found.plan[:, 0]):
        return _single(task, f"no plan of {H} intervals was found")
    late = math.isfinite(left_s) and found.seconds >= SHARE * left_s * 0.9
    return Decision(
        found.plan[:, 0].copy(),
        termination="time_limit" if late else "heuristic",
        solver_choice=_told(found, H, asked),
        plans=Plans.of(task.round, task.choices.rows, found.plan, found.prices),
    )


def _within_reach(H: int, task: Task) -> int:
    """As many of the intervals as arrays can look at in a few seconds, at least two; all where
    pricing is compiled.
    """
    if has_numba():
        return H
    n = max(1, len(task.round.option))
    # n H (H + 1) / 2 <= REACH
    return min(H, max(2, int((math.sqrt(8.0 * REACH / n + 1.0) - 1.0) / 2.0)))


def _start(task: Task, H: int) -> Start:
    """The plans and prices of the round before; without them the single round's prices in all
    intervals. What runs goes on, where the rules allow it (the look ahead tries that anyway); where
    something has to be used or kept, else any plan that does."""
    if task.plans is not None:
        plan, prices = task.plans.start(task.round, task.choices.rows, H)
        if task.choices.feasible(plan[:, 0]):
            return Start(plan, prices)
    else:
        prices = np.tile(task.dual.prices[task.choices.rows], (H, 1))
    stay: Ints = task.round.stay()
    if task.choices.feasible(stay) or not (
        np.isfinite(task.choices.low).any() or task.choices.must.any()
    ):
        return Start(None, prices)
    return Start(np.repeat(last_resort(task).choice[:, None], H, axis=1), prices)


def _single(task: Task, why: str, ended: str | None = None) -> Decision:
    """The single round's plan; ended: its termination, that of `mip` if None."""
    decision = mip(task)
    told = f"{why}; {decision.detail}" if decision.detail else why
    return dataclasses.replace(
        decision,
        fallback=decision.fallback or "mip",
        detail=told,
        termination=ended or decision.termination,
    )


def _told(found: Ahead, H: int, asked: int) -> str:
    gap = f"within {found.gap:.2%} of the best" if math.isfinite(found.gap) else "without a bound"
    return f"look ahead: {H}{'' if asked == H else f' of {asked}'} intervals, {gap}"
