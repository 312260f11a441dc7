"""Learning speeds from samples: forgetting, outliers, sizes never seen."""

from __future__ import annotations

import math

import pytest

from allocator.performance.fit.feedback import (
    HALF_LIFE_S,
    STRAYS,
    Estimate,
    correct_model,
    correct_sizes,
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


def test_what_is_proven_at_one_size_counts_at_all() -> None:
    """At 4 GPUs the speed is 3/4 of the profile, which is proven there and not at 1024. Both are
    corrected, so that neither seems better than the other. Nothing is where nothing is proven.
    """
    seen = {4: after([math.log(0.75)] * 20)}
    assert not is_significant(*posterior(seen, [1024], 1200.0)[1024])
    assert correct_sizes(seen, [4, 1024], 1200.0) == {
        k: mean for k, (mean, _) in posterior(seen, [4, 1024], 1200.0).items()
    }
    assert correct_sizes({4: after([0.0] * 20)}, [4, 1024], 1200.0) == {}
    assert correct_sizes({4: after([0.4])}, [4, 1024], 60.0) == {}


def test_types_without_samples_are_doubted_like_the_others() -> None:
    """Type a is half as fast as its profile, b as fast: c, never tried, counts as faster by the
    root mean square of both corrections. Where all profiles are right, nothing is corrected.
    """
    wrong, right = {4: after([math.log(0.5)] * 500)}, {4: after([0.0] * 500)}
    offered = {"a": [4, 8], "b": [4], "c": [2, 4]}
    found = correct_model({"a": wrong, "b": right, "c": {4: Estimate()}}, offered, 30_000.0)
    doubt = pytest.approx(math.log(2) / math.sqrt(2), rel=1e-3)
    assert found[("a", 4)] == pytest.approx(math.log(0.5), rel=1e-3) and ("a", 8) in found
    assert ("b", 4) not in found and found[("c", 2)] == found[("c", 4)] == doubt
    assert correct_model({"b": right}, offered, 30_000.0) == {}


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
