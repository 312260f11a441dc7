"""Slowdowns that are corrected by observed speeds, against a computation by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from allocator.domain.problem import Sharing
from allocator.performance.fit import feedback
from allocator.performance.fit.learned_slowdowns import LearnedSlowdowns


def rows(*of: tuple[int, int, int, float, float]) -> Sharing:
    """Rows (model_a, model_b, gpus, slowdown_a, slowdown_b) on one GPU type."""
    a, b, k, xi_a, xi_b = zip(*of, strict=True)
    whole = [np.array(x, dtype=np.int64) for x in (a, b, [0] * len(of), k)]
    return Sharing(*whole, np.array(xi_a, dtype=float), np.array(xi_b, dtype=float))


def observe(s: LearnedSlowdowns, model: int, other: int, gpus: int, *slowdowns: float) -> None:
    """A round for each slowdown: a job that does 3 a second alone."""
    a, b, gpu_type, k = (np.array([x]) for x in (model, other, 0, gpus))
    for at_s, xi in enumerate(slowdowns):
        s.observe(a, b, gpu_type, k, np.array([3.0]), np.array([3.0 / xi]), 60.0 * at_s)


def by_hand(given: float, true: float, samples: int, doublings: float = 0.0) -> float:
    """What n equal samples of one size make of a slowdown so many doublings away: kriging with one
    known point, whose noise is that of the samples over their number."""
    noise = max(feedback.NOISE**2, feedback.FIRST**2 / samples) / samples
    common, by_size = feedback.OFFSET**2, feedback.SPREAD**2
    known = common + by_size * math.exp(-doublings / feedback.REACH)
    return given * math.exp(math.log(true / given) * known / (common + by_size + noise))


def test_observed_slowdowns_replace_given_ones() -> None:
    """Model 0 is slowed by 3 next to model 1 on eight GPUs, where 1.25 was given; 1 is slowed as
    given. The rows of nine GPUs and of one are corrected by less, the farther the less."""
    given = rows((0, 1, 8, 1.25, 1.5), (1, 0, 9, 1.6, 1.3), (0, 1, 1, 1.1, 1.2))
    s = LearnedSlowdowns(given, 2, 1)
    observe(s, 0, 1, 8, *[3.0] * 8)
    observe(s, 1, 0, 8, *[1.5] * 8)
    found = s.corrected(7 * 60.0)
    assert found.slowdown_a[0] == pytest.approx(by_hand(1.25, 3.0, 8), rel=0.01)
    nine = by_hand(1.3, 1.3 * 3.0 / 1.25, 8, math.log2(9 / 8))
    assert found.slowdown_b[1] == pytest.approx(nine, rel=0.01)
    assert found.slowdown_b[0] == 1.5 and found.slowdown_a[1] == 1.6
    one = by_hand(1.1, 1.1 * 3.0 / 1.25, 8, 3.0)
    assert found.slowdown_a[2] == pytest.approx(one, rel=0.01) and found.slowdown_b[2] == 1.2
