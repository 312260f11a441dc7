"""Rounds that follow each other: warm starts change the way, not the answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fakes.random_rounds import random_snapshot

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible
from allocator.solvers.base import SolveLimits
from scripts.benchmarks import bench_rounds


def drifting(seed: int, rounds: int = 4) -> list[Problem]:
    """A problem and its next rounds: work gets done, some values move, one job leaves."""
    rng = np.random.default_rng(seed)
    p = validate(random_snapshot(rng, 12).snapshot())
    out = [p]
    for _ in range(rounds - 1):
        left = p.jobs.remaining_work * rng.uniform(0.8, 1.0, len(p.jobs))
        p = dataclasses.replace(p, jobs=dataclasses.replace(p.jobs, remaining_work=left))
        out.append(p)
    return out


@pytest.mark.parametrize("seed", range(12))
def test_warm_and_cold_agree_at_gap_zero(seed: int) -> None:
    """Each warm round reaches the value and proof of a cold one."""
    handle = Rounds(gap=0.0)
    for i, p in enumerate(drifting(seed)):
        try:
            cold = decide(p, limits=SolveLimits(gap=0.0))
        except Infeasible:
            continue
        warm = handle.decide(p)
        assert warm.objective_value == pytest.approx(cold.objective_value, rel=1e-6)
        assert warm.bound >= cold.objective_value * (1 - 1e-9)
        assert handle.note.startswith("warm: " if i else "cold: first round")


def test_what_cannot_be_used_is_named() -> None:
    """Prices are in units of the objective: with another one the round starts cold, and says so."""
    p = drifting(1)[0]
    handle = Rounds()
    handle.decide(p)
    handle.decide(dataclasses.replace(p, objective="throughput"))
    assert handle.note == "cold: objective changed from progress to throughput"


def test_a_warm_round_that_is_not_proven_is_searched_anew() -> None:
    """A round of 2,000 jobs whose near prices miss the gap is proven without a solver.

    Prices from nothing prove 0.01 %; 0.02 % are asked for.
    """
    snapshot = bench_rounds.make_snapshot("one", 2_000, 3)
    handle = Rounds(gap=2e-4)
    plan = handle.solve(snapshot)
    plan = handle.solve(bench_rounds.next_snapshot(snapshot, plan, np.random.default_rng(3)))
    assert handle.note.startswith("warm")
    assert plan.solver is None
    assert plan.gap <= 2e-4
