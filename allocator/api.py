"""The verbs of the public API: solve, explain, whatif, audit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.audit import Audit, audit as audit_allocation
from allocator.audit.context import AuditContext
from allocator.domain.allocation import Allocation
from allocator.domain.plan import Plan
from allocator.domain.problem import Ints, State, first_primary, split_names
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decision import decide, override_settings
from allocator.engine.explain import Explanation, explain as explain_job
from allocator.engine.whatif import Comparison, compare
from allocator.errors import UsageError
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import compile_round
from allocator.policies.base import AnyPolicy
from allocator.problem import Problem, as_problem
from allocator.solvers.base import SolveLimits, Solver
from allocator.solvers.effort import GAP

if TYPE_CHECKING:
    from allocator.domain.problem import Problem as CheckedProblem


def solve(
    problem: Problem | Snapshot,
    *,
    policy: AnyPolicy = "mip",
    objective: str | None = None,
    solver: str | Solver = "auto",
    time_limit_s: float = math.inf,
    gap: float = GAP,
    budget: float | None = None,
    horizon: int | None = None,
    seed: int = 0,
    threads: int = 1,
    read_s: float = 0.0,
) -> Plan:
    """Decide one round: which job gets which GPUs. Nothing is printed, nothing is changed.

    Parameters
    ----------
    problem : Problem or Snapshot
        The round; a snapshot is checked first.
    policy : str, Policy or PolicyEntry
        Who decides: the name of a policy, or a function from a `Task` to a `Proposal`.
    objective : str, optional
        What a plan is valued by, instead of the problem's: a name, a sum "a=1,b=0.2", or ranks
        "a > b".
    solver : str or Solver
        Name of a solver, "auto", or an object with the method `solve`.
    time_limit_s : float
        Seconds for the whole decision; a plan is there by then plus one second.
    gap : float
        Relative proof to stop at, (bound - value) / max(abs(value), 1e-9).
    budget : float, optional
        US dollars per hour, instead of the problem's.
    horizon : int, optional
        Intervals that the policy `horizon` plans, instead of the problem's.
    seed, threads : int
        For the solver.
    read_s : float
        Seconds that were spent reading, for the timings of the plan.

    Returns
    -------
    Plan
        The audited decision with its proof, prices and reasons.

    Raises
    ------
    InvalidInput
        If the snapshot breaks rules.
    UsageError
        For names and values that make no sense.
    Infeasible
        If no plan keeps all hard rules.
    NoPlanInTime
        If there was no plan by the time limit.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"), time_limit_s=10)
    >>> plan.status, round(plan.objective_value, 3)
    ('optimal', 7.14)
    """
    limits = _limits(time_limit_s, gap, threads, seed)
    begin = time.monotonic()
    checked = as_problem(problem).checked
    validate_s = time.monotonic() - begin
    return decide(
        checked,
        policy=policy,
        solver=solver,
        limits=SolveLimits(max(0.0, limits.time_s - validate_s), gap, threads, seed),
        objective=objective,
        budget=budget,
        horizon=horizon,
        seconds={"read": read_s, "validate": validate_s},
    )


def explain(
    problem: Problem | Snapshot,
    job_id: str,
    *,
    policy: AnyPolicy = "mip",
    objective: str | None = None,
    solver: str = "auto",
    time_limit_s: float = math.inf,
    gap: float = GAP,
    budget: float | None = None,
    horizon: int | None = None,
    seed: int = 0,
    threads: int = 1,
    tries: int | None = None,
) -> Explanation:
    """Explain what one job gets, and search for changes that would give it more.

    Parameters
    ----------
    problem : Problem or Snapshot
        The round.
    job_id : str
        The job.
    policy, objective, solver, time_limit_s, gap, budget, horizon, seed, threads
        As of `solve`; the limits hold for each decision made on the way.
    tries : int, optional
        Decisions that the search may make. Default: fewer where the round has more options.

    Returns
    -------
    Explanation
        Reason, price to beat, verified changes, and who would lose.

    Raises
    ------
    UsageError
        For an unknown job, and for names and values that make no sense.
    InvalidInput, Infeasible, NoPlanInTime
        As of `solve`.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.explain(problem, "pretrain").got["reason"]
    'outranked'
    """
    limits = _limits(time_limit_s, gap, threads, seed)
    command = SolveCommand(policy, objective, budget, horizon, solver, limits)
    return explain_job(as_problem(problem).snapshot, job_id, command, tries=tries)


def whatif(
    problem: Problem | Snapshot,
    values: Mapping[str, Any],
    *,
    policy: AnyPolicy = "mip",
    objective: str | None = None,
    solver: str = "auto",
    time_limit_s: float = math.inf,
    gap: float = GAP,
    seed: int = 0,
    threads: int = 1,
) -> Comparison:
    """Decide the round as it is and with other values, and compare both plans.

    Parameters
    ----------
    problem : Problem or Snapshot
        The round.
    values : mapping of str to object
        New values by place, as of `Problem.change`.
    policy, objective, solver, time_limit_s, gap, seed, threads
        As of `solve`; the limits hold for each of the two decisions.

    Returns
    -------
    Comparison
        Jobs that differ, and value, work and dollars of both plans.

    Raises
    ------
    UsageError
        For a place that does not exist, and for names and values that make no sense.
    InvalidInput, Infeasible, NoPlanInTime
        As of `solve`, for either round.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> more = allocator.whatif(problem, {"pools.v100.gpus": 12})
    >>> more.gpus
    (15, 18)
    """
    limits = _limits(time_limit_s, gap, threads, seed)
    command = SolveCommand(policy, objective, solver=solver, limits=limits)
    before, after = (
        command.decide(override_settings(one.checked, objective, None))
        for one in (as_problem(problem), as_problem(problem).change(values))
    )
    return compare(before, after, values)


def audit(
    problem: Problem | Snapshot,
    plan: Plan | Mapping[str, tuple[str, int]],
    *,
    objective: str | None = None,
) -> Audit:
    """Check a plan against every hard rule and recompute its value.

    Parameters
    ----------
    problem : Problem or Snapshot
        The round.
    plan : Plan or mapping of str to (str, int)
        A plan of `solve`, or (pool, GPUs) by job; a job that is not named gets nothing.
    objective : str, optional
        What the plan is valued by, instead of the problem's.

    Returns
    -------
    Audit
        Faults, and value, speed and cost of every job. A legal plan has no faults.

    Raises
    ------
    UsageError
        For an unknown job or pool.
    Infeasible
        If no plan keeps all hard rules.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.audit(problem, allocator.solve(problem)).faults
    ()
    >>> allocator.audit(problem, {"pretrain": ("a100", 16)}).faults[0]
    'job "pretrain" gets 16 GPUs of pool "a100", outside its range 1 to 8'
    """
    checked = override_settings(as_problem(problem).checked, objective, None)
    round_ = compile_round(checked, True, PairOffer.RUNNING)
    allocation = _allocation(checked, plan)
    context = AuditContext(checked, allocation, round_.repairs, round_.offer)
    stated = replace(allocation, row=context.row)
    return audit_allocation(checked, stated, round_.repairs, round_.offer)


def _allocation(problem: CheckedProblem, plan: Plan | Mapping[str, tuple[str, int]]) -> Allocation:
    """Turn a plan into numbers of jobs and pools; every rate row is left open."""
    number = {name: j for j, name in enumerate(problem.jobs.job_id)}
    pools = {name: p for p, name in enumerate(problem.pools.pool)}
    pool = np.full(len(number), -1)
    gpus = np.zeros(len(number), int)
    primary = np.full(len(number), -1)
    gets = _holdings(plan) if isinstance(plan, Plan) else dict(plan)
    for name, (place, size) in gets.items():
        if name not in number:
            raise UsageError(f'no job "{name}" in the problem')
        if place not in pools:
            raise UsageError(f'job "{name}": no pool "{place}" in the problem')
        pool[number[name]], gpus[number[name]] = pools[place], size
    row = np.full(len(number), -1)
    if not isinstance(plan, Plan):
        return Allocation(pool, gpus, row, primary)
    shared_by = np.full(len(number), -1)
    for one, others in _colocations(plan):
        for other in others:
            h, g = _in_roles(problem, number[one], number[other], gpus)
            shared_by[h] = g
        if len(others) > 1:
            shared_by[[number[other] for other in others]] = number[one]
            shared_by[number[one]] = -1
    return Allocation(pool, gpus, row, first_primary(shared_by), shared_by=shared_by)


def _holdings(plan: Plan) -> dict[str, tuple[str, int]]:
    """(pool, GPUs) of every job that the plan gives something."""
    rows = zip(*(plan.jobs[name] for name in ("job_id", "pool", "gpus")), strict=True)
    return {job: (pool, gpus) for job, pool, gpus in rows if pool is not None}


def _colocations(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Jobs with the jobs on their GPUs, those with several last, and of a pair one only."""
    found = [
        (job, split_names(cell))
        for job, cell in zip(plan.jobs["job_id"], plan.jobs["shared_with"], strict=True)
        if cell is not None
    ]
    for job, others in sorted(found, key=lambda row: len(row[1])):
        if len(others) > 1 or job < others[0]:
            yield job, others


def _in_roles(problem: CheckedProblem, one: int, other: int, gpus: Ints) -> tuple[int, int]:
    """(primary, secondary): the secondary job is the larger one.

    Of two jobs of one size it is the one that is so now, or that does not run.
    """
    if gpus[one] != gpus[other]:
        return (one, other) if gpus[one] < gpus[other] else (other, one)
    jobs = problem.jobs
    is_second = jobs.primary[one] == other or jobs.state[one] != State.RUNNING
    return (other, one) if is_second and jobs.primary[other] != one else (one, other)


def _limits(time_limit_s: float, gap: float, threads: int, seed: int) -> SolveLimits:
    """Check the effort that a caller asks for. Raises UsageError."""
    if not (time_limit_s >= 0 and gap >= 0 and threads >= 1):
        raise UsageError(
            f"time_limit_s {time_limit_s}, gap {gap} must not be negative, threads {threads} at"
            " least 1"
        )
    return SolveLimits(time_limit_s, gap, threads, seed)
