"""One round from a Problem to an audited Result: the only way a plan leaves the product.

    Problem -> compile_round -> dual (bound, prices) -> policy -> audit -> reasons -> Result
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping

import numpy as np

from allocator.audit import Audit, audit
from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Ints, Problem, State
from allocator.domain.result import Result
from allocator.errors import AuditFailure, UsageError
from allocator.options.round import Round, compile_round
from allocator.policies import registry as policies
from allocator.policies.base import Decision, Policy, Task, relative_gap
from allocator.policies.memory import Memory
from allocator.reasons import Prices, Reasons, reasons
from allocator.solvers import registry as solvers
from allocator.solvers.base import Limits, Solver
from formulations.choices import choices
from formulations.lagrangian import Dual, minimise

NO_LIMITS = Limits()
EXACT = 1e-9            # relative: rows are kept to this tolerance, so a bound this close is the value itself
OPTIMAL = 1e-6          # a proven relative gap up to this is called optimal: the tolerance of the checks


def decide(problem: Problem, *, policy: str = "mip", solver: str | Solver = "auto", limits: Limits = NO_LIMITS,
           objective: str | None = None, budget: float | None = None,
           seconds: Mapping[str, float] | None = None) -> Result:
    """Decide one round.

    policy, solver: names of the registries (or a Solver). limits.time_s: for the whole decision from this call on.
    objective, budget (dollars per hour) override the problem's. seconds: time already spent ("read", "validate").
    Raises UsageError, Infeasible, NoPlanInTime, AuditFailure (allocator/errors.py).
    """
    problem = overridden(problem, objective, budget)
    return decide_after(None, problem, policy=policy, solver=solver, limits=limits, seconds=seconds)[0]


def decide_after(memory: Memory | None, problem: Problem, *, policy: str = "mip", solver: str | Solver = "auto",
                 limits: Limits = NO_LIMITS, seconds: Mapping[str, float] | None = None) -> tuple[Result, Memory]:
    """Decide a round from what the round before left (None: a first round), and what it leaves to the next."""
    begin = time.monotonic()
    entry = policies.policy(policy)
    round_ = compile_round(problem, entry.prunes)
    built = time.monotonic()
    engine = solvers.named(solver) if isinstance(solver, str) else solver
    known = memory if memory is not None and memory.objective == problem.objective else None
    decision, dual = settle(round_, entry.decide, engine, limits, begin + limits.time_s, known)
    solved = time.monotonic()
    allocation = round_.allocation(decision.choice)
    witness = audit(problem, allocation, round_.repairs)
    if witness.faults:
        raise AuditFailure(witness.faults)
    spent = {"read": 0.0, "validate": 0.0} | dict(seconds or {})
    result = _result(round_, dual, decision, witness, allocation, policy=policy, seed=limits.seed,
                     seconds=spent | {"build": built - begin, "solve": solved - built}, begin=begin)
    return result, Memory.of(problem.objective, round_.model, dual.prices)


def settle(round_: Round, policy: Policy, solver: Solver | None, limits: Limits, deadline: float,
           memory: Memory | None = None) -> tuple[Decision, Dual]:
    """The dual of a compiled round and the policy's decision, by `deadline` (time.monotonic) as far as it can."""
    structure = choices(round_.model)
    now = time.monotonic()
    first = None if memory is None else memory.row_prices(round_.model)[0]
    dual = minimise(structure, first, now + 0.5 * max(0.0, deadline - now))
    return policy(Task(round_, structure, dual, limits, solver, deadline)), dual


def overridden(problem: Problem, objective: str | None, budget: float | None) -> Problem:
    """The problem with another objective or budget; raises UsageError on values that make no sense."""
    if objective is not None and objective not in ("progress", "throughput"):
        raise UsageError(f'unknown objective "{objective}" (known: progress, throughput)')
    if budget is not None and not 0 <= budget < math.inf:
        raise UsageError(f"budget {budget} is not a number of dollars per hour")
    if objective is not None:
        problem = dataclasses.replace(problem, objective=objective)
    return problem if budget is None else dataclasses.replace(problem, budget_per_hour=budget)


