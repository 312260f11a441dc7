"""What a decision does with solvers that lie, fail or are late, and with what it is asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import LINEAR, problem
from examples import seeds
from text_tables import cells

from allocator.audit import Audit, audit
from allocator.domain.problem import Problem
from allocator.engine.decided import check_bound
from allocator.engine.decision import decide
from allocator.engine.frontier.rounds import round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.engine.rounds import Rounds
from allocator.errors import AuditFailure
from allocator.options.instance_building import compile_round
from allocator.policies.base import Task
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, SolverResult, Termination
from formulations.bounds.lagrangian import Dual, minimise_dual
from formulations.objectives import BUILT_IN as OBJECTIVES

EXACT = SolveLimits(gap=0.0)


@dataclass
class Scripted:
    """A solver that answers what a test tells it to."""

    answer: SolverResult
    name: str = "scripted"

    def solve(self, *_: object) -> SolverResult:
        return self.answer


def six_jobs() -> Problem:
    """Six jobs, ten GPUs, a budget: the bound without a solver stays a little above the optimum."""
    rates = {1: 1.0, 2: 1.7, 4: 3.1, 8: 4.4}
    jobs = [
        {"remaining_work": w, "max_gpus": 8, "min_gpus": m}
        for w, m in ((900, 1), (700, 2), (1500, 1), (800, 4), (500, 1), (2000, 2))
    ]
    return problem(
        jobs,
        [{"gpus": 7, "price_per_gpu_hour": 3}, {"gpus": 3, "price_per_gpu_hour": 1}],
        rates,
        config={"budget_per_hour": 17},
    )


@pytest.fixture(scope="module")
def truth() -> float:
    return decide(six_jobs(), solver="highs", limits=EXACT).objective_value


def everything(p: Problem) -> SolverResult:
    """All options at once, whatever rules they break."""
    return SolverResult(Termination.GAP, np.ones(compile_round(p).model.n), 99.0, 99.0)


def too_low(p: Problem) -> SolverResult:
    """The best plan, and half of its value as the bound."""
    model = compile_round(p).model
    best = registry.get("highs").solve(model, EXACT)
    return dataclasses.replace(best, bound=best.bound / 2)


LIES = {
    "crash": SolverResult(Termination.FAILED, detail="worker died"),
    "garbage": SolverResult(Termination.GAP, np.full(3, np.nan), 1e9, 0.0),
    "nothing, proven": SolverResult(Termination.GAP, np.zeros(0), 0.0, 0.0),
    "infeasible": SolverResult(Termination.INFEASIBLE),
    "everything to everyone": everything(six_jobs()),
    "a bound below its plan": too_low(six_jobs()),
    "late, empty-handed": SolverResult(Termination.TIME_LIMIT, detail="killed"),
}


@pytest.mark.parametrize("lie", LIES)
def test_failed_solvers_leave_a_plan_with_a_true_bound_and_a_named_fallback(
    lie: str, truth: float
) -> None:
    """The plan is feasible (audited), nearly as good, its bound not below the truth, and the
    fallback has a name.
    """
    r = decide(six_jobs(), solver=Scripted(LIES[lie]), limits=EXACT)
    assert r.fallback == "marginal"
    assert 0.8 * truth <= r.objective_value <= truth + 1e-12
    assert r.bound >= truth - 1e-9 and r.bound_by == "lagrangian"
    assert any("fallback marginal" in w for w in r.warnings)


def test_a_tie_is_no_fallback() -> None:
    """Two GPUs: two jobs on one each are worth 1e-9 less than the third on both. A solver that
    takes the two has not failed, and the better plan is kept.
    """
    jobs = [{"remaining_work": 600 + 6e-7, "max_gpus": 1} for _ in range(2)]
    p = problem([*jobs, {"remaining_work": 600, "min_gpus": 2}], [{"gpus": 2}], LINEAR)
    answer = SolverResult(Termination.GAP, np.array([1.0, 1.0, 0.0]), 1.0, 1.0)
    r = decide(p, solver=Scripted(answer), limits=EXACT)
    assert r.jobs["gpus"] == [0, 0, 2]
    assert r.fallback is None


def halved(task: Task) -> Dual:
    """The dual with half of its bound, as an error in the mathematics would leave it."""
    dual = minimise_dual(task.choices)
    return dataclasses.replace(dual, bound=dual.bound / 2)


def more_valuable(*args: Any) -> Audit:
    """The audit with a tenth more for every job, as an error in one of two accounts would leave
    it.
    """
    witness = audit(*args)
    return dataclasses.replace(
        witness, value=1.1 * witness.value, objective_value=1.1 * witness.objective_value
    )


AIMS = (*OBJECTIVES, "flow > cost", "tardiness > cost=2,makespan")
PATHS: dict[str, Callable[[Problem], object]] = {
    **{name: lambda p, name=name: decide(p, policy=name) for name in ("mip", "greedy", "ffs")},
    "rounds": lambda p: Rounds().decide(p),
    "fallback": lambda p: decide(p, solver=Scripted(LIES["crash"]), limits=EXACT),
    "solver": lambda p: decide(p, solver="highs", limits=EXACT),
    "frontier": lambda p: round_frontier(p, Effort(EXACT, None, 3)),
}


@pytest.mark.parametrize("path", PATHS)
def test_false_accounts_are_an_audit_failure(path: str) -> None:
    """Half of the true bound is below every plan here; or the audit finds a tenth more than the
    options of the plan say: no plan leaves, whoever made it."""
    for name, false, told in (
        (
            f"{Task.__module__}.Task.dual",
            property(halved),
            "lagrangian proved that no plan has mor",
        ),
        (
            "allocator.engine.decision.audit",
            more_valuable,
            "the options of the plan have the value",
        ),
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(AuditFailure, match=told):
            patch.setattr(name, false)
            PATHS[path](six_jobs())


def test_a_bound_of_tiny_values_is_told_apart_from_the_value() -> None:
    """Two jobs, one GPU, 300 of 10^12 units in a round: one job has value 3e-10. Half of a job more
    is a gap, not rounding: what counts is the scale of the values."""
    r = decide(problem([{"remaining_work": 1e12, "max_gpus": 1}] * 2, [{"gpus": 1}], {1: 1.0}))
    assert r.objective_value == pytest.approx(3e-10, rel=1e-9) and r.status == "optimal"
    loose, offered = audit_of(r.objective_value), np.array([3e-10, 3e-10])
    assert check_bound(4.5e-10, "lagrangian", loose, offered) == 4.5e-10
    assert check_bound(3e-10 * (1 + 1e-12), "lagrangian", loose, offered) == r.objective_value


def audit_of(value: float) -> Audit:
    """What the audit says of a plan with one job of this value."""
    return Audit((), np.array([value]), np.ones(1), np.zeros(1), value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", seeds(10, 5 * len(AIMS)))
def test_extreme_numbers_are_no_audit_failure(n: int) -> None:
    """An ordinary job and one in a spot pool of which revocations leave nothing, or with so
    much left, or so little, or of such weight that values are lost in rounding: a plan, no warning
    of a library. The objectives and the extremes in turn."""
    extremes = """;remaining_work=1e25 deadline_s=1e9;remaining_work=1e-25 total_work=1e25;
        weight=1e25 deadline_s=1e12;
        remaining_work=1e15 weight=1e-20 deadline_s=1e20 submitted_s=-1e20"""
    extreme, objective = cells(extremes.split(";")[n % 5]), AIMS[(n + n // len(AIMS)) % len(AIMS)]
    spot = {"market": "spot", "price_per_gpu_hour": 1, "gpus": 2}
    p = problem(
        [{}, extreme],
        [spot | ({} if extreme else {"revocations_per_gpu_hour": 1e6}), {"gpus": 2}],
        {1: 1.0, 2: 1.9},
        config={"now_s": 0, "objective": objective, "dollar_price": 0.01},
    )
    r = decide(p)
    assert math.isfinite(r.objective_value) and r.objective_value <= r.bound < math.inf


def test_no_job_waits_beside_free_gpus_because_it_is_worth_little() -> None:
    """There are 2,001 GPUs and 2,001 jobs of one GPU each, and all jobs but one run. The last job
    adds less value than the gap allows to miss. It starts nevertheless, and no other job changes.
    """
    runs = {"state": "running", "pool": "p0", "gpus": 1}
    jobs = [{"max_gpus": 1, "preemptible": False, **(runs if j else {})} for j in range(2001)]
    plan = decide(problem(jobs, [{"gpus": 2001}]))
    assert set(plan.jobs["gpus"]) == {1}
