"""The sum of many numbers is correctly rounded: it is that of math.fsum to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from examples import seeds

from formulations.model.exact_sum import FEW, exact_sum


@pytest.mark.parametrize("seed", seeds(20, 3000))
def test_sums_of_any_sizes(seed: int) -> None:
    """Numbers of sizes from 1e-340 to 1e60, of which some cancel out."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8 * FEW))
    numbers = rng.standard_normal(n) * 10.0 ** rng.uniform(-rng.integers(30), rng.integers(30), n)
    if seed % 3 == 0:
        numbers = np.append(numbers, -numbers[: n // 2])
    if seed % 5 == 0:
        numbers *= 1e-310
    assert exact_sum(numbers) == math.fsum(numbers.tolist())


@pytest.mark.parametrize("one", [math.inf, -math.inf, math.nan, 1e300, 0.0])
def test_numbers_that_cannot_be_split(one: float) -> None:
    """Infinite, missing and huge numbers among 1,000 of 0.1, and no number but 0."""
    numbers = np.full(1000, 0.1 if one else 0.0)
    numbers[17] = one
    np.testing.assert_equal(exact_sum(numbers), math.fsum(numbers.tolist()))
