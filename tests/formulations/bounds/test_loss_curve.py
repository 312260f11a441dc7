"""When losses reach their target: exact curves, an account with scipy and draws, what must not
matter, and losses that say nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from allocator.domain.problem import Floats
from formulations.loss_curve import FEWEST, Reach, predict_reach

SHAPE = st.floats(0.02, 3.0)  # c, relative to the largest work
FLOOR = st.floats(0.0, 0.9)  # b, relative to the target
AHEAD = st.floats(0.05, 3.0)  # work left, relative to the work done


def law(work: Floats, c: float, floor: float, total: float) -> Floats:
    """Losses that are 1 after `total` work."""
    return np.asarray((1.0 - floor) * (total + c) / (work + c) + floor)


def reach(work: Floats, loss: Floats) -> Reach:
    found = predict_reach(work[None, :], loss[None, :], np.array([1.0]))
    return Reach(*(part[0] for part in found))


@given(SHAPE, FLOOR, AHEAD, st.integers(FEWEST, 64))
def test_exact_curves_are_found_exactly(c: float, floor: float, ahead: float, n: int) -> None:
    """Of any law and any number of losses from the least on; so more of them do no harm."""
    k = np.linspace(0.02, 1.0, n)
    found = reach(k, law(k, c, floor, 1.0 + ahead))
    assert found.left == pytest.approx(ahead, rel=2e-3)
    assert found.never == pytest.approx(0.0, abs=1e-6)
    assert found.error <= 1e-2


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.02])
def test_the_range_is_as_wide_as_the_draws(noise: float) -> None:
    """Of 300 curves drawn with noise, half of their work done: the truth is within 1.645 deviations
    in 84 to 96 % (90 % wanted, with three standard errors of 1.7 %), the middle is right in the
    mean, and the stated error is that of the draws within a quarter."""
    luck = np.random.default_rng(7)
    n, points = 300, 40
    c, floor = 10 ** luck.uniform(-1.5, 0.0, n), luck.uniform(0.3, 0.9, n)
    k = np.tile(np.linspace(0.02, 1.0, points), (n, 1))
    exact = (1 - floor)[:, None] * (2.0 + c[:, None]) / (k + c[:, None]) + floor[:, None]
    found = predict_reach(k, exact * np.exp(noise * luck.standard_normal((n, points))), np.ones(n))
    says = found.total_error <= 0.5
    away = (np.log(found.left) / found.error)[says]
    assert says.mean() >= 0.9
    assert 0.84 <= (np.abs(away) <= 1.645).mean() <= 0.96
    assert abs(np.median(away)) <= 0.25
    assert np.std(away) == pytest.approx(1.0, rel=0.25)


def test_spikes_do_not_count() -> None:
    """Four of forty losses are wrong by factors of 0.3 to 5: the prediction hardly moves."""
    k = np.linspace(0.05, 1.0, 40)
    luck = np.random.default_rng(1)
    seen = law(k, 0.2, 0.5, 2.0) * np.exp(0.003 * luck.standard_normal(40))
    wrong = seen.copy()
    wrong[[3, 17, 28, 39]] *= [5.0, 0.3, 2.0, 3.0]
    clean, spiked = reach(k, seen), reach(k, wrong)
    assert abs(np.log(spiked.left / clean.left)) <= clean.error


def test_a_job_past_its_target_goes_on_for_a_little() -> None:
    """The curve is below the target already: next to nothing is left, and not less."""
    k = np.linspace(0.05, 1.0, 30)
    assert 0 < reach(k, law(k, 0.1, 0.5, 0.8)).left <= 0.0101