def _result(round_: Round, dual: Dual, decision: Decision, witness: Audit, allocation: Allocation, *, policy: str,
            seed: int, seconds: Mapping[str, float], begin: float) -> Result:
    problem = round_.problem
    value = witness.objective_value
    bound, by = (decision.bound, decision.bound_by) if decision.bound < dual.bound else (dual.bound, "lagrangian")
    bound = value if bound - value <= EXACT * max(1.0, abs(value)) else float(bound)
    gap = relative_gap(bound, value)
    prices = Prices.of(round_, dual.prices)
    chosen = np.where(decision.choice >= 0, round_.option[np.maximum(decision.choice, 0)], -1) \
        if len(round_.option) else decision.choice
    told = reasons(round_, chosen, prices)
    notes = [*problem.warnings, *round_.repairs.messages]
    if decision.detail and decision.fallback:
        notes.append(f"fallback {decision.fallback}: {decision.detail}")
    elif decision.detail:
        notes.append(decision.detail)
    total = seconds["read"] + seconds["validate"] + time.monotonic() - begin
    return Result(
        snapshot=problem.name, digest=problem.digest, now_s=problem.now_s, interval_s=problem.interval_s,
        policy=policy, objective=problem.objective, solver=decision.solver, solver_version=decision.solver_version,
        solver_choice=decision.solver_choice or None,
        seed=seed, status="optimal" if gap <= OPTIMAL else "feasible", termination=decision.termination,
        fallback=decision.fallback, objective_value=value, bound=bound, gap=gap, bound_by=by,
        seconds={k: round(v, 6) for k, v in (dict(seconds) | {"total": total}).items()},
        jobs=_jobs(problem, witness, allocation, told), pools=_pools(problem, allocation, prices),
        tenants=_tenants(problem, witness, allocation), warnings=tuple(notes),
        budget={"per_hour": _finite(problem.budget_per_hour), "spent_per_hour": float(witness.cost.sum()),
                "marginal_value": prices.budget})


def actions(problem: Problem, pool: Ints, gpus: Ints) -> list[str]:
    """start, keep, grow, shrink, move, pause or wait for every job (contract section 5)."""
    jobs = problem.jobs
    running: Bools = jobs.state == State.RUNNING
    something = pool >= 0
    moved = pool != jobs.pool
    cases = [running & ~something, running & moved, running & (gpus == jobs.gpus), running & (gpus > jobs.gpus),
             running, something]
    return list(np.select(cases, ["pause", "move", "keep", "grow", "shrink", "start"], "wait").tolist())


def _jobs(problem: Problem, witness: Audit, allocation: Allocation, told: Reasons) -> dict[str, list[object]]:
    jobs = problem.jobs
    pools = np.array([*problem.pools.pool, None], dtype=object)
    row = allocation.row
    batches = np.append(problem.rates.batch_size, -1)
    batch = [b if b >= 0 else None for b in np.where(row >= 0, batches[row], -1).tolist()]
    none: list[object] = [None] * len(jobs)
    return {
        "job_id": list(jobs.job_id), "tenant": [problem.tenants.tenant[q] for q in jobs.tenant.tolist()],
        "pool": list(pools[allocation.pool]), "gpus": allocation.gpus.tolist(), "batch_size": batch,
        "shared_with": none, "nodes": none, "previous_pool": list(pools[jobs.pool]),
        "previous_gpus": jobs.gpus.tolist(), "action": actions(problem, allocation.pool, allocation.gpus),
        "reason": list(told.code), "detail": list(told.detail), "work_per_s": witness.rate.tolist(),
        "value": witness.value.tolist(), "cost_per_hour": witness.cost.tolist()}


def _pools(problem: Problem, allocation: Allocation, prices: Prices) -> list[dict[str, object]]:
    on = allocation.pool >= 0
    used = np.bincount(allocation.pool[on], allocation.gpus[on], minlength=len(problem.pools)).astype(np.int64)
    return [{"pool": name, "gpus": int(g), "used": int(u), "marginal_value": float(v)} for name, g, u, v in
            zip(problem.pools.pool, problem.pools.gpus, used, prices.pool, strict=True)]


def _tenants(problem: Problem, witness: Audit, allocation: Allocation) -> list[dict[str, object]]:
    tenants = problem.tenants
    gpus = np.bincount(problem.jobs.tenant, allocation.gpus, minlength=len(tenants)).astype(np.int64)
    cost = np.bincount(problem.jobs.tenant, witness.cost, minlength=len(tenants))
    return [{"tenant": name, "gpus": int(g), "guaranteed": int(u), "max_gpus": _whole(m), "cost_per_hour": float(c)}
            for name, g, u, m, c in
            zip(tenants.tenant, gpus, tenants.guaranteed_gpus, tenants.max_gpus, cost, strict=True)]


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _whole(x: float) -> int | None:
    return int(x) if math.isfinite(x) else None
