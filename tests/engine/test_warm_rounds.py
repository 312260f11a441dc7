"""Rounds that use what the round before found: the same value within the gap, and a new proof.

Every feature of the input is crossed with an objective in turn; the long run crosses all of both.
"""

from __future__ import annotations

import dataclasses
from copy import deepcopy

import numpy as np
import pytest
from matrix import CROSSED, FEATURES, Tables, base, made

from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible, InvalidInput
from allocator.solvers.base import SolveLimits
from scripts.benchmarks import bench_rounds

GAPS = (0.0, 1e-2)
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


def check_warm_rounds(problems: list[Problem], gap: float) -> None:
    """Decide rounds one after the other, and compare each with the best plan."""
    handle, note = Rounds(gap=gap), "cold: first round"
    for problem in problems:
        try:
            cold = decide(problem, limits=SolveLimits(gap=0.0))
        except Infeasible:
            continue
        warm = handle.decide(problem)
        assert handle.note.startswith(note)
        note = "warm: "
        value, close = cold.objective_value, 1e-6 * max(1e-3, abs(cold.objective_value))
        assert value - gap * abs(value) - close <= warm.objective_value <= cold.bound + close
        assert warm.bound >= value - close


def with_another_job(tables: Tables, rng: np.random.Generator) -> Tables:
    """The same with one job that may have other sizes, stops, or takes the model of another one."""
    out = deepcopy(tables)
    if not out.jobs:
        return out
    job, other = (out.jobs[i] for i in rng.integers(len(out.jobs), size=2).tolist())
    what = int(rng.integers(4))
    if what == 0:
        job["max_gpus"] = 2 * int(job.get("max_gpus") or 4)
    elif what == 1:
        job["model"] = other["model"]
    elif what == 2:
        job["restart_s"] = round(float(rng.uniform(0, 90)), 2)
    else:
        for column in ("state", "pool", "gpus"):
            job.pop(column, None)
    return out


def rounds_of(name: str, objective: str, rounds: int = ROUNDS) -> list[Problem]:
    """Rounds with a feature in an objective, with edits between them."""
    rng = np.random.default_rng([3, *name.encode(), *objective.encode()])
    tables, out = made(name, int(rng.integers(100))), []
    for _ in range(rounds):
        tables.config["objective"] = objective
        try:
            out.append(tables.problem())
        except InvalidInput:  # the edits contradict the feature
            break
        if not tables.jobs:
            break
        tables = with_another_job(edited(tables, rng), rng)
    return out


def marks_of(number: int, is_first: bool) -> list[pytest.MarkDecorator]:
    """Every sixth feature by default in one objective, nightly every feature, in the soak all."""
    if not is_first:
        return [pytest.mark.soak]
    return [pytest.mark.nightly] if number % 6 else []


every_feature = pytest.mark.parametrize(
    ("name", "objective"),
    [
        pytest.param(name, objective, marks=marks_of(n, n % len(CROSSED) == k))
        for n, name in enumerate(FEATURES)
        for k, objective in enumerate(CROSSED)
    ],
)


@every_feature
def test_a_feature_in_an_objective(name: str, objective: str) -> None:
    """Warm rounds reach the best value within the gap, and no plan exceeds their bounds."""
    check_warm_rounds(rounds_of(name, objective), GAPS[len(name) % 2])


def test_what_cannot_be_used_is_named() -> None:
    """Prices are in units of the objective: with another one the round starts cold, and says so."""
    p, handle = base(1).problem(), Rounds()
    handle.decide(dataclasses.replace(p, objective="progress"))
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
