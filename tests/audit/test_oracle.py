"""`mip` at gap 0 against every plan of a second reading of the rules (second_reading.py), on every
solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from cases.folders import Folder
from examples import count
from fakes.random_rounds import random_snapshot
from second_values import Reading

import allocator

SOLVERS = ("highs", "cpsat", "pulp")
TINY_ROUNDS = count(120, 220)


@dataclass(frozen=True)
class Case:
    """A round, and the value of its best plan (None: there is no plan)."""

    seed: int
    folder: Folder
    best: float | None


@pytest.fixture(scope="module")
def tiny() -> list[Case]:
    """Rounds of one to five jobs with every rule."""
    cases = []
    for seed in range(TINY_ROUNDS):
        rng = np.random.default_rng(seed)
        folder = random_snapshot(rng, int(rng.integers(1, 6)))
        cases.append(Case(seed, folder, Reading.of(folder.config, folder.tables).best()))
    return cases


def solved(folder: Folder, solver: str) -> tuple[float, float] | str | None:
    """(value, bound) of `mip` at gap 0, None if the round is reported as infeasible, any other
    refusal as it is.
    """
    try:
        result = allocator.solve(folder.snapshot(), policy="mip", solver=solver, gap=0.0)
    except allocator.Infeasible:
        return None
    except allocator.AllocatorError as error:
        return repr(error)
    return result.objective_value, result.bound


def disagrees(best: float | None, got: tuple[float, float] | str | None) -> bool:
    """Whether value or bound differ from the best value by more than 1e-6, relative above 1."""
    if best is None or got is None or isinstance(got, str):
        return best is not got
    return any(abs(v - best) > 1e-6 * max(1.0, abs(best)) for v in got)


@pytest.mark.parametrize("solver", SOLVERS)
def test_mip_finds_the_best_of_all_plans(tiny: list[Case], solver: str) -> None:
    """Value and bound at gap 0 equal the exhaustive optimum; infeasible exactly where no plan
    exists.
    """
    wrong = [
        (case.seed, case.best, got)
        for case in tiny
        if disagrees(case.best, got := solved(case.folder, solver))
    ]
    assert wrong == []


def test_tiny_rounds_can_be_compared(tiny: list[Case]) -> None:
    """Most rounds have a plan of some value, some have none, and every rule occurs."""
    values = [case.best for case in tiny]
    assert sum(v is not None and v > 0 for v in values) > 0.8 * len(values)
    assert any(v is None for v in values)
    jobs = [j for case in tiny for j in case.folder.tables["jobs.csv"]]
    tenants = [t for case in tiny for t in case.folder.tables["tenants.csv"]]
    assert {j["state"] for j in jobs} == {"queued", "running", "paused", "held"}
    assert {"resizes_left", "sizes", "gpu_types", "restart_s"} <= {key for j in jobs for key in j}
    assert any(j["state"] == "running" and not j["preemptible"] for j in jobs)
    assert {"max_gpus", "guaranteed_gpus", "budget_per_hour"} <= {key for t in tenants for key in t}
    assert {"budget_per_hour", "max_changes"} <= {
        key for case in tiny for key in case.folder.config
    }


def knapsack(r: Reading) -> float:
    """Best value of a round with one pool and no rule but its capacity: the exact dynamic programme
    over GPUs.
    """
    best = np.zeros(r.pools[0]["gpus"] + 1)  # best[g]: of the jobs so far, with g GPUs
    for j in r.jobs:
        with_j = [best]
        for pool, k in r.options(j):
            more = best[: len(best) - k] + r.option_value(j, (pool, k))
            with_j.append(np.append(np.zeros(k), more))
        best = np.max(with_j, axis=0)
    return float(best[-1])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(8))
def test_mip_equals_the_dynamic_programme(seed: int, solver: str) -> None:
    """With one pool and capacity alone, the exact dynamic programme over GPUs gives the same
    value.
    """
    folder = random_snapshot(
        np.random.default_rng(1_000 + seed), 12 + 4 * seed, rules=False, pools=1
    )
    best = knapsack(Reading.of(folder.config, folder.tables))
    assert best > 0
    assert not disagrees(best, solved(folder, solver))


def test_the_reading_by_hand() -> None:
    """Two jobs of 600 work on 3 GPUs of speed 1 each, 300 s: 2 + 1 GPUs finish 1 and 0.5; $2 buy
    2 GPUs.
    """
    tables = {
        "jobs.csv": [
            {"job_id": n, "model": "m", "submitted_s": 0, "remaining_work": 600, "max_gpus": 2}
            for n in "ab"
        ],
        "pools.csv": [{"pool": "p", "gpu_type": "A", "gpus": 3, "price_per_gpu_hour": 1.0}],
        "rates.csv": [{"model": "m", "gpu_type": "A", "gpus": k, "work_per_s": k} for k in (1, 2)],
    }
    assert Reading.of({}, tables).best() == knapsack(Reading.of({}, tables)) == 1.5
    assert Reading.of({"budget_per_hour": 2}, tables).best() == 1.0


def test_the_reading_knows_when_nothing_goes() -> None:
    """A non-preemptible job of $4 per hour under a budget of $3: no plan; preemptible: it
    shrinks, 270 of 900.
    """
    job = {
        "job_id": "a",
        "model": "m",
        "submitted_s": 0,
        "remaining_work": 900,
        "max_gpus": 4,
        "state": "running",
        "pool": "p",
        "gpus": 4,
    }
    tables = {
        "jobs.csv": [job | {"preemptible": False}],
        "pools.csv": [{"pool": "p", "gpu_type": "A", "gpus": 4, "price_per_gpu_hour": 1.0}],
        "rates.csv": [
            {"model": "m", "gpu_type": "A", "gpus": k, "work_per_s": 1.0} for k in (1, 4)
        ],
    }
    assert Reading.of({"budget_per_hour": 3}, tables).best() is None
    assert Reading.of({"budget_per_hour": 3}, tables | {"jobs.csv": [job]}).best() == pytest.approx(
        0.3
    )
