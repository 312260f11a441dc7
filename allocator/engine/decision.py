"""One round from a Problem to an audited decision: the only way a plan leaves the product.

Problem -> compile_round -> policy (with the dual's prices if it wants them) -> audit -> bound
-> Result
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.audit import Audit, audit
from allocator.domain.allocation import Allocation
from allocator.domain.objectives import normalise
from allocator.domain.problem import Problem
from allocator.domain.result import Result
from allocator.domain.settings import checked_horizon
from allocator.engine.causes import FEW, CauseSearch, DecisionSearch
from allocator.engine.results import build_result
from allocator.errors import AllocatorError, AuditFailure, UsageError
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies import registry as policies
from allocator.policies.base import Policy, Proposal, Task, relative_gap
from allocator.policies.memory import Memory
from allocator.policies.pairs import bound_over_all_pairs
from allocator.policies.registry import AnyPolicy
from allocator.solvers import registry as solvers
from allocator.solvers.base import SolveLimits, Solver
from formulations.model.linear import Floats, Ints

NO_LIMITS = SolveLimits()
REASONS_S = 2.0  # seconds that these decisions may take in all
# these are about the best plan without a limit, not about any within the gap
REASONS_GAP = 1e-5
LEAST_REASONS_S = 0.2  # and what they have at least when the time limit has been used up
# relative: rows are kept to this tolerance, so a bound this close is the value itself
EXACT = 1e-9
# relative: accounts of one plan that differ by more do not differ by rounding
ROUNDING = 1e-7
LAST_BITS = 1e-12  # what is left of bounds that are nothing
NOTHING = 1e-9  # values below are nothing, as in the gap of the contract


@dataclass(frozen=True)
class Decision:
    """A decision that the audit has passed: what to do, and what it is worth.

    build_s, solve_s: wall seconds to compile the round, and to decide and audit it.
    """

    task: Task
    proposal: Proposal
    allocation: Allocation
    witness: Audit
    build_s: float
    solve_s: float

    @property
    def round(self) -> CompiledRound:
        """The compiled round that was decided."""
        return self.task.round

    @property
    def value(self) -> float:
        """Worth of the plan, recomputed by the audit."""
        return self.witness.objective_value

    @cached_property
    def proof(self) -> tuple[float, str, float]:
        """(bound, who proved it, relative gap): no plan is worth more than the bound, whichever
        jobs share GPUs, and whatever the policy looked at. Finds the dual where the policy did not
        need it. Raises AuditFailure where this plan is."""
        bound, by = bound_over_all_pairs(self.task), "lagrangian"
        if self.proposal.bound < bound and self.round.has_all_pairs:
            bound, by = self.proposal.bound, self.proposal.bound_by
        bound = check_bound(bound, by, self.witness, self.round.instance.value)
        return bound, by, relative_gap(bound, self.value)


def check_bound(bound: float, by: str, witness: Audit, offered: Floats) -> float:
    """The bound of an audited plan, the plan's value itself where the two differ by rounding.

    offered: values of the options of the round, since a plan of nothing has no scale of its own.
    Raises AuditFailure where the bound is below the value: one of the two is wrong.
    """
    value, scale = witness.objective_value, float(np.abs(witness.value).sum())
    if bound < value - _tolerance(scale, witness):
        raise AuditFailure(
            (
                (
                    f"the plan is worth {value:.9g}, although {by} proved that no plan is "
                    f"worth more than {bound:.9g}"
                ),
            )
        )
    # a bound that is a rounding error above nothing would be a gap of any size
    rounding = EXACT * max(scale, float(np.abs(offered).max(initial=0.0)))
    return value if bound - value <= rounding + LAST_BITS else float(bound)


def _tolerance(scale: float, witness: Audit) -> float:
    """By how much two accounts may differ whose terms add up to `scale` in size."""
    return NOTHING + ROUNDING * scale + witness.rounding


def _compare_accounts(round_: CompiledRound, choice: Ints, witness: Audit) -> Iterator[str]:
    """A sentence where the values of the chosen options do not add up to what the audit finds.

    Jobs that share GPUs are valued together, so sums over all jobs are compared.
    """
    claimed = round_.instance.value[choice[choice >= 0]]
    value, scale = float(claimed.sum()), max(np.abs(claimed).sum(), np.abs(witness.value).sum())
    if not abs(value - witness.objective_value) <= _tolerance(float(scale), witness):
        yield (
            f"the options of the plan are worth {value:.9g} in the objective "
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
) -> Result:
    """Decide one round.

    policy, solver: names of the registries (or a Solver). limits.time_s: for the whole decision
    from this call on. objective, budget (dollars per hour), horizon (intervals) override the
    problem's. seconds: time already spent ("read", "validate"). Raises UsageError, Infeasible,
    NoPlanInTime, AuditFailure (allocator/errors.py).
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
) -> tuple[Result, Memory]:
    """Decide a round from what the round before left (None: a first round), and what it leaves
    to the next.
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
        problem.objective, decision.round.model, decision.task.dual.prices, decision.proposal.plans
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
) -> Result:
    """The decision about a problem with prices, reasons and tables.

    Parameters
    ----------
    policy, solver, limits
        As the decision was made.
    seconds : mapping of str to float, optional
        Wall seconds by phase that others spent.
    left_s : float
        Wall seconds for the decisions that the reasons need, at most; they are made when a reason
        is first read.
    """
    spent = {**(seconds or {}), "build": decision.build_s, "solve": decision.solve_s, "total": 0.0}
    search = _reason_search(problem, decision, left_s, policy=policy, solver=solver, limits=limits)
    return build_result(
        decision.round,
        decision.task.dual,
        decision.proposal,
        decision.witness,
        decision.allocation,
        decision.proof,
        policy=policies.name_of(policy),
        seed=limits.seed,
        seconds=spent,
        search=search,
        left_s=left_s,
    )


def _reason_search(
    problem: Problem,
    decision: Decision,
    left_s: float,
    *,
    policy: AnyPolicy,
    solver: str | Solver,
    limits: SolveLimits,
) -> CauseSearch | None:
    """How the reasons of a decision are found: by deciding again without some limits, None = from
    prices."""
    if decision.proposal.fallback or (policies.policy(policy).prunes and len(problem.jobs) > FEW):
        return None

    def decide_again(changed: Problem, seconds: float) -> Decision | None:
        effort = dataclasses.replace(limits, time_s=seconds, gap=min(limits.gap, REASONS_GAP))
        try:
            found = decide_round(changed, policy=policy, solver=solver, limits=effort)
        except AllocatorError:
            return None
        is_cut = found.proposal.termination == "time_limit" or found.proposal.fallback
        return None if is_cut else found

    return DecisionSearch(
        decide_again, problem, decision.allocation, decision.witness, min(left_s, REASONS_S)
    )


def decide_round(
    problem: Problem,
    *,
    policy: AnyPolicy = "mip",
    solver: str | Solver = "auto",
    limits: SolveLimits = NO_LIMITS,
    memory: Memory | None = None,
) -> Decision:
    """The audited decision without the words around it, for callers that decide many rounds.
    Errors as of `decide`.
    """
    begin = time.monotonic()
    entry = policies.policy(policy)
    engine = solvers.find(solver) if isinstance(solver, str) else solver
    round_ = compile_round(problem, entry.prunes, entry.shares)
    built = time.monotonic()
    known = memory if memory is not None and memory.objective == problem.objective else None
    task, proposal = run_policy(round_, entry.decide, engine, limits, begin + limits.time_s, known)
    allocation = task.round.allocation(proposal.choice)
    witness = audit(task.round.problem, allocation, task.round.repairs)
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
) -> tuple[Task, Proposal]:
    """The policy's decision about a compiled round, by `deadline` (time.monotonic) as far as it
    can.
    """
    task = (
        Task(round_, limits, solver, deadline)
        if memory is None
        else Task(
            round_, limits, solver, deadline, memory.row_prices(round_.model)[0], memory.plans
        )
    )
    proposal = policy(task)
    task = proposal.task or task
    return task, dataclasses.replace(proposal, choice=task.round.with_kept_gpus(proposal.choice))


def override_settings(
    problem: Problem, objective: str | None, budget: float | None, horizon: int | None = None
) -> Problem:
    """The problem with another objective, budget or number of intervals that the policy `horizon`
    plans; raises UsageError on values that make no sense."""
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
