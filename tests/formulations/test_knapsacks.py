"""Rows as knapsacks: bounds and dives against exhaustive search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from choice_models import best_choice, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.branching.branch_and_bound import kernel
from formulations.primal.knapsacks import Knapsacks


@examples(40, 400)
@given(seed=st.integers(0, 10**9), compiled=st.sampled_from([False, True]))
def test_a_knapsack_is_the_best_of_all(seed: int, compiled: bool):
    """The marked items fit, gain what the best ones do, and the bound is their gain."""
    rng = np.random.default_rng(seed)
    gain, weight = rng.integers(1, 30, 7) / 4, rng.integers(1, 9, 7)
    room, taken = int(rng.integers(0, 30)), np.zeros(7, dtype=bool)
    bound = kernel(compiled, "fill_knapsack")(gain, weight, room, taken)
    all_ = (np.array(one, dtype=bool) for one in itertools.product([0, 1], repeat=7))
    best = max(gain[one].sum() for one in all_ if weight[one].sum() <= room)
    assert weight[taken].sum() <= room
    assert gain[taken].sum() == pytest.approx(best) == bound


@examples(40, 400)
@given(seed=st.integers(0, 10**9))
def test_bounds_cover_the_best_plan_and_dives_keep_the_rows(seed: int):
    """Groups of up to three columns in two or three rows; some groups have to hold one."""
    rng = np.random.default_rng(seed)
    R = int(rng.integers(2, 4))
    columns = [
        [
            (float(rng.integers(-4, 20)), {int(rng.integers(R)): rng.integers(1, 9) / 2})
            for _ in range(rng.integers(1, 4))
        ]
        for _ in range(6)
    ]
    rows = [(-np.inf, float(rng.integers(2, 12))) for _ in range(R)]
    c = view(columns, rows, set(np.flatnonzero(rng.random(6) < 0.3).tolist()))
    best, knapsacks = best_choice(c), Knapsacks.of(c, rng.normal(size=6).clip(0))
    assert knapsacks is not None
    bound = knapsacks.find_prices(-math.inf if best is None else best, math.inf)
    plan = knapsacks.dive(np.arange(R), np.full(6, -1), -math.inf, math.inf)
    if best is None:
        assert plan is None or not c.feasible(plan)
        return
    assert bound >= best
    if plan is not None and c.feasible(plan):
        again = knapsacks.dive(rng.permutation(R)[:1], plan, c.value_of(plan), math.inf)
        assert again is None or c.value_of(again) <= best
        assert c.value_of(plan) <= best


def test_rows_are_emptied_and_filled_again():
    """Pools of 4 GPUs; a job of 3 is worth 3.5 in the first, two jobs of 2 are 2 in the second."""
    jobs = [[(a, {0: g}), (b, {1: g})] for a, b, g in ((3.5, 3, 3), (1.5, 2, 2), (1.5, 2, 2))]
    c = view(jobs, [(-np.inf, 4)] * 2)
    knapsacks = Knapsacks.of(c, np.zeros(3))
    assert knapsacks is not None
    assert knapsacks.find_prices(7.5, math.inf) == pytest.approx(7.5)
    plan = knapsacks.dive(np.arange(2), np.array([1, 2, -1]), 4.5, math.inf)
    assert plan is not None
    assert plan.tolist() == [0, 3, 5]
    assert knapsacks.dive(np.arange(2), plan, 7.6, math.inf) is None


@pytest.mark.parametrize(
    ("column", "row"), [({0: 1, 1: 1}, (-np.inf, 4)), ({0: 0.3}, (-np.inf, 4)), ({0: 1}, (1, 4))]
)
def test_other_rows_are_no_knapsacks(column: dict[int, float], row: tuple[float, float]):
    """A column of two rows, a use of no whole units, a row that has to be used."""
    c = view([[(1, column)]], [row, row])
    assert Knapsacks.of(c, np.zeros(1)) is None
