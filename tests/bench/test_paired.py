"""Paired comparisons, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from allocator.bench.paired import (
    compare,
    interval,
)


def test_a_comparison_by_hand() -> None:
    """Changes -10, -20, -30 %: mean -20; the means 200 -> 150 changed by -25 %, because the heavy
    seed gained most. All three signs agree: p = 2 / 2**3. t = 20 / (10 / sqrt(3)) = 3.4641 on 2
    degrees of freedom: p = 1 - t / sqrt(2 + t**2)."""
    c = compare([90.0, 80.0, 280.0], [100.0, 100.0, 400.0])
    assert (c.n, c.lower, c.baseline_mean, c.policy_mean) == (3, 3, 200.0, 150.0)
    assert c.change_percent == pytest.approx(-20.0) and c.of_means_percent == pytest.approx(-25.0)
    assert -30.0 <= c.low_percent < -20.0 < c.high_percent <= -10.0
    assert c.wilcoxon_p == pytest.approx(0.25)
    t = math.sqrt(12.0)
    assert c.t_p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert c.verdict() == "open"  # three seeds prove nothing


def test_what_cannot_be_said_is_nan() -> None:
    """One pair has no interval; where nothing changed p is 1, and the verdict open."""
    one, same = compare([90.0], [100.0]), compare([5.0] * 4, [5.0] * 4)
    assert one.change_percent == pytest.approx(-10) and math.isnan(one.low_percent)
    assert (same.change_percent, same.wilcoxon_p, same.t_p, same.verdict()) == (0, 1, 1, "open")
    assert math.isnan(compare([math.nan], [1.0]).baseline_mean)


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    """200 samples of 20 normal values: about 95 % of the intervals hold the true mean (a bootstrap
    of 20 a little fewer), and the same sample gives the same interval."""
    rng = np.random.default_rng(1)
    samples = rng.normal(3.0, 1.0, (200, 20))
    found = [interval(sample) for sample in samples]
    assert 0.90 <= np.mean([low <= 3.0 <= high for low, high in found]) <= 0.98
    assert interval(samples[0]) == found[0]
