"""The frontier of a round: value against spending per hour, and the cheapest good plans."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.audit import audit
from allocator.domain.allocation import Allocation
from allocator.domain.plan import Plan
from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round, override_settings
from allocator.engine.frontier.sweep import BudgetAnswer, Effort, Frontier, Tell
from allocator.engine.results import build_result
from allocator.errors import AuditFailure, Infeasible, NoPlanInTime, Relaxation, UsageError
from allocator.options.colocation.several_primaries import groups_of_plan
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.base import Memory, Task, relative_gap
from allocator.valuation.values import added_prices, gpu_prices


@dataclass(frozen=True)
class RoundCase:
    """The rounds of a problem at different budgets; every plan is audited."""

    problem: Problem
    effort: Effort

    def solve(self, budget: float, memory: Memory | None) -> BudgetAnswer[Decision]:
        """Return the best plan of the budget, see `BudgetCase`."""
        decision = decide_round(
            self._at_budget(budget),
            solver=self.effort.solver or "auto",
            limits=self.effort.limits,
            memory=memory,
        )
        value, bound = decision.value, decision.proof[0]
        return BudgetAnswer(decision, value, bound, decision.task, decision.proposal)

    def compile(self, budget: float, prunes: bool) -> CompiledRound:
        """Return the round with the budget, see `BudgetCase`."""
        return compile_round(self._at_budget(budget), prunes)

    def _at_budget(self, budget: float) -> Problem:
        return dataclasses.replace(self.problem, budget_per_hour=budget)


@dataclass(frozen=True)
class RoundFrontier:
    """The curve of a problem.

    `dollars` is "listed" or "added", the dollars that the budget counts. `found` has budgets, US
    dollars per hour, and plans.

    Attributes
    ----------
    added : (m,)
        US dollars per hour of the plans, without reserved pools.
    jobs : (m,)
        Number of jobs that run.
    gpus : (m, P)
        GPUs of each pool in use.
    """

    problem: Problem
    dollars: str
    found: Frontier[Decision]
    added: Floats
    jobs: Ints
    gpus: Ints

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per plan, with the columns of docs/tenants.md."""
        budget, spent, value, bound, price = (x.tolist() for x in self.found.points)
        columns = {
            "budget_per_hour": [None if math.isinf(b) else b for b in budget],
            "spent_per_hour": spent,
            "added_per_hour": self.added.tolist(),
            "value": value,
            "bound": bound,
            "gap": [relative_gap(b, v) for b, v in zip(bound, value, strict=True)],
            "dollar_value": price,
            "jobs_running": self.jobs.tolist(),
        }
        for name, gpus in zip(self.problem.pools.pool, self.gpus.T.tolist(), strict=True):
            columns[f"gpus:{name}"] = gpus
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole curve; `bounds` has the corners of U, dollars per hour and value."""
        x, u = self.curve()
        return {
            "schema_version": 1,
            "snapshot": self.problem.name,
            "digest": self.problem.digest,
            "objective": self.problem.objective,
            "dollars": self.dollars,
            "least_per_hour": self.found.least,
            "solves": len(self.found.answers),
            "open_share": self.found.open_share,
            "plans": self.rows(),
            "bounds": [[a, b] for a, b in zip(x.tolist(), u.tolist(), strict=True)],
        }

    def curve(self, points: int = 200) -> tuple[Floats, Floats]:
        """Return (dollars per hour, U) over the range of the plans, solved budgets included."""
        solves, spent = self.found.solves, self.found.points.spent
        low, high = float(spent[0]), float(spent[-1])
        near = solves.budget[(solves.budget >= low) & (solves.budget <= high)]
        x = np.unique(
            np.concatenate(
                [np.linspace(low, high, points), near, near + 1e-9 * max(1.0, high), spent]
            )
        )
        return x, solves.upper(x)


def round_frontier(
    problem: Problem,
    effort: Effort,
    *,
    objective: str | None = None,
    dollars: str = "listed",
    max_budget: float = math.inf,
    tell: Tell | None = None,
) -> RoundFrontier:
    """Return value against dollars per hour, from the least legal spending up to max_budget.

    Raises UsageError, Infeasible, NoPlanInTime, AuditFailure.
    """
    case = RoundCase(count_dollars(override_settings(problem, objective, None), dollars), effort)
    frontier = Frontier(case, effort, max_budget, tell).refine(
        (problem.budget_per_hour,) if dollars == "listed" else ()
    )
    plans = [decision.allocation for decision in frontier.plans]
    gpus = [
        np.bincount(a.pool[a.pool >= 0], a.gpus[a.pool >= 0], len(problem.pools)) for a in plans
    ]
    return RoundFrontier(
        case.problem,
        dollars,
        frontier,
        np.array([_dollars_per_hour(case.problem, a, added_prices) for a in plans]),
        np.array([int((a.pool >= 0).sum()) for a in plans]),
        np.array(gpus, np.int64),
    )


@dataclass(frozen=True)
class CheapestPlan:
    """The cheapest plan found that has at least the value `target`.

    best_value and spent belong to the plan of largest value. No plan of that value spends less than
    `least`. `solves` counts the solves that it took.
    """

    result: Plan
    target: float
    spent: float
    least: float
    best_value: float
    best_spent: float
    solves: int
    dollars: str

    def to_dict(self) -> dict[str, Any]:
        """Return the target and what was proven as plain data, without the plan."""
        return {
            "schema_version": 1,
            "target": self.target,
            "value": self.result.objective_value,
            "spent_per_hour": self.spent,
            "at_least_per_hour": self.least,
            "dollars": self.dollars,
            "best_value": self.best_value,
            "best_spent_per_hour": self.best_spent,
            "solves": self.solves,
        }


def keep(
    problem: Problem,
    effort: Effort,
    target: float,
    share: bool = False,
    *,
    objective: str | None = None,
    dollars: str = "listed",
    max_budget: float = math.inf,
    tell: Tell | None = None,
) -> CheapestPlan:
    """Find the cheapest plan of at least the value `target`.

    With `share`, `target` is a share of the value of the best plan within max_budget. Errors are
    those of `round_frontier`, and Infeasible where no plan has as much value.
    """
    whole = override_settings(problem, objective, None)
    case = RoundCase(count_dollars(whole, dollars), effort)
    sweep = Frontier(case, effort, max_budget, tell)
    first = sweep.answers[0]
    wanted = target * first.value if share else target
    top = max(answer.value for answer in sweep.answers)
    if wanted > top + 1e-9 * max(1.0, abs(top)):
        money = "" if math.isinf(max_budget) else f" for {max_budget:g} $/h"
        if first.bound < wanted:
            raise Infeasible(
                [f"a plan of value {wanted:g}{money}: none has more than {first.bound:g}"],
                [Relaxation("--keep", "", wanted, top)],
            )
        raise NoPlanInTime(
            f"no plan of value {wanted:g}{money} was found: the best has {top:g}, and none has"
            f" more than {first.bound:g}"
        )
    cheapest, least = sweep.find_cheapest(wanted)
    return CheapestPlan(
        _build_result(whole, cheapest, case),
        wanted,
        cheapest.spent,
        least,
        first.value,
        first.spent,
        len(sweep.answers),
        dollars,
    )


def _build_result(problem: Problem, answer: BudgetAnswer[Decision], case: RoundCase) -> Plan:
    """Return the decision as a Plan in listed dollars, with the proof for its budget."""
    d = answer.plan
    own = d.round.problem
    if case.problem.pools is not problem.pools:
        # the result is a plan of the round whose budget is the plan's listed spending, with the
        # bound of that round
        a = d.allocation
        own = dataclasses.replace(
            problem, budget_per_hour=_dollars_per_hour(problem, a, gpu_prices)
        )
        whole = compile_round(own, False, groups=groups_of_plan(own, a))
        m = whole.option_table
        choice = np.full(len(problem.jobs), -1)
        same = (m.pool == a.pool[m.job]) & (m.gpus == a.gpus[m.job])
        for o in np.flatnonzero(same & (m.primary == a.primary[m.job])).tolist():
            if set(m.primaries_of(o)) == set(np.flatnonzero(a.secondary == m.job[o]).tolist()):
                choice[m.job[o]] = o
        witness = audit(whole.problem, a, whole.repairs, whole.offer)
        if witness.faults:
            raise AuditFailure(witness.faults)
        task = Task(whole, case.effort.limits, None, math.inf)
        # the bound of the search is one for added dollars
        proposal = dataclasses.replace(d.proposal, choice=choice, bound=math.inf)
        d = dataclasses.replace(d, task=task, proposal=proposal, witness=witness)
    seconds = {"read": 0.0, "validate": 0.0, "build": d.build_s, "solve": d.solve_s}
    seconds["total"] = d.build_s + d.solve_s
    return build_result(own, d, policy="mip", seed=case.effort.limits.seed, seconds=seconds)


def _dollars_per_hour(
    problem: Problem,
    plan: Allocation,
    prices: Callable[[Problem, Ints, Ints, Ints], Floats],
) -> float:
    """Return what the GPUs of a plan cost per hour, at `gpu_prices` or at `added_prices`."""
    on = np.flatnonzero(plan.pool >= 0)
    return float((plan.held[on] * prices(problem, on, plan.pool[on], plan.gpus[on])).sum())


def count_dollars(problem: Problem, dollars: str) -> Problem:
    """Return the problem whose budget counts `listed` prices, or only prices `added` to the bill.

    Reserved pools are free in the second case. Raises UsageError where tenants have budgets: theirs
    count listed prices, and a round has one price per pool.
    """
    if dollars == "listed":
        return problem
    tenants = problem.tenants
    if own := [tenants.tenant[q] for q in np.flatnonzero(np.isfinite(tenants.budget_per_hour))]:
        raise UsageError(
            "--dollars added: tenants with a budget_per_hour of their own count listed prices: "
            + ", ".join(own)
        )
    return dataclasses.replace(
        problem,
        pools=dataclasses.replace(
            problem.pools,
            price_per_gpu_hour=problem.pools.marginal_price,
            price_per_gb_hour=np.where(
                problem.pools.market == Market.RESERVED, 0.0, problem.pools.price_per_gb_hour
            ),
        ),
    )
