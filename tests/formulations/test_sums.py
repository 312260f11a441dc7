"""Sums of four lists of combinations: against all sums, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from choice_models import model_of
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds.lagrangian import evaluate
from formulations.model.choices import choices
from formulations.primal.moves import Losses
from formulations.primal.sums import find_sum, match_sums


@examples(20, 300)
@given(seed=st.integers(0, 10**9), compiled=st.sampled_from([False, True]))
def test_pairs_are_those_of_all_sums(seed: int, compiled: bool):
    """All pairs of lines with sums between the bounds and a score above the least one are found."""
    rng = np.random.default_rng(seed)
    one, two = rng.integers(-9, 10, (8, 3)) / 4, rng.integers(-9, 10, (9, 3)) / 4
    own, its = rng.integers(0, 9, 8) / 4, rng.integers(0, 9, 9) / 4
    low = rng.integers(-9, 5, 3) / 4
    high, price, least = low + rng.integers(1, 9, 3) / 4, rng.integers(0, 3, 3) / 4, -2.0
    rows = rng.permutation(3)[: rng.integers(0, 4)]
    sums = one[:, None] + two
    score = sums @ price - own[:, None] - its
    expected = ((sums >= low) & (sums <= high)).all(axis=2) & (score > least)
    lists = [(own, one, np.arange(8)[:, None]), (its, two, np.arange(9)[:, None])]
    loss, use, pairs = match_sums(lists, low, high, rows, price, least, 1_000, compiled)
    found = np.zeros_like(expected)
    found[tuple(pairs.T)] = True
    assert (found == expected).all()
    assert np.allclose(use @ price - loss, score[tuple(pairs.T)])


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
    losses, open_ = Losses.of(c, dual), (np.ones(c.n, dtype=bool), np.zeros(c.J, dtype=bool))
    for value, expected in ((0.0, best), (best + 1e-6, None)):
        found = find_sum(c, dual.prices, losses, open_, value, 1.0, np.random.default_rng(0))
        assert (None if found is None else c.value_of(found)) == expected
        assert found is None or c.feasible(found)
