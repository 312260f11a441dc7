"""Regressions from measurements: published coefficients again, hazards by hand, caps, and what
cannot be fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from allocator.performance.fit.transient import (
    fit_cap,
    fit_hazard,
    fit_line,
    fit_phases,
)


def test_a_line_through_noise() -> None:
    """Against numpy's least squares of all points, and of all but one for what `held_out` says."""
    random = np.random.default_rng(5)
    x = random.uniform(5, 200, 16)
    y = (3.75 + 0.02 * x) * random.normal(1, 0.08, 16)
    line = fit_line(x, y)
    slope, intercept = np.polyfit(x, y, 1)
    rest = y - line.at(x)
    alone = [np.polyval(np.polyfit(np.delete(x, i), np.delete(y, i), 1), x[i]) for i in range(16)]
    assert (line.intercept, line.slope, line.r2) == pytest.approx(
        (intercept, slope, 1 - rest.var() / y.var())
    )
    assert line.error == pytest.approx(np.mean(np.abs(rest) / y))
    assert line.held_out == pytest.approx(np.mean(np.abs(np.array(alone) - y) / y))
    assert (line.low, line.high, line.samples) == (x.min(), x.max(), 16)
    assert line.holds([1.0, 100.0, 300.0]).tolist() == [False, True, False]
    _, covariance = np.polyfit(x, y, 1, cov=True)
    assert line.errors[::-1] == pytest.approx(np.sqrt(np.diag(covariance)))
    assert line.residual == pytest.approx(math.sqrt(rest @ rest / 14))


def test_hazard_from_lifetimes() -> None:
    """Two of three servers revoked after 1 and 3 h, one seen until 6 h: 2 / 10 per hour; in two
    pieces by hand.
    """
    assert fit_hazard([1.0, 3.0, 6.0], [True, True, False]).hazard.per_hour.tolist() == [0.2]
    fit = fit_hazard([1.0, 3.0, 6.0], [True, True, False], [0.0, 2.0])
    assert fit.hazard.per_hour == pytest.approx([1 / 5, 1 / 5]) and fit.hours.tolist() == [5.0, 5.0]
    assert fit.errors == pytest.approx([1 / 5, 1 / 5])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fit_hazard([], []), "at least one"),
        (lambda: fit_hazard([-1.0], [True]), "at least 0"),
        (lambda: fit_hazard([1.0], [True], [0.0, 5.0]), "beyond 5 h"),
        (lambda: fit_hazard([1.0], [True], [1.0]), "ascend from 0"),
        (lambda: fit_cap([4, 4], [10.0, 12.0]), "two numbers of workers"),
        (lambda: fit_cap([1.0, 2.0], [2.0, 0.0]), "above 0"),
    ],
)
def test_what_cannot_be_fitted(call: Callable[[], object], says: str) -> None:
    """Says why."""
    with pytest.raises(ValueError, match=says):
        call()


# of 1, 2, 4, 6, 8 workers: Li et al., ICDCS 2020
@pytest.mark.parametrize(
    ("speeds", "cap"),
    [
        ((11.4, 22.6, 40.8, 44.2, 43.2), 44.0),
        ((2.10, 3.95, 6.03, 5.97, 6.51), 6.3),
        ((26.0, 46.6, 98.8, 129, 177), math.inf),
    ],
)
def test_caps_of_parameter_servers(speeds: tuple[float, ...], cap: float) -> None:
    """The published bottlenecks within 3 %; none with two servers."""
    fit = fit_cap([1, 2, 4, 6, 8], speeds)
    assert fit.cap == pytest.approx(cap, rel=0.03)
    assert fit.error < 0.08 and fit.at(1.0) == pytest.approx(speeds[0], rel=0.11)


def test_phases() -> None:
    """Means and quantiles of each phase and of their sum."""
    boot, stage = np.array([38.0, 40.0, 42.0]), np.array([30.0, 30.0, 45.0])
    found = {p.name: p for p in fit_phases({"Staging": stage, "Booting": boot})}
    assert (
        found["total"].mean == 75.0
        and found["Booting"].quantiles[1] == 40.0
        and found["Booting"].sd == 2.0
    )
    assert list(found) == ["Staging", "Booting", "total"] and found["total"].samples == 3


def test_a_cap_from_several_speeds_of_one_number_of_workers() -> None:
    """Repeated measurements count as one, their geometric mean, however often each was repeated."""
    once = fit_cap([1, 2, 4, 8], [10.0, 20.0, 30.0, 30.0])
    again = fit_cap([1, 2, 4, 8, 8, 8], [10.0, 20.0, 30.0, 30.0, 15.0, 60.0])
    assert (again.single, again.cap) == pytest.approx((once.single, once.cap)) and once.cap < 40
