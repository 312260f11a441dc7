"""Explanations: the price to beat, changes that really admit the job, and who would lose."""

from __future__ import annotations

import pytest
from builders import problem

from allocator.domain.problem import Problem
from allocator.errors import UsageError
from allocator.explain import Explanation, explain
from allocator.solvers.base import Limits

EXACT = Limits(gap=0.0)


def one_gpu() -> Problem:
    """One GPU, 300 s: "rich" completes 300/400 = 0.75 of its work, "poor" 300/600 = 0.5."""
    jobs = [{"job_id": "rich", "remaining_work": 400, "max_gpus": 1},
            {"job_id": "poor", "remaining_work": 600, "max_gpus": 1}]
    return problem(jobs, [{"gpus": 1}])


def why(p: Problem, job: str) -> Explanation:
    return explain(p, job, limits=EXACT)


def said(e: Explanation) -> tuple[str, ...]:
    """The changes in words."""
    return tuple(map(str, e.changes))


def test_price_weight_and_loser_by_hand() -> None:
    """poor offers 0.5 per 1/12 GPU-hour = 6; the GPU goes at up to 9; weight 1.501 would do; rich would lose 0.25."""
    e = why(one_gpu(), "poor")
    assert e.got["reason"] == "outranked"
    assert e.offered == pytest.approx(6.0) and 6.0 - 1e-6 <= e.needed <= 9.0 + 1e-6   # type: ignore[operator]
    assert said(e) == ("weight 1.501 instead of 1: it would get 1 x p0",)
    assert e.losers == ('"rich": 1 -> 0 GPUs', 'the plan as a whole: 0.25 of value less, with 1 GPUs for "poor"')


def test_budget_that_would_admit() -> None:
    """The second GPU costs 2 $/h and the budget is 3: 5 admits it."""
    jobs = [{"min_gpus": 1, "max_gpus": 1, "weight": w} for w in (2, 1)]
    e = why(problem(jobs, [{"price_per_gpu_hour": 2}], config={"budget_per_hour": 3}), "j1")
    assert e.got["reason"] == "budget"
    assert "budget_per_hour 5.00 instead of 3.00: it would get 1 x p0" in said(e)


def test_size_type_and_quota_that_would_admit() -> None:
    """min_gpus 8 on a pool of 4; a type that no pool has; a tenant at its limit."""
    e = why(problem([{"min_gpus": 8}], [{"gpus": 4}]), "j0")
    assert e.got["reason"] == "exceeds_cluster" and "min_gpus 4 instead of 8: it would get 4 x p0" in said(e)
    rates = [{"gpu_type": t, "gpus": 1, "work_per_s": 1} for t in "AB"]
    e = why(problem([{"gpu_types": ["B"], "max_gpus": 1}], [{}], rates), "j0")
    assert e.got["reason"] == "no_matching_gpu_type" and said(e) == ("gpu_types any instead of B: it would get 1 x p0",)
    p = problem([{"tenant": "t", "min_gpus": 2, "max_gpus": 2, "weight": w} for w in (2, 1)],
                tenants=[{"tenant": "t", "max_gpus": 2}])
    assert 'max_gpus 4 of tenant "t" instead of 2: it would get 2 x p0' in said(why(p, "j1"))


def test_satisfied_held_and_impossible_jobs() -> None:
    """A job with all it can use; one on hold; one that no rule lets in (the other may not move)."""
    p = problem([{"max_gpus": 1, "remaining_work": 10}, {"state": "held"}])
    assert why(p, "j0").changes == () and "  nothing: it has all it can use" in why(p, "j0").lines()
    held = why(p, "j1")
    assert held.got["reason"] == "held" and said(held)[0].startswith("if it were released: it would get")
    fixed = {"state": "running", "pool": "p0", "gpus": 8, "preemptible": False}
    blocked = why(problem([fixed, {}]), "j1")
    assert blocked.got["reason"] == "protected"
    assert blocked.losers == ("it cannot get more while every rule holds",)


def test_unknown_job_and_plain_data() -> None:
    """A misspelt name is a usage error with the right one; the explanation is plain data and sentences."""
    with pytest.raises(UsageError, match='did you mean "poor"'):
        explain(one_gpu(), "por")
    e = why(one_gpu(), "poor")
    assert e.to_dict()["job_id"] == "poor" and any("outranked" in line for line in e.lines())
