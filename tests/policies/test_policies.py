"""Conformance suite of policies: every entry of the registry, present and future, passes all of it.

All hard rules on random rounds and one by one by hand, no plan where mip has none and the same
conflict named, the same bytes for the same input, the same plan whatever jobs and pools are called
and in which order they come, every job decided once, history of any kind, time limits, nothing to
decide.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from builders import problem, snapshot
from cases.folders import Folder
from examples import count
from fakes.random_rounds import random_snapshot
from waiting import in_time

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine import decision
from allocator.engine.decision import decide
from allocator.errors import Infeasible, NoPlanInTime
from allocator.policies import mip
from allocator.policies.registry import POLICIES
from allocator.solvers.base import SolveLimits

every_policy = pytest.mark.parametrize("policy", POLICIES)
SEARCHES = {
    "marginal": "moves of equal value are tried in the order of the rows",
    "sia": "values rounded to two decimals make many plans equal",
    "ffdl": "plans of equal progress",
    "horizon": "plans of several rounds of the same value",
}


@functools.cache
def rounds(number: int, first: int = 500) -> list[Problem]:
    return [
        validate(random_snapshot(np.random.default_rng(first + s), 15).snapshot())
        for s in range(number)
    ]


def text(r: Plan) -> str:
    return json.dumps({k: v for k, v in r.to_dict().items() if k != "seconds"})


@every_policy
def test_every_rule_is_kept_on_random_rounds(policy: str) -> None:
    """The audit inside every decision passes, or the rules are proven to clash; value and bound
    are in order.
    """
    planned, tried = 0, rounds(count(24, 40))
    for p in tried:
        try:
            r = decide(p, policy=policy)
        except Infeasible:
            continue
        planned += 1
        assert r.policy == policy and 0 <= r.objective_value <= r.bound < np.inf
        assert r.gap == pytest.approx(
            (r.bound - r.objective_value) / max(abs(r.objective_value), 1e-9)
        )
    assert planned >= 0.6 * len(tried)


@functools.cache
def feasible(policy: str) -> list[bool]:
    """For each round whether the policy finds a plan."""

    def planned(p: Problem) -> bool:
        try:
            return decide(p, policy=policy).bound < np.inf
        except Infeasible:
            return False

    return [planned(p) for p in rounds(count(15, 25), 900)]


@every_policy
def test_policies_agree_on_which_rounds_have_a_plan(policy: str) -> None:
    """A heuristic finds a plan exactly where `mip` does: none gives up on a feasible round, none
    hides a conflict.
    """
    assert feasible(policy) == feasible("mip")


@every_policy
def test_same_input_same_plan(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deterministic to the byte, timings aside."""
    # reasons do not depend on how busy the machine is
    monkeypatch.setattr(decision, "REASONS_S", math.inf)
    for p in rounds(count(3, 6)):
        try:
            assert text(decide(p, policy=policy)) == text(decide(p, policy=policy))
        except Infeasible:
            continue


@every_policy
def test_input_is_left_alone(policy: str) -> None:
    """No array of the problem changes while it is decided."""
    p = rounds(1, 503)[0]
    before = {
        name: np.array(getattr(p.jobs, name)).copy()
        for name in ("pool", "gpus", "state", "weight", "sizes")
    }
    decide(p, policy=policy)
    assert all((np.array(getattr(p.jobs, name)) == value).all() for name, value in before.items())


@every_policy
def test_no_time_still_gives_a_plan(policy: str) -> None:
    """With a time limit of 0 there is a plan with a bound all the same."""
    r = decide(
        problem([{}, {"remaining_work": 5e4}, {"max_gpus": 2}], [{"gpus": 4}]),
        policy=policy,
        limits=SolveLimits(time_s=0.0),
    )
    assert 0 < r.objective_value <= r.bound < np.inf


@every_policy
def test_idle_gpus_go_to_whoever_can_use_them(policy: str) -> None:
    """One job, one pool, no other rule: it gets GPUs."""
    assert decide(problem([{"remaining_work": 1e6}]), policy=policy).jobs["gpus"][0] > 0


