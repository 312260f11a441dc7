"""Learning speeds from samples: forgetting, outliers, sizes never seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from allocator.performance.fit.feedback import (
    HALF_LIFE_S,
    LEAST,
    SPREAD,
    STRAYS,
    Estimate,
    decay_weight,
    is_significant,
    posterior,
    update,
)


def after(samples: list[float], step_s: float = 60.0) -> Estimate:
    estimate = Estimate()
    for i, x in enumerate(samples):
        estimate = update(estimate, x, i * step_s)
    return estimate


def test_a_profile_twice_too_fast_is_noticed_after_a_few_samples() -> None:
    """Five samples at half the believed speed: log 1/2 is learned to a few percent, and counts."""
    mean, deviation = posterior({4: after([math.log(0.5)] * 5)}, [4], 300.0)[4]
    assert mean == pytest.approx(math.log(0.5), rel=0.1) and is_significant(mean, deviation)


def test_a_right_profile_is_left_alone() -> None:
    """Samples with 5 % noise around the believed speed correct nothing."""
    draw = np.random.default_rng(1)
    mean, deviation = posterior({2: after(list(draw.normal(0, 0.05, 50)))}, [2], 3000.0)[2]
    assert not is_significant(mean, deviation) or abs(mean) < 2 * LEAST


def test_one_outlier_changes_nothing() -> None:
    """A single sample at a tenth of the speed among good ones is not believed."""
    before = after([0.0] * 10)
    now = update(before, math.log(0.1), 600.0)
    assert now.mean == before.mean and now.strays == (math.log(0.1),)
    assert update(now, 0.0, 660.0).strays == ()


def test_many_outliers_on_one_side_are_a_new_world() -> None:
    """The third sample in a row far off on the same side starts the estimate anew."""
    estimate = after([0.0] * 10)
    for i in range(STRAYS):
        estimate = update(estimate, math.log(0.5) + 0.01 * i, 600.0 + i)
    assert estimate.mean == pytest.approx(math.log(0.5) + 0.01) and estimate.weight == STRAYS


def test_old_samples_are_forgotten() -> None:
    """After one half-life a weight is half; after many, a new sample replaces what was known."""
    old = after([0.4] * 8, step_s=0.0)
    assert decay_weight(old, HALF_LIFE_S) == pytest.approx(4.0)
    assert update(old, 0.0, 20 * HALF_LIFE_S).mean == 0.0


def test_uncertainty_widens_with_distance() -> None:
    """A correction at 4 GPUs carries over to 8, less to 64; the deviation grows to what it was
    before anything was seen."""
    found = posterior({4: after([math.log(0.5)] * 20)}, [4, 8, 16, 64, 4096], 1200.0)
    means, deviations = zip(*(found[k] for k in (4, 8, 16, 64, 4096)), strict=True)
    assert list(means) == sorted(means) and means[-1] > -0.01
    assert list(deviations) == sorted(deviations) and deviations[-1] == pytest.approx(
        SPREAD, rel=0.01
    )
    assert posterior({}, [1, 2], 0.0) == {1: (0.0, SPREAD), 2: (0.0, SPREAD)}


def test_sizes_between_two_seen_ones_lie_between() -> None:
    """2 GPUs are right, 8 are half as fast: 4 lie between, and are surer than 32."""
    found = posterior({2: after([0.0] * 20), 8: after([math.log(0.5)] * 20)}, [2, 4, 8, 32], 1200.0)
    assert found[8][0] < found[4][0] < found[2][0] and found[4][1] < found[32][1]


def test_nonsense_is_ignored() -> None:
    """Speeds that are no speeds change nothing; a clock that goes back does not make old samples
    count more.
    """
    start = after([0.1] * 3)
    for x in (math.nan, math.inf, -math.inf, 50.0):
        assert update(start, x, 500.0) == start
    assert decay_weight(start, -1e9) == start.weight
    for state in ({}, {"mean": "x"}, {"mean": math.nan, "variance": 1, "weight": 1, "at_s": 0}):
        assert Estimate.of(state) == Estimate()
    assert Estimate.of(start.to_dict()) == start
