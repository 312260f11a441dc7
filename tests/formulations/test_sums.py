"""Sums of four lists of combinations: against all sums, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from choice_models import model_of
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds.lagrangian import evaluate
from formulations.branching.branch_and_bound import match_sums
from formulations.model.choices import choices
from formulations.primal.losses import Losses
from formulations.primal.sums import find_better_plan


@examples(20, 300)
@given(seed=st.integers(0, 10**9), compiled=st.sampled_from([False, True]))
def test_pairs_are_those_of_all_sums(seed: int, compiled: bool):
    """All pairs of lines with sums between the bounds and a score above the least one are found."""
    rng = np.random.default_rng(seed)
    one, two = rng.integers(-9, 10, (8, 3)) / 4, rng.integers(-9, 10, (9, 3)) / 4
    own, its = rng.integers(0, 9, 8) / 4, rng.integers(0, 9, 9) / 4
    low = rng.integers(-9, 5, 3) / 4
    high, least = low + rng.integers(1, 9, 3) / 4, 0.5
    rows = rng.permutation(3)[: rng.integers(0, 4)]
    sums, score = one[:, None] + two, own[:, None] + its
    expected = ((sums >= low) & (sums <= high)).all(axis=2) & (score > least)
    asked = (one, own), (two, its), low, high, rows, least
    found = np.zeros_like(expected)
    found[match_sums(*asked, 1_000, compiled)] = True
    assert (found == expected).all()
    best = score[match_sums(*asked, 0, compiled)].tolist()
    assert best == ([score[expected].max()] if expected.any() else [])


@pytest.mark.parametrize(
    ("uses", "row", "price", "best"),
    [
        ((3, 4), (-np.inf, 16), 0.5, 8.0),
        ((3, 5), (-np.inf, 16), 0.5, 4.0),
        ((5, 3), (16, np.inf), -0.5, 4.0),
    ],
)
def test_a_sum_by_hand(uses: tuple[int, int], row: tuple[float, float], price: float, best: float):
    """Four jobs with two choices of GPUs, the second worth 2: as many have it as keep the row."""
    groups = [[(0, {0: uses[0]}), (2, {0: uses[1]})] for _ in range(4)]
    c = choices(model_of(groups, [row], {0, 1, 2, 3}))
    dual = evaluate(c, np.array([0, 0, 0, 0, price]))
    plan, random = np.array([0, 2, 4, 6]), np.random.default_rng(0)
    found = find_better_plan(c, dual, Losses.of(c, dual), plan, 1.0, random)
    assert found is not None and c.feasible(found)
    assert c.value_of(found) == best
    assert find_better_plan(c, dual, Losses.of(c, dual), found, 1.0, random) is None