@every_policy
def test_protected_and_held_jobs(policy: str) -> None:
    """A non-preemptible job keeps its GPUs whatever waits; a held one gets nothing."""
    fixed = {
        "state": "running",
        "pool": "p0",
        "gpus": 4,
        "preemptible": False,
        "remaining_work": 1e9,
        "submitted_s": 9,
    }
    r = decide(
        problem([fixed, {"state": "held"}, {"remaining_work": 10, "min_gpus": 8}]), policy=policy
    )
    assert list(r.jobs["gpus"]) == [4, 0, 0]


@every_policy
@pytest.mark.parametrize("empty", [snapshot([]), snapshot([], []), snapshot([{}], [{"gpus": 0}])])
def test_nothing_to_decide(policy: str, empty: object) -> None:
    """No jobs, no pools, no GPUs: an empty plan that is proven optimal."""
    r = decide(validate(empty), policy=policy)  # type: ignore[arg-type]
    assert r.status == "optimal" and r.objective_value == 0


@every_policy
def test_every_job_is_decided_once(policy: str) -> None:
    """Each job of the snapshot appears once, in its place, with a pool exactly if it has GPUs."""
    for p in rounds(8, 700):
        try:
            r = decide(p, policy=policy)
        except Infeasible:
            continue
        assert list(r.jobs["job_id"]) == list(p.jobs.job_id)
        assert [pool is not None for pool in r.jobs["pool"]] == [k > 0 for k in r.jobs["gpus"]]


