"""Bounds where jobs may share GPUs: over every pair that the rules allow, whatever a policy looked
at.

The oracle tries every plan of a tiny round, pairs with either of the two as primary job included,
and lets the audit, which has code of its own, judge and value each (`best_of_all`). Further rounds:
--hypothesis-profile=soak.
"""

from __future__ import annotations

import numpy as np
import pytest
from examples import count, seeds
from sharing_rounds import best_of_all, sharing_snapshot

import allocator.options.instance_building as rounds
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible
from allocator.options.instance_building import compile_round
from allocator.policies.pairs import _PairPrices
from allocator.policies.registry import POLICIES
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
from formulations.model.choices import choices
from formulations.objectives import BUILT_IN as OBJECTIVES

EXACT = SolveLimits(gap=0.0)
SOAK = 2_000  # rounds of the long run: about half an hour of one core
AIMS = (*OBJECTIVES, "completion > progress", "progress=2,utility=0.5", "cost > completion")
SOLVERS = ("auto", *registry.SOLVERS)
LISTED = rounds.LISTED


def tiny(seed: int, best_effort: bool = False) -> Problem:
    """Three jobs on one or two small pools, with rules, pauses, money, checkpoints and deadlines,
    slowdowns up to 3; some run already, two of them together at times. On request jobs that may be
    moved are best-effort at times, next to whom others are isolated on some pools."""
    rng = np.random.default_rng([seed, 11])
    folder = sharing_snapshot(seed + 50_000, jobs=3, rules=bool(rng.random() < 0.8))
    tables, config = folder.tables, dict(folder.config)
    config["objective"] = AIMS[seed % len(AIMS)]
    if rng.random() < 0.3:
        config["dollar_price"] = float(rng.choice([0.01, 0.3]))
    top = float(rng.choice([1.45, 2.0, 3.0]))
    for r in tables["sharing.csv"]:
        r |= {"slowdown_a": float(rng.uniform(1, top)), "slowdown_b": float(rng.uniform(1, top))}
    for p in tables["pools.csv"]:
        held = sum(
            j["gpus"]
            for j in tables["jobs.csv"]
            if j.get("pool") == p["pool"] and not j.get("shared_with")
        )
        p["gpus"] = max(held, min(p["gpus"], 4))
        if rng.random() < 0.3:
            p |= {"market": "spot", "mean_life_s": 7200.0}
    for j in tables["jobs.csv"]:
        j["total_work"] = j["remaining_work"] * float(rng.choice([1.0, 2.0]))
        j["deadline_s"] = (
            float(rng.choice([10_500, 14_000, 40_000])) if rng.random() < 0.4 else None
        )
        if rng.random() < 0.4:
            j |= {
                "checkpoint_s": float(rng.choice([5, 60])),
                "checkpoint_every_s": float(rng.choice([100, 1000])),
            }
    if best_effort:
        for p in tables["pools.csv"]:
            p["isolation"] = float(rng.choice([1.0, 1.2])) if rng.random() < 0.5 else None
            if not any(j.get("shared_with") for j in tables["jobs.csv"]) and rng.random() < 0.5:
                p["sharing"] = "best_effort"
        for j in tables["jobs.csv"]:
            j["best_effort"] = j.get("preemptible", True) and bool(rng.random() < 0.5)
    return validate(type(folder)("tiny", config, tables).snapshot())


def check(
    seed: int, policies: tuple[str, ...], solvers: tuple[str, ...], patch: pytest.MonkeyPatch
) -> str:
    """One round: no plan above any bound, optimal means optimal, `mip` finds the best; what came
    of it.
    """
    # every second round prices its pairs
    patch.setattr(rounds, "LISTED", LISTED if seed % 2 else 0)
    p = tiny(seed)
    best = best_of_all(p)
    told = "no plan"
    for policy, solver in (
        *((name, "auto") for name in policies),
        *(("mip", name) for name in solvers),
    ):
        if best is None:
            with pytest.raises(Infeasible):
                decide(p, policy=policy, solver=solver, limits=EXACT)
            continue
        result = decide(p, policy=policy, solver=solver, limits=EXACT)
        near = 1e-6 * max(1e-3, abs(best))
        where = (seed, p.objective, policy, solver, result.objective_value, result.bound, best)
        assert result.objective_value <= best + near, where
        assert result.bound >= best - near, where
        if result.status == "optimal" or policy == "mip":
            assert result.objective_value >= best - near, where
        if policy == "mip":
            assert result.status == "optimal", where
        told = "shared" if any(result.jobs["shared_with"]) else "apart"
    return told


def test_every_bound_against_every_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds under every objective in turn; all solvers and policies of sharing in turn."""
    seen = [
        check(
            seed,
            (tuple(POLICIES)[seed % len(POLICIES)], ("ffs", "bsbf", "marginal")[seed % 3]),
            (SOLVERS[seed % len(SOLVERS)],),
            monkeypatch,
        )
        for seed in range(count(6, SOAK))
    ]
    assert "shared" in seen and "apart" in seen


def check_kinds(seed: int, patch: pytest.MonkeyPatch) -> str:
    """One round that prices its pairs by kinds, for a gap that is not too small for that."""
    patch.setattr(rounds, "LISTED", 0)
    p, rng = tiny(seed, best_effort=True), np.random.default_rng([seed, 13])
    best = best_of_all(p)
    if best is None:
        with pytest.raises(Infeasible):
            decide(p, limits=SolveLimits(gap=0.02))
        return "no plan"
    near, where = 1e-6 * max(1e-3, abs(best)), (seed, p.objective, best)
    round_ = compile_round(p)
    if round_.omitted_pairs is not None:
        c, size = choices(round_.model), max(1e-3, abs(best))
        for _ in range(5):
            prices = rng.uniform(0, size, c.model.m) * (rng.random(c.model.m) < 0.7)
            right = rng.normal(0, size, len(round_.omitted_pairs.pairs.alike))
            right[rng.random(len(right)) < 0.3] = np.nan
            assert _PairPrices.of(round_, c, prices, right).bound >= best - near, where
    result = decide(p, limits=SolveLimits(gap=0.02))
    assert best + near >= result.objective_value >= best - 0.02 * abs(best) - near, where
    assert result.bound >= best - near, where
    if round_.omitted_pairs is None:
        return "no pairs"
    return "shared" if any(result.jobs["shared_with"]) else "apart"


def test_bounds_from_kinds_against_every_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under every objective in turn, with best-effort jobs: at any prices of rows and of the right
    to a secondary job no plan is above the bound, and a decision reaches its gap."""
    seen = [check_kinds(seed, monkeypatch) for seed in range(count(5, 600))]
    assert "shared" in seen and "apart" in seen


@pytest.mark.parametrize("seed", [1976, 2318, 2338])
def test_rounds_that_went_wrong_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that moves who could keep; rounds in which nothing has a value: their bound
    is a rounding error.
    """
    check(seed, ("sia",), ("cpsat",), monkeypatch)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_round_that_prices_its_pairs_and_one_that_lists_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 jobs, hundreds of pairs: neither finds a plan above the other's bound, and both reach the
    asked gap; so do rounds that follow."""
    p, values, bounds = validate(sharing_snapshot(seed, 20).snapshot()), [], []
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
