"""Conformance suite of policies: every entry of the registry, present and future, passes all of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import problem, snapshot

from allocator.bench.random_rounds import random_snapshot
from allocator.decision import decide
from allocator.domain.problem import Problem
from allocator.domain.result import Result
from allocator.domain.validate import validate
from allocator.errors import Infeasible
from allocator.policies.registry import POLICIES
from allocator.solvers.base import Limits

every_policy = pytest.mark.parametrize("policy", POLICIES)


def rounds(count: int, first: int = 500) -> list[Problem]:
    return [validate(random_snapshot(np.random.default_rng(first + s), 15).snapshot()) for s in range(count)]


def text(r: Result) -> str:
    return json.dumps({k: v for k, v in r.to_dict().items() if k != "seconds"})


@every_policy
def test_every_rule_is_kept_on_random_rounds(policy: str) -> None:
    """The audit inside every decision passes, or the rules are proven to clash; value and bound are in order."""
    planned = 0
    for p in rounds(40):
        try:
            r = decide(p, policy=policy)
        except Infeasible:
            continue
        planned += 1
        assert r.policy == policy and 0 <= r.objective_value <= r.bound < np.inf
        assert r.gap == pytest.approx((r.bound - r.objective_value) / max(abs(r.objective_value), 1e-9))
    assert planned >= 25


@every_policy
def test_policies_agree_on_which_rounds_have_a_plan(policy: str) -> None:
    """A heuristic finds a plan exactly where `mip` does: none gives up on a feasible round, none hides a conflict."""
    def feasible(p: Problem, name: str) -> bool:
        try:
            decide(p, policy=name)
        except Infeasible:
            return False
        return True

    for p in rounds(25, 900):
        assert feasible(p, policy) == feasible(p, "mip")


@every_policy
def test_same_input_same_plan(policy: str) -> None:
    """Deterministic to the byte, timings aside."""
    for p in rounds(6):
        try:
            assert text(decide(p, policy=policy)) == text(decide(p, policy=policy))
        except Infeasible:
            continue


@every_policy
def test_input_is_left_alone(policy: str) -> None:
    """No array of the problem changes while it is decided."""
    p = rounds(1, 503)[0]
    before = {name: np.array(getattr(p.jobs, name)).copy() for name in ("pool", "gpus", "state", "weight", "sizes")}
    decide(p, policy=policy)
    assert all((np.array(getattr(p.jobs, name)) == value).all() for name, value in before.items())


@every_policy
def test_no_time_still_gives_a_plan(policy: str) -> None:
    """With a time limit of 0 there is a plan with a bound all the same."""
    r = decide(problem([{}, {"remaining_work": 5e4}, {"max_gpus": 2}], [{"gpus": 4}]), policy=policy,
               limits=Limits(time_s=0.0))
    assert 0 < r.objective_value <= r.bound < np.inf


@every_policy
def test_idle_gpus_go_to_whoever_can_use_them(policy: str) -> None:
    """One job, one pool, no other rule: it gets GPUs."""
    assert decide(problem([{"remaining_work": 1e6}]), policy=policy).jobs["gpus"][0] > 0


@every_policy
def test_protected_and_held_jobs(policy: str) -> None:
    """A non-preemptible job keeps its GPUs whatever waits; a held one gets nothing."""
    fixed = {"state": "running", "pool": "p0", "gpus": 4, "preemptible": False, "remaining_work": 1e9, "submitted_s": 9}
    r = decide(problem([fixed, {"state": "held"}, {"remaining_work": 10, "min_gpus": 8}]), policy=policy)
    assert list(r.jobs["gpus"]) == [4, 0, 0]


@every_policy
@pytest.mark.parametrize("empty", [snapshot([]), snapshot([], []), snapshot([{}], [{"gpus": 0}])])
def test_nothing_to_decide(policy: str, empty: object) -> None:
    """No jobs, no pools, no GPUs: an empty plan that is proven optimal."""
    r = decide(validate(empty), policy=policy)  # type: ignore[arg-type]
    assert r.status == "optimal" and r.objective_value == 0
