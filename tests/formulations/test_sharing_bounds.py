"""Bounds where jobs may share GPUs: over every pair that the rules allow, whatever a policy looked
at.

The oracle tries every plan of a tiny round, pairs with either of the two as primary job included,
and lets the audit, which has code of its own, judge and value each (`best_of_all`). Further rounds:
--hypothesis-profile=soak.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from builders import problem
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
GANG: dict[str, Any] = {"remaining_work": 4000, "min_gpus": 4, "max_gpus": 4, "memory_gb": 10.0}
ONE: dict[str, Any] = {
    "max_gpus": 1,
    "memory_gb": 4.0,
    "state": "running",
    "pool": "p0",
    "gpus": 1,
}
BOX: dict[str, Any] = {"gpus": 4, "memory_gb": 48.0, "sharing": "any"}


def slow(xi: float, gpus: int = 4) -> list[dict[str, Any]]:
    """Two of model m slow each other down by xi."""
    both = {"model_a": "m", "model_b": "m", "slowdown_a": xi, "slowdown_b": xi}
    return [both | {"gpu_type": "A", "gpus": gpus}]


def test_no_policy_beats_the_bound_of_a_pair_that_loses_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4 work per second for 300 s are 0.3 of what one job has left; on the same GPUs, 1.6 times as
    slow, both do 0.1875. The second would end sooner after the first than together with it, but the
    round has value 0.375, whatever a policy does: `mip` finds it, and nobody is called optimal at
    0.3."""
    jobs = [GANG | {"state": "running", "pool": "p0", "gpus": 4}, GANG]
    p = problem(jobs, [BOX], {4: 4.0}, sharing=slow(1.6))
    for n, policy in enumerate(("mip", *POLICIES)):
        monkeypatch.setattr(rounds, "LISTED", LISTED if n % 2 else 0)
        result = decide(p, policy=policy, limits=EXACT)
        assert result.bound == pytest.approx(0.375) and result.bound >= 0.375 - 1e-12
        best = result.objective_value == pytest.approx(0.375)
        assert (result.status == "optimal") == best, policy
        assert best or policy not in ("mip", "marginal", "ffs")


def test_a_guarantee_that_only_the_other_primary_keeps() -> None:
    """Two that may not be moved share a GPU; the tenant of the one that joined is promised a GPU:
    from now on it pays, and both go on as they are. Without looking at that no plan would
    keep the rules."""
    pair = [ONE | {"preemptible": False, "tenant": t} for t in "xy"]
    pair[1]["shared_with"] = "j0"
    p = problem(
        pair,
        [BOX | {"gpus": 1}],
        {1: 1.0},
        sharing=slow(1.2, 1),
        tenants=[{"tenant": "x"}, {"tenant": "y", "guaranteed_gpus": 1}],
    )
    for policy in ("mip", "srtf", "ffs"):
        result = decide(p, policy=policy, limits=EXACT)
        assert [t.gpus for t in result.tenants] == [0, 1]
        assert result.jobs["action"] == ["keep", "keep"]


def test_who_is_left_alone_on_shared_gpus_keeps_them() -> None:
    """A plan that moves the secondary job to other GPUs of the pool and its primary job to another
    pool is one in which nobody has to move the secondary job: it keeps its GPUs, and pauses for
    nothing."""
    p = problem([ONE, ONE | {"shared_with": "j0"}], [BOX, BOX], {1: 1.0}, sharing=slow(1.2, 1))
    round_ = compile_round(p, prunes=False)
    i = round_.instance
    moves = np.flatnonzero((i.job == 1) & (i.pool == 0) & ~i.keep & (i.primary < 0))
    leaves = np.flatnonzero((i.job == 0) & (i.pool == 1))
    stays = np.flatnonzero((i.job == 0) & i.keep & (i.primary < 0))
    assert i.keep[round_.with_kept_gpus(np.append(leaves, moves))[1]]
    assert round_.with_kept_gpus(np.append(stays, moves)).tolist() == [*stays, *moves]


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


def crowd(jobs: int, seed: int) -> Problem:
    """Many jobs of six models and three sizes on two pools."""
    rng = np.random.default_rng(seed)
    models = [f"m{i}" for i in range(6)]
    return problem(
        [
            {
                "model": str(rng.choice(models)),
                "remaining_work": float(10 ** rng.uniform(2, 4)),
                "max_gpus": 4,
                "memory_gb": float(rng.integers(1, 8)),
            }
            for _ in range(jobs)
        ],
        [{"gpu_type": t, "gpus": 16, "memory_gb": 10.0, "sharing": "any"} for t in "AB"],
        [
            {"model": m, "gpu_type": t, "gpus": k, "work_per_s": k**0.8}
            for m in models
            for t in "AB"
            for k in (1, 2, 4)
        ],
        sharing=[
            {
                "model_a": a,
                "model_b": b,
                "gpu_type": t,
                "gpus": 1,
                "slowdown_a": float(rng.uniform(1, 3)),
                "slowdown_b": float(rng.uniform(1, 3)),
            }
            for a, b in itertools.combinations_with_replacement(models, 2)
            for t in "AB"
        ],
    )


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_round_that_prices_its_pairs_and_one_that_lists_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 jobs, thousands of pairs: neither finds a plan above the other's bound, and both reach the
    asked gap; so do rounds that follow."""
    p, values, bounds = crowd(40, seed), [], []
    for listed in (10**6, 0):
        monkeypatch.setattr(rounds, "LISTED", listed)
        result = decide(p, limits=SolveLimits(gap=1e-2))
        values.append(result.objective_value)
        bounds.append(result.bound)
        assert result.gap <= 1e-2
    assert max(values) <= min(bounds) * (1 + 1e-9)
    assert compile_round(p).omitted_pairs is not None and len(compile_round(p).option) < 10_000
    warm = Rounds(gap=1e-2)
    for _ in range(2):
        again = warm.decide(p)
        assert again.gap <= 1e-2 and again.bound >= max(values) * (1 - 1e-9)