def renamed(folder: Folder, rng: np.random.Generator) -> tuple[Folder, dict[str, str]]:
    """The same round with jobs and pools under other names in another order; old -> new name of
    each job.
    """

    def new(rows: Any, key: str, letter: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
        order = rng.permutation(len(rows))
        names = {row[key]: f"{letter}{order[n]}" for n, row in enumerate(rows)}
        return [{**rows[n], key: names[rows[n][key]]} for n in order], names

    jobs, names = new(folder.tables["jobs.csv"], "job_id", "x")
    pools, pool_names = new(folder.tables["pools.csv"], "pool", "q")
    jobs = [{**row, "pool": pool_names[row["pool"]]} if "pool" in row else row for row in jobs]
    return (
        Folder(folder.name, folder.config, {**folder.tables, "jobs.csv": jobs, "pools.csv": pools}),
        names,
    )


@every_policy
def test_names_and_order_do_not_matter(policy: str) -> None:
    """Jobs and pools renamed and shuffled: each job gets the same GPUs. Only where no two pools are
    alike: between equals something has to decide. For policies that search among plans of equal
    value, only that there is a plan."""
    compared = 0
    for s in range(count(9, 12)):
        folder = random_snapshot(np.random.default_rng(3000 + s), 12, pools=2)
        types = [row["gpu_type"] for row in folder.tables["pools.csv"]]
        if len(set(types)) < len(types):
            continue
        other, names = renamed(folder, np.random.default_rng(s))
        try:
            one = decide(validate(folder.snapshot()), policy=policy)
        except Infeasible:
            continue
        two = decide(validate(other.snapshot()), policy=policy)
        given = {names[j]: k for j, k in zip(one.jobs["job_id"], one.jobs["gpus"], strict=True)}
        if policy not in SEARCHES:
            assert given == dict(zip(two.jobs["job_id"], two.jobs["gpus"], strict=True))
        compared += 1
    assert compared >= 4


@every_policy
def test_any_history_is_fine(policy: str) -> None:
    """Service, restarts, largest size and time per type at random: a plan that keeps the rules
    all the same.
    """
    for s in range(count(6, 10)):
        rng = np.random.default_rng(40 + s)
        folder = random_snapshot(rng, 12)
        types = sorted({row["gpu_type"] for row in folder.tables["pools.csv"]})
        jobs = [
            {
                **row,
                "attained_gpu_s": float(rng.choice([0, 1, 1e4, 1e9])),
                "restarts": int(rng.integers(0, 40)),
                "largest_gpus": max(row.get("gpus", 0), int(rng.integers(0, 9))),
            }
            for row in folder.tables["jobs.csv"]
        ]
        had = [
            {
                "job_id": row["job_id"],
                "gpu_type": types[0],
                "seconds": float(rng.choice([1.5, 1e7])),
            }
            for row in jobs[::2]
        ]
        tables = {**folder.tables, "jobs.csv": jobs, "received.csv": had}
        try:
            assert (
                decide(
                    validate(Folder("history", folder.config, tables).snapshot()), policy=policy
                ).bound
                < np.inf
            )
        except Infeasible:
            continue


@every_policy
def test_a_clash_of_rules_is_named_as_by_mip(policy: str) -> None:
    """A non-preemptible job of 4 GPUs in a tenant that may have 3: the same conflict and
    relaxation as mip.
    """
    jobs = [
        {"tenant": t, "state": "running", "pool": "p0", "gpus": 4, "preemptible": False}
        for t in "ab"
    ]
    p = problem(jobs, tenants=[{"tenant": "a", "max_gpus": 3}])
    said = []
    for name in (policy, "mip"):
        with pytest.raises(Infeasible) as caught:
            decide(p, policy=name)
        said.append((caught.value.conflict, caught.value.relaxations))
    assert said[0] == said[1]


@every_policy
def test_a_drained_pool(policy: str) -> None:
    """A non-preemptible job on 4 GPUs of which 2 are left is released, not an error; 2 GPUs are
    used at most.
    """
    fixed = {"state": "running", "pool": "p0", "gpus": 4, "preemptible": False}
    r = decide(problem([fixed, {}], [{"gpus": 2}]), policy=policy)
    assert (
        sum(r.jobs["gpus"]) <= 2
        and r.jobs["gpus"][0] != 4
        and any("4 GPUs" in w for w in r.warnings)
    )


@every_policy
def test_predecessors_and_spent_resizes(policy: str) -> None:
    """A job waits for one that is still here; a running job without resizes left is kept or
    paused, never changed.
    """
    r = decide(problem([{"job_id": "a"}, {"after": ["a"]}]), policy=policy)
    assert r.jobs["gpus"][1] == 0
    spent = {"state": "running", "pool": "p0", "gpus": 2, "resizes_left": 0}
    assert decide(problem([spent, {"requested_gpus": 8}, {}]), policy=policy).jobs["gpus"][0] in (
        0,
        2,
    )


@every_policy
def test_budgets_and_quotas(policy: str) -> None:
    """5 dollars at 1 dollar per GPU, 3 for tenant t, whose quota is 2: neither is exceeded,
    something runs.
    """
    p = problem(
        [{"tenant": "t"}, {"tenant": "t"}, {}, {}],
        [{"price_per_gpu_hour": 1}],
        config={"budget_per_hour": 5},
        tenants=[{"tenant": "t", "max_gpus": 2, "budget_per_hour": 3}],
    )
    used = decide(p, policy=policy).jobs["gpus"]
    assert 0 < sum(used) <= 5 and sum(used[:2]) <= 2


@every_policy
def test_limit_on_changes(policy: str) -> None:
    """Four running jobs, one of which may change: three keep what they hold."""
    jobs = [
        {
            "state": "running",
            "pool": "p0",
            "gpus": 2,
            "remaining_work": 10**n,
            "submitted_s": n,
            "attained_gpu_s": 9e3 * n,
        }
        for n in range(1, 5)
    ]
    r = decide(problem([*jobs, {"requested_gpus": 8}], config={"max_changes": 1}), policy=policy)
    assert sum(a == "keep" for a in r.jobs["action"]) >= 3


@every_policy
def test_time_limits_are_kept(policy: str) -> None:
    """With no time at all, on rounds with every rule: a plan, or word that none was found,
    within a second.
    """
    for p in rounds(5, 800):
        with in_time(1.0), contextlib.suppress(Infeasible, NoPlanInTime):
            assert decide(p, policy=policy, limits=SolveLimits(time_s=0.0)).bound < np.inf


def test_a_solver_asked_about_better_plans_alone_finds_the_best_one() -> None:
    """`auto` without its own search leaves columns out; value and bound are those of all."""
    asked = 0
    for round_ in rounds(count(12, 40), 900):
        try:
            whole = decide(round_, limits=SolveLimits(gap=0.0), solver="highs")
        except Infeasible:
            continue
        with mock.patch.object(mip, "_close_gap", lambda task, start: (task, start)):
            plan = decide(round_, limits=SolveLimits(gap=0.0))
        assert plan.objective_value == pytest.approx(whole.objective_value, abs=1e-6)
        assert plan.bound == pytest.approx(whole.objective_value, abs=1e-6)
        asked += plan.solver == "highs"
    assert asked >= 4
