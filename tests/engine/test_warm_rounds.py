"""Rounds that use what the round before found: the same value within the gap, and a new proof.

Every feature of the input is crossed with an objective in turn; the long run crosses all of both.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from fakes.random_rounds import random_snapshot
from matrix import CROSSED, FEATURES, Tables, made

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible, InvalidInput
from allocator.solvers.base import SolveLimits

GAP = 1e-2
ROUNDS = 3


def edited(tables: Tables, rng: np.random.Generator) -> Tables:
    """The next round: work is done, one speed and one price are corrected, a job comes or goes."""
    out = deepcopy(tables)
    for job in out.jobs:
        job["remaining_work"] = round(float(job["remaining_work"]) * rng.uniform(0.7, 1.0), 3)
    rate, pool = (rows[int(rng.integers(len(rows)))] for rows in (out.rates, out.pools))
    if "work_per_s" in rate:
        rate["work_per_s"] = round(float(rate["work_per_s"]) * rng.uniform(0.9, 1.1), 4)
    if "price_per_gpu_hour" in pool:
        pool["price_per_gpu_hour"] = round(float(pool["price_per_gpu_hour"]) * 1.05, 4)
    if rng.random() < 0.5:
        new = {k: v for k, v in out.jobs[-1].items() if k not in ("state", "pool", "gpus")}
        out.jobs.append(new | {"job_id": f"new{rng.integers(1 << 30)}"})
    else:
        out.jobs.pop()
    return out


def check_warm_rounds(problems: list[Problem], cold_gap: float = 0.0) -> None:
    """Decide rounds one after the other, and compare each with a nearly best plan."""
    handle = Rounds(gap=GAP)
    for problem in problems:
        try:
            cold = decide(problem, limits=SolveLimits(gap=cold_gap))
        except Infeasible:
            continue
        warm = handle.decide(problem)
        value, close = cold.objective_value, 1e-6 * max(1e-3, abs(cold.objective_value))
        assert value - GAP * abs(value) - close <= warm.objective_value <= cold.bound + close
        assert warm.bound >= value - close


def rounds_of(name: str, objective: str) -> list[Problem]:
    """Rounds with a feature in an objective, with edits between them."""
    rng = np.random.default_rng([3, *name.encode(), *objective.encode()])
    tables, out = made(name, int(rng.integers(100))), []
    for _ in range(ROUNDS):
        tables.config["objective"] = objective
        try:
            out.append(tables.problem())
        except InvalidInput:  # the edits contradict the feature
            break
        tables = edited(tables, rng)
    return out


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_in_an_objective(name: str) -> None:
    """Warm rounds reach the best value within the gap, and no plan exceeds their bounds."""
    check_warm_rounds(rounds_of(name, CROSSED[list(FEATURES).index(name) % len(CROSSED)]))


@pytest.mark.soak
@pytest.mark.parametrize("objective", CROSSED)
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_in_every_objective(name: str, objective: str) -> None:
    """The same for every feature and objective."""
    check_warm_rounds(rounds_of(name, objective))


@pytest.mark.parametrize("seed", range(6))
def test_random_rounds(seed: int) -> None:
    """The same for rounds of 25 jobs with several rules at once."""
    rng, problems = np.random.default_rng(seed), []
    snapshot = random_snapshot(rng, 25).snapshot()
    for _ in range(ROUNDS):
        problems.append(validate(snapshot))
        table = snapshot.tables["jobs.csv"]
        left = [f"{float(x) * rng.uniform(0.8, 1.0):.6g}" for x in table.texts("remaining_work")]
        snapshot = snapshot.with_columns("jobs.csv", remaining_work=left)
    check_warm_rounds(problems, cold_gap=GAP / 10)
