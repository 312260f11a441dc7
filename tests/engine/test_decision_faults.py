"""The whole decision on top of back ends that really hang, crash, lie or talk nonsense in their
own process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import problem
from examples import series
from test_decision import six_jobs
from waiting import in_time

from allocator.engine.decision import decide
from allocator.errors import Infeasible, NoPlanInTime
from allocator.solvers.base import SolveLimits
from allocator.solvers.isolation.isolated import Isolated

HERE = str(Path(__file__).resolve().parents[1] / "support" / "processes")
LIMIT_S = 0.8
FAULTS = ("hangs", "exits", "returns_nan", "lies")  # tests/solvers/test_isolation.py has them all


def faulty(fault: str) -> dict[str, Any]:
    """The arguments of a decision with a back end that has a fault."""
    solver = Isolated(fault, f"faulty_backends.{fault}", (HERE,))
    return {"solver": solver, "limits": SolveLimits(LIMIT_S, 0.0)}


@pytest.fixture(scope="module")
def truth() -> float:
    return decide(six_jobs(), solver="highs", limits=SolveLimits(gap=0.0)).objective_value


@pytest.mark.parametrize("fault", series(FAULTS, 2))
def test_a_plan_arrives_in_time_with_a_true_bound_and_the_name_of_the_fallback(
    fault: str, truth: float
) -> None:
    """By the limit plus one second: audited, nearly as good as the optimum, bound not below it,
    fallback named.
    """
    with in_time(LIMIT_S + 1.0):
        r = decide(six_jobs(), **faulty(fault))
    assert r.fallback == "marginal"
    assert 0.8 * truth <= r.objective_value <= truth + 1e-12
    assert r.bound >= truth - 1e-9 and r.bound_by == "lagrangian"


@pytest.mark.parametrize(
    "fault", series(["hangs_with_plan", "crashes_with_plan", "returns_short"], 2)
)
def test_the_best_plan_reported_before_the_end_is_used_if_it_is_better(
    fault: str, truth: float
) -> None:
    """A back end that reports a plan and then hangs or dies: never worse than the start, bound
    still true.
    """
    start = decide(six_jobs(), policy="marginal").objective_value
    r = decide(six_jobs(), **faulty(fault))
    assert start - 1e-12 <= r.objective_value <= truth + 1e-12
    assert r.bound >= truth - 1e-9
    assert (
        r.termination == "time_limit"
        if fault == "hangs_with_plan"
        else r.fallback in ("incumbent", "marginal")
    )


@pytest.mark.parametrize("policy", series(["greedy", "greedy-naive", "marginal"], 1))
def test_heuristics_do_not_wait_for_a_solver(policy: str) -> None:
    """A hanging solver is never asked as long as a heuristic finds its own plan."""
    with in_time(1.0):
        r = decide(six_jobs(), policy=policy, **faulty("hangs") | {"limits": SolveLimits()})
    assert r.objective_value > 0


@pytest.mark.parametrize("fault", ["hangs", "raises"])
def test_one_promise_covers_every_attempt(fault: str) -> None:
    """Two guarantees that clash leave no start: with a dead solver the conflict is still named
    by the limit + 1 s.
    """
    p = problem(
        [{"tenant": "a"}, {"tenant": "b"}],
        tenants=[{"tenant": "a", "guaranteed_gpus": 8}, {"tenant": "b", "guaranteed_gpus": 4}],
    )
    with in_time(LIMIT_S + 1.0), pytest.raises((Infeasible, NoPlanInTime)):
        decide(p, **faulty(fault))
