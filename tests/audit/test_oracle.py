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
TINY_ROUNDS = count(30, 220)


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
        cases.append(Case(seed, folder, Reading.of_snapshot(folder.snapshot()).best()))
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
    assert 0.8 * len(tiny) < sum(bool(case.best) for case in tiny) and None in {
        case.best for case in tiny
    }
    wrong = [
        (case.seed, case.best, got)
        for case in tiny
        if disagrees(case.best, got := solved(case.folder, solver))
    ]
    assert wrong == []
