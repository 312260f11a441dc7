"""Decide one round: from a Problem to an audited decision.

Every plan leaves the package this way:

    Problem -> compile_round -> policy (with dual prices if it wants them) -> audit -> bound ->
    Plan
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial

import numpy as np

from allocator.audit import Audit, audit
from allocator.domain.objectives import normalise
from allocator.domain.plan import Plan
from allocator.domain.problem import NO_PLACEMENTS, Bools, Ints, Problem
from allocator.domain.settings import checked_horizon
from allocator.engine.causes import FEW, REASONS_GAP, CauseSearch, DecisionSearch, PlanSearch
from allocator.engine.decided import Decision, tolerance
from allocator.engine.placement.place import PlacePlan, place_plan
from allocator.engine.results import build_result
from allocator.errors import (
    AllocatorError,
    AuditFailure,
    Infeasible,
    NoPlanInTime,
    UsageError,
)
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.options.kept.reservations import due_jobs
from allocator.policies import base as policies
from allocator.policies.base import AnyPolicy, Memory, Policy, Proposal, Task
from allocator.policies.conflict import ReservesGiveWay
from allocator.policies.reserving import find_reservations
from allocator.solvers import registry as solvers
from allocator.solvers.base import SolveLimits, Solver

NO_LIMITS = SolveLimits()
REASONS_S = 2.0  # most seconds for all decisions that reasons need
GIVE_WAY = "no plan keeps {} of reservations.csv beside the other rules: this round goes without"
LEAST_REASONS_S = 0.2  # least seconds for them, even after the time limit

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # numbers of the options in malloc.h of glibc
KEPT = (1 << 31) - 1  # bytes of freed memory that the process keeps, the most that glibc can
PR_SET_THP_DISABLE = 41  # number of the option in prctl.h of Linux


def _compare_accounts(round_: CompiledRound, choice: Ints, witness: Audit) -> Iterator[str]:
    """Yield a fault where the values of the chosen options do not add up to the value of the audit.

    Jobs that share GPUs are valued together, so sums over all jobs are compared.
    """
    claimed = round_.instance.value[choice[choice >= 0]]
    value = float(claimed.sum())
    scale = max(np.abs(claimed).sum(), np.abs(witness.value).sum())
    if not abs(value - witness.objective_value) <= tolerance(float(scale), witness):
        yield (
            f"the options of the plan have the value {value:.9g} in the objective "
            f"{round_.problem.objective}, the plan {witness.objective_value:.9g}"
        )


def decide(
    problem: Problem,
    *,
    policy: AnyPolicy = "mip",
    solver: str | Solver = "auto",
    limits: SolveLimits = NO_LIMITS,
    objective: str | None = None,
    budget: float | None = None,
    horizon: int | None = None,
    seconds: Mapping[str, float] | None = None,
) -> Plan:
    """Decide one round.

    Parameters
    ----------
    problem : Problem
        The round.
    policy : str or callable
        Name in the registry of policies, or a policy.
    solver : str or Solver
        Name in the registry of solvers, or a solver.
    limits : SolveLimits
        limits.time_s counts for the whole decision from this call on.
    objective, budget, horizon : optional
        Override the problem's objective, budget (US dollars per hour) and number of intervals.
    seconds : mapping of str to float, optional
        Wall seconds already spent, by phase ("read", "validate").

    Raises
    ------
    UsageError, Infeasible, NoPlanInTime, AuditFailure
        See allocator/errors.py.
    """
    problem = override_settings(problem, objective, budget, horizon)
    return decide_next_round(
        None, problem, policy=policy, solver=solver, limits=limits, seconds=seconds
    )[0]


def decide_next_round(
    memory: Memory | None,
    problem: Problem,
    *,
    policy: AnyPolicy = "mip",
    solver: str | Solver = "auto",
    limits: SolveLimits = NO_LIMITS,
    seconds: Mapping[str, float] | None = None,
) -> tuple[Plan, Memory]:
    """Decide a round from the memory of the previous one, and return also the memory of this one.

    The memory is None for the first round. The other parameters and the errors are those of
    `decide`.
    """
    begin = time.monotonic()
    decision = decide_round(problem, policy=policy, solver=solver, limits=limits, memory=memory)
    spent = {"read": 0.0, "validate": 0.0} | dict(seconds or {})
    before = spent["read"] + spent["validate"]
    left_s = max(LEAST_REASONS_S, begin + limits.time_s - time.monotonic())
    result = explain_decision(
        problem, decision, policy=policy, solver=solver, limits=limits, seconds=spent, left_s=left_s
    )
    total = round(before + time.monotonic() - begin, 6)
    result = dataclasses.replace(result, seconds={**result.seconds, "total": total})
    return result, Memory.of(
        problem.objective, decision.round.model, decision.prices, decision.proposal.plans
    )


def explain_decision(
    problem: Problem,
    decision: Decision,
    *,
    policy: AnyPolicy,
    solver: str | Solver = "auto",
    limits: SolveLimits = NO_LIMITS,
    seconds: Mapping[str, float] | None = None,
    left_s: float = math.inf,
    whose: Bools | None = None,
) -> Plan:
    """Add prices, reasons and tables to a decision.

    Parameters
    ----------
    policy, solver, limits
        Those that made the decision.
    seconds : mapping of str to float, optional
        Wall seconds by phase that were spent before.
    left_s : float
        Wall seconds at most for the decisions that the reasons need. They are made when a reason is
        first read.
    whose : (J,), optional
        The only jobs that are given a reason.
    """
    spent = {**(seconds or {}), "build": decision.build_s, "solve": decision.solve_s, "total": 0.0}
    problem = dataclasses.replace(problem, kept=decision.round.problem.kept)

    def searches() -> Iterator[CauseSearch]:
        """Yield those that do not go by prices alone; the time begins when reasons are read."""
        by_rules = not policies.policy(policy).prunes
        if decision.proposal.fallback or not (by_rules or len(problem.jobs) <= FEW):
            return
        gap = min(limits.gap, decision.proof[2])
        is_exact = decision.proposal.termination != "gap" or gap <= REASONS_GAP
        reasons_s = min(left_s, REASONS_S)
        if policy == "mip" and not len(problem.nodes) and not decision.round.model.has_pairs:
            yield PlanSearch(decision, reasons_s, is_exact)
        until = time.monotonic() + reasons_s
        yield DecisionSearch(decide_again, problem, decision, until, is_exact)

    def decide_again(changed: Problem, seconds: float) -> Decision | None:
        effort = dataclasses.replace(limits, time_s=seconds, gap=min(limits.gap, REASONS_GAP))
        try:
            decision = decide_round(changed, policy=policy, solver=solver, limits=effort)
        except Infeasible:
            raise
        except AllocatorError:
            return None
        is_cut = decision.proposal.termination == "time_limit" or decision.proposal.fallback
        return None if is_cut else decision

    return build_result(
        decision.round.problem,
        decision,
        policy=policies.name_of(policy),
        seed=limits.seed,
        seconds=spent,
        searches=searches,
        left_s=left_s,
        whose=whose,
    )


def decide_round(
    problem: Problem,
    *,
    policy: AnyPolicy = "mip",
    solver: str | Solver = "auto",
    limits: SolveLimits = NO_LIMITS,
    memory: Memory | None = None,
    place: PlacePlan = place_plan,
) -> Decision:
    """Return the audited decision alone, for callers that decide many rounds.

    `place` puts the jobs of the plan on nodes. Errors are those of `decide`.
    """
    begin = time.monotonic()
    prepare_heap()
    entry = policies.policy(policy)
    engine = solvers.find(solver) if isinstance(solver, str) else solver
    round_ = compile_round(problem, entry.prunes, entry.shares)
    if not entry.prunes:
        round_ = round_.without_new_spread()
    built = time.monotonic()
    known = memory if memory is not None and memory.objective == problem.objective else None
    again = partial(decide_round, policy=policy, solver=solver, place=place)

    def limits_left() -> SolveLimits:
        return dataclasses.replace(limits, time_s=begin + limits.time_s - time.monotonic())

    try:
        task, proposal = run_policy(
            round_, entry.decide, engine, limits, begin + limits.time_s, known, place
        )
    except ReservesGiveWay as given:
        return again(given.problem, limits=limits_left(), memory=memory)
    except Infeasible:
        asked = problem.asked
        if problem.kept or not len(asked):
            raise
        order = np.argsort(asked.at_s, kind="stable")
        gone = ", ".join(f'"{asked.reservation[n]}"' for n in order[len(order) // 2 :])
        warnings = (*problem.warnings, GIVE_WAY.format(gone))
        some = asked.select(order[: len(order) // 2])
        fewer = dataclasses.replace(problem, reservations=some, warnings=warnings)
        return again(fewer, limits=limits_left(), memory=memory)
    if (entry.prunes or entry.reserves) and not problem.kept:
        # decide again with the reservations that the plan calls for
        places = NO_PLACEMENTS if proposal.placed is None else proposal.placed.places
        kept = others = find_reservations(task.round, proposal.choice, places)
        while kept and limits_left().time_s > 0:
            prior = Memory.of(problem.objective, task.round.model, task.dual.prices, proposal.plans)
            with suppress(Infeasible, NoPlanInTime):
                reserved = dataclasses.replace(problem, kept=kept)
                decision = again(reserved, limits=limits_left(), memory=prior)
                pool = decision.allocation.pool
                # one gives way if its job does not start although it is time
                if all(pool[r.job] >= 0 for r in kept if r.after_s == 0):
                    return decision
            kept = kept[: len(kept) // 2]  # no plan keeps them all
            if not kept:  # nor the first alone
                kept = others = others[1:]
    if (due_jobs(problem) & (proposal.choice < 0)).any():
        raise Infeasible(["reservations that begin now, and nodes"], [])
    allocation = task.round.allocation(proposal.choice)
    if proposal.placed is not None:
        allocation = dataclasses.replace(allocation, places=proposal.placed.places)
    witness = audit(task.round.problem, allocation, task.round.repairs, task.round.offer)
    faults = witness.faults or tuple(_compare_accounts(task.round, proposal.choice, witness))
    if faults:
        raise AuditFailure(faults)
    return Decision(task, proposal, allocation, witness, built - begin, time.monotonic() - built)


def run_policy(
    round_: CompiledRound,
    policy: Policy,
    solver: Solver | None,
    limits: SolveLimits,
    deadline: float,
    memory: Memory | None = None,
    place: PlacePlan = place_plan,
) -> tuple[Task, Proposal]:
    """Let the policy decide a compiled round, if possible by `deadline` (time.monotonic).

    Then `place` puts its jobs on nodes, where pools have nodes.
    """
    task = Task(round_, limits, solver, deadline)
    if memory is not None:
        prices, _ = memory.row_prices(round_.model)
        task = dataclasses.replace(task, prices=prices, plans=memory.plans)
    proposal = policy(task)
    if not isinstance(proposal, Proposal):
        name = getattr(policy, "__name__", type(policy).__name__)
        raise TypeError(f'policy "{name}" has to return a Proposal, and returned {proposal!r}')
    task = proposal.task or task
    choice = task.round.with_kept_gpus(proposal.choice)
    proposal = dataclasses.replace(proposal, choice=choice)
    if round_.problem.has_nodes.any():
        task, proposal = place(task, proposal)
    if proposal.placed is None or not proposal.placed.unmet.any():
        return task, proposal
    less = round_.with_less_guaranteed(proposal.placed.unmet)
    return run_policy(less, policy, solver, limits, deadline, place=place)


def override_settings(
    problem: Problem, objective: str | None, budget: float | None, horizon: int | None = None
) -> Problem:
    """Return the problem with another objective, budget or number of intervals.

    Raises
    ------
    UsageError
        A value is invalid.
    """
    if objective is not None:
        try:
            objective = normalise(objective)
        except ValueError as why:
            raise UsageError(f"objective {why}") from None
    if budget is not None and not 0 <= budget < math.inf:
        raise UsageError(f"budget {budget} is not a number of dollars per hour")
    if horizon is not None:
        checked_horizon(horizon)
        problem = dataclasses.replace(
            problem,
            settings={
                **problem.settings,
                "horizon": {**problem.settings.get("horizon", {}), "rounds": horizon},
            },
        )
    if objective is not None:
        problem = dataclasses.replace(problem, objective=objective)
    return problem if budget is None else dataclasses.replace(problem, budget_per_hour=budget)


@cache
def prepare_heap() -> None:
    """Let glibc keep the memory of arrays that are freed, and Linux give it in pages of 4 kB.

    By default glibc returns it to the system, and the pages of the next array are cleared again.
    For arrays of more than 4 MB numpy asks for pages of 2 MB. To find them, Linux may move other
    memory first, which takes longer than the decision gains by them. A round of 500,000 jobs takes
    about half of the time with both.
    """
    with suppress(OSError, AttributeError):  # there is no mallopt without glibc, prctl elsewhere
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
