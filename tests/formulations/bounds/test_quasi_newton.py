"""Prices from gradients: against derivatives by hand, and against another package."""

from __future__ import annotations

import math

import numpy as np
from examples import examples
from hypothesis import given, strategies as st
from scipy.optimize import minimize

from formulations.bounds.quasi_newton import descend
from formulations.bounds.smoothing import Smooth
from formulations.model.sparse_rows import SparseRows


@examples(8, 500)
@given(seed=st.integers(0, 10**9))
def test_the_least_value_is_found_and_the_box_is_kept(seed: int) -> None:
    """Drawn groups, rows and boxes: not above the start, inside the box, and within 0.1 % of the
    mean value of what scipy finds."""
    rng = np.random.default_rng(seed)
    groups, rows = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    size = rng.integers(1, 4, groups)
    dense = rng.integers(0, 3, (size.sum(), rows)).astype(float)
    free = rng.random(groups) < 0.8
    dense[(np.cumsum(size) - size)[~free]] = 0.0  # what must run can, so there is a least value
    where = np.nonzero(dense)
    matrix = SparseRows(
        dense[where],
        where[1],
        np.append(0, np.cumsum(np.count_nonzero(dense, axis=1))),
        (len(dense), rows),
    )
    s = Smooth(
        rng.uniform(0, 2, len(dense)),
        matrix,
        size,
        free,
        rng.uniform(0.5, 1.0, rows) * groups,
    )
    low = np.where(rng.random(rows) < 0.5, 0.0, rng.uniform(0, 0.5, rows))
    high = np.where(rng.random(rows) < 0.5, np.inf, low + rng.uniform(0.1, 1.0, rows))
    start = np.clip(rng.uniform(0, 1, rows), low, high)
    for mu in (0.3, 0.1):
        p = descend(s, start, mu, 1e-10, low, high, math.inf)
        assert (p >= low).all() and (p <= high).all()
        assert s.at(p, mu).f <= s.at(start, mu).f
        other = minimize(
            lambda q, mu=mu: (s.at(q, mu).f, s.at(q, mu).g),
            start,
            jac=True,
            bounds=list(zip(low, high, strict=True)),
            method="L-BFGS-B",
        )
        assert s.at(p, mu).f <= other.fun + 1e-3 * groups
