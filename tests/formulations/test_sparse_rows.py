"""Products of sparse matrices by numpy and by scipy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from examples import series

from formulations.model import linear
from formulations.model.linear import SparseRows

PRODUCTS = """
import sys
import numpy as np
from formulations.model import linear
linear.LOADING = 2 * 3  # a matrix of three entries: the third product is scipy's
linear.PRODUCTS = int(sys.argv[1])  # foreseen of a matrix
a = linear.SparseRows(
    np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0]), np.array([0, 2, 3]), (2, 2)
)
for _ in range(3):
    print((a @ np.array([10.0, 1.0])).tolist(), "scipy.sparse" in sys.modules)
"""


def drawn(rng: np.random.Generator, n: int, R: int) -> SparseRows:
    """Return a matrix with up to five entries a row."""
    width = rng.integers(0, 6, n)
    size = int(width.sum())
    indptr = np.append(0, np.cumsum(width))
    return SparseRows(rng.normal(size=size), rng.integers(0, R, size), indptr, (n, R))


@pytest.mark.parametrize("seed", range(5))
def test_both_give_the_same_bits(seed, monkeypatch):
    """A product is the same number to the last bit, whoever makes it."""
    rng = np.random.default_rng(seed)
    a = drawn(rng, 400, 7)
    p, x = rng.normal(size=7), rng.normal(size=400)
    found = []
    for is_scipy in (False, True):
        monkeypatch.setattr(linear._Products, "are_of_scipy", lambda _, own=is_scipy: own)
        found.append((a @ p, x @ a))
    for by_numpy, by_scipy in zip(*found, strict=True):
        assert by_numpy.tobytes() == by_scipy.tobytes()
        assert by_numpy.any()


@pytest.mark.parametrize("foreseen", series([2, 3], 1))
def test_scipy_is_loaded_once_it_pays(foreseen):
    """Scipy is loaded by the product at which numpy's have lost the time that loading takes.

    It is loaded at once if the products that are foreseen of the matrix would lose that time.
    """
    first = 2 if foreseen == 2 else 0
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS, str(foreseen)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"[12.0, 30.0] {i >= first}" for i in range(3)]
