"""A job on the GPUs of several jobs, and idle ones: against trying every plan, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import count, seeds
from group_rounds import Groups, crossed_round, group_round
from matrix_rounds import CROSSED

import allocator.options.instance_building as rounds
from allocator.audit import audit
from allocator.audit.context import AuditContext
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible, InvalidInput
from allocator.options.instance_building import compile_round
from allocator.policies.base import POLICIES
from allocator.policies.pairs import _PairPrices
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
from formulations.model.choices import choices

EXACT = SolveLimits(gap=0.0)
LISTED = rounds.LISTED
SOLVERS = ("auto", *registry.SOLVERS)
AIMS = (*CROSSED, "completion,progress=0.1")
FIRST = 17  # its rounds, and the next ones, have jobs on several
SOAK = 60 * len(AIMS)  # rounds of the long run


def best_of_all(round_: Groups, p: Problem, rng: np.random.Generator) -> float:
    """Value of the best plan, by the audit, which has to find the speeds, the costs and who keeps
    its GPUs as the oracle has them, the values as a second reading of the objectives has them
    (second_values.py), and a fault in what the oracle does not let pass.
    """
    compiled, best = compile_round(p, prunes=False), -np.inf
    mended, every = compiled.repairs, compiled.offer
    for plan, sets in round_.drafts():
        given = round_.given(plan, sets)
        if given is None:
            drawn = round_.given(plan, sets, broken=True) if rng.random() < 0.05 else None
            told = drawn and audit(p, round_.allocation(drawn), mended, every)
            assert told is None or told.faults, (plan, sets)
            continue
        allocation = round_.allocation(given)
        told = audit(p, allocation, mended, every)
        assert not told.faults, (plan, sets, told.faults)
        assert told.rate == pytest.approx(given.speed) and told.cost == pytest.approx(given.cost)
        assert AuditContext(p, allocation, mended, every).is_kept.tolist() == given.stays
        values = pytest.approx(round_.values(given), rel=1e-9, abs=1e-9)
        assert told.value.tolist() == values, (plan, sets)
        best = max(best, told.objective_value)
    return best


def check(seed: int, policies: tuple[str, ...], patch: pytest.MonkeyPatch) -> str:
    """One round under one objective: no plan above the best one, no bound below it, `mip` finds it.

    Every second round prices its pairs by kinds, as large ones do; so each objective has both.
    """
    objective = AIMS[seed % len(AIMS)]
    patch.setattr(rounds, "LISTED", LISTED if seed % 2 else 0)
    round_ = crossed_round(seed, objective)
    p = validate(round_.snapshot())
    best = best_of_all(round_, p, rng := np.random.default_rng([seed, 19]))
    if best == -np.inf:
        with pytest.raises(Infeasible):
            decide(p, limits=EXACT)
        return "no plan"
    near, shared = 1e-6 * max(1e-3, abs(best)), "apart"
    check_prices(p, best - near, rng)
    ways = [("mip", 0.0, SOLVERS[seed % len(SOLVERS)]), ("mip", 0.02, "auto")]
    for policy, gap, solver in (*ways, *((name, 0.0, "auto") for name in policies)):
        plan = decide(p, policy=policy, solver=solver, limits=SolveLimits(gap=gap))
        where = (seed, objective, policy, gap, plan.objective_value, plan.bound, best)
        assert plan.objective_value <= best + near and plan.bound >= best - near, where
        if policy == "mip" or plan.status == "optimal":
            assert plan.objective_value >= best - gap * abs(best) - near, where
        names = "".join(name or "" for name in plan.jobs["shared_with"])
        shared = "several" if "|" in names else "pairs" if names else shared
    return shared


def check_prices(p: Problem, best: float, rng: np.random.Generator) -> None:
    """At any prices of rows and of the right to a secondary job no plan is above the bound."""
    round_ = compile_round(p)
    if round_.omitted_pairs is not None:
        c, size = choices(round_.model), max(1e-3, abs(best))
        for _ in range(5):
            prices = rng.uniform(0, size, c.model.m) * (rng.random(c.model.m) < 0.7)
            right = rng.normal(0, size, len(round_.omitted_pairs.pairs.alike))
            right[rng.random(len(right)) < 0.3] = np.nan
            assert _PairPrices.of(round_, c, prices, right).bound >= best


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(3))
def test_every_objective_against_every_plan(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with best-effort and firm jobs, isolation, little memory, spot GPUs, prices of memory,
    budgets and guarantees: the values, rates, costs and faults of the audit, the plans, and the
    bounds at any prices, with pairs listed and priced by kinds."""
    seen = [
        check(seed, (tuple(POLICIES)[seed % len(POLICIES)],), monkeypatch)
        for seed in range(FIRST + part, FIRST + count(len(AIMS), SOAK), 3)
    ]
    assert {"pairs", "apart"} <= {*seen} and (part or "several" in seen)


@pytest.mark.soak
def test_every_objective_against_every_plan_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on many rounds, with more policies on each."""
    for seed in range(1_000, 1_000 + SOAK):
        check(seed, ("ffs", "bsbf", "marginal", tuple(POLICIES)[seed % len(POLICIES)]), monkeypatch)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_round_that_prices_its_pairs_and_one_that_lists_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 jobs, hundreds of pairs: neither finds a plan above the other's bound, and both reach the
    asked gap; so do rounds that follow."""
    round_, values, bounds = group_round(seed, 20), [], []
    round_.tables["pools"][0]["gpus"] = 24
    p = validate(round_.snapshot())
    for listed in (10**6, 0):
        monkeypatch.setattr(rounds, "LISTED", listed)
        result = decide(p, limits=SolveLimits(gap=1e-2))
        values.append(result.objective_value)
        bounds.append(result.bound)
        assert result.gap <= 1e-2
    assert max(values) <= min(bounds) * (1 + 1e-9)
    assert compile_round(p).omitted_pairs is not None
    warm = Rounds(gap=1e-2)
    for _ in range(2):
        again = warm.decide(p)
        assert again.gap <= 1e-2 and again.bound >= max(values) * (1 - 1e-9)


POOL = {"gpus": 4, "memory_gb": 10.0, "sharing": "any"}


def rows(*slow: tuple[str, str, float, float]) -> list[dict[str, Any]]:
    return [
        {"model_a": a, "model_b": b, "gpu_type": "A", "gpus": 1, "slowdown_a": x, "slowdown_b": y}
        for a, b, x, y in slow
    ]


RUNNING = {"state": "running", "pool": "p0", "min_gpus": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": {"max_primaries": 1}}, "names 2 jobs, max_primaries is 1"),
        ({"first": {"gpus": 4}}, "holds 5 GPUs, this job 4 GPUs"),
        ({"first": {"preemptible": False}}, 'preemptible is false for "j0"'),
        ({"pool": {"market": "spot"}}, 'pool "p0" is a spot pool'),
    ],
)
def test_what_a_snapshot_may_not_say(change: dict[str, dict[str, Any]], words: str) -> None:
    """What has several names is wrong in more ways than what has one (test_secondary_jobs.py)."""
    jobs = [
        RUNNING | {"gpus": 1} | change.get("first", {}),
        RUNNING | {"gpus": 1},
        RUNNING | {"gpus": 4, "shared_with": "j0|j1"},
    ]
    pools = [POOL | change.get("pool", {}), {"gpus": 4}]
    config = {"max_primaries": 2} | change.get("config", {})
    with pytest.raises(InvalidInput) as fault:
        problem(jobs, pools, sharing=rows(("m", "m", 1.1, 1.1)), config=config)
    assert words in str(fault.value)
