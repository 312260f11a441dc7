"""Trees of tenants, quotas by type, and lending: against exhaustive search on tiny rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import count, examples, series
from hypothesis import given, strategies as st
from matrix import Tables, base
from second_values import Reading

from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.errors import Infeasible
from allocator.policies.base import POLICIES
from allocator.solvers.base import SolveLimits

EXACT = SolveLimits(gap=0.0)
NAMES = ("a", "b", "c", "d")
tiny = examples(20, 40)
seeds = st.integers(0, 10**6)


def random_tree(seed: int) -> Tables:
    """A tiny round of four tenants in a random tree, with random quotas, guarantees and lending."""
    rng = np.random.default_rng([7, seed])
    r = base(seed % 50)
    for j in r.jobs:
        j["tenant"] = str(rng.choice(NAMES))
        j["weight"] = float(np.round(rng.uniform(0.2, 3.0), 3))
    if rng.random() < 0.3:
        r.jobs[0]["preemptible"] = False
    r.tenants[:] = [{"tenant": name} for name in NAMES]
    for n, row in enumerate(r.tenants):
        if n and rng.random() < 0.7:
            row["parent"] = NAMES[int(rng.integers(n))]
        if rng.random() < 0.3:
            row["max_gpus"] = int(rng.integers(1, 6))
        if rng.random() < 0.2:
            row["guaranteed_gpus"] = int(rng.integers(1, 4))
        if rng.random() < 0.2:
            row["budget_per_hour"] = float(rng.integers(1, 6))
    r.config |= {"max_changes": int(rng.integers(0, 2))} if rng.random() < 0.3 else {}
    for name in NAMES:
        for what in ({}, {"gpu_type": "A"}, {"gpu_type": "B"}, {"pool": "p0"}):
            if rng.random() < 0.18:
                promised = int(rng.integers(0, 4))
                row: dict[str, Any] = {"tenant": name, "guaranteed_gpus": promised, **what}
                if rng.random() < 0.5:
                    row["max_gpus"] = int(rng.integers(1, 6))
                if rng.random() < 0.6:
                    row["lend_gpus"] = int(rng.integers(0, promised + 1))
                r.further.setdefault("quotas", []).append(row)
    return r


def reading(r: Tables) -> Reading:
    """The round read a second time."""
    config = r.config | {"objective": "progress"}
    return Reading(r.jobs, r.pools, r.rates, r.tenants, config, r.further)


def best(r: Tables) -> float | None:
    """Value of the best of all plans, None without a plan."""
    told = reading(r)
    return max((told.value_of(plan) for plan in told.plans()), default=None)


@tiny
@given(seeds)
def test_the_best_of_all_plans_is_found(seed: int) -> None:
    """Value and bound at gap 0 are those of exhaustive search; infeasible where no plan exists."""
    r = random_tree(seed)
    expected = best(r)
    try:
        plan = decide(r.problem(), limits=EXACT)
    except Infeasible:
        assert expected is None
        return
    assert expected is not None
    assert plan.objective_value == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert plan.bound == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.fixture(scope="module")
def trees() -> list[tuple[Problem, list[Any]]]:
    """Rounds, and all legal plans of each: they are the same for every policy."""
    rounds = [random_tree(1000 + seed) for seed in range(count(3, 12))]
    return [(r.problem(), list(reading(r).plans())) for r in rounds]


@pytest.mark.parametrize("policy", series([*POLICIES], 8))
def test_every_policy_keeps_the_rules(policy: str, trees: list[tuple[Problem, list[Any]]]) -> None:
    """Its plan is one of all legal plans, and there is one wherever a legal plan exists."""
    for seed, (problem, plans) in enumerate(trees):
        try:
            plan = decide(problem, policy=policy)
        except Infeasible:
            assert not plans
            continue
        gets = {
            str(name): (str(pool), int(str(gpus)))
            for name, pool, gpus in zip(
                plan.jobs["job_id"], plan.jobs["pool"], plan.jobs["gpus"], strict=True
            )
            if pool
        }
        assert gets in plans, (policy, seed)
