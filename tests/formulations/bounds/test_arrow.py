"""Second derivatives in the form of an arrow: the sums and steps are those of dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.bounds.arrow import LARGEST, Arrow, ArrowMatrix, ArrowSums
from formulations.bounds.smoothing import box_step
from formulations.model.sparse_rows import SparseRows


def columns_of_tenants(
    random: np.random.Generator, tenants: int, each: int, shared: int
) -> tuple[SparseRows, np.ndarray]:
    """Return columns of jobs, four a job, and their jobs, five a tenant.

    A column uses a shared row and some of the rows of its tenant.
    """
    rows, start, group = [], [0], []
    for job in range(5 * tenants):
        for _ in range(4):
            own = np.flatnonzero(random.random(each) < 0.6)
            rows += [job // 5 * each + own, [tenants * each + random.integers(shared)]]
            start.append(start[-1] + len(own) + 1)
            group.append(job)
    index = np.concatenate(rows).astype(np.int64)
    data = random.normal(size=len(index))
    shape = len(group), tenants * each + shared
    return SparseRows(data, index, np.array(start), shape), np.array(group)


def dense(matrix: ArrowMatrix, R: int) -> np.ndarray:
    """Return the matrix as its products with the unit vectors."""
    return np.stack([matrix @ line for line in np.eye(R)], axis=1)


@pytest.mark.parametrize(
    ("tenants", "each", "shared"), [(20, 3, 4), (60, 1, 2), (2, 30, 3), (1, 2, 1), (15, 2, 30)]
)
def test_sums_products_and_steps_are_dense_ones(tenants: int, each: int, shared: int) -> None:
    """Sums over columns and jobs, a product, the solution of some rows, and a step in a box."""
    random = np.random.default_rng(tenants)
    A, group = columns_of_tenants(random, tenants, each, shared)
    J, R = 5 * tenants, A.shape[1]
    x = random.random(len(group))
    assert len(Arrow.of(A, group, J).place) <= LARGEST  # larger blocks are split
    matrix = ArrowSums(A, group, J).spread(x)
    a = A.toarray()
    E = np.zeros((J, R))
    np.add.at(E, group, x[:, None] * a)
    H = a.T @ (x[:, None] * a) - E.T @ E
    assert dense(matrix, R) == pytest.approx(H)

    more = 2.0 * np.abs(H).sum(axis=1) + 1.0  # a dominant diagonal: the matrix is definite
    H = H + np.diag(more)
    matrix = matrix.plus_diagonal(more)
    assert dense(matrix, R) == pytest.approx(H)
    assert dense(ArrowMatrix.of(H), R) == pytest.approx(H)
    free = random.random(R) < 0.7
    rhs = random.normal(size=R)
    expected = np.zeros(R)
    expected[free] = np.linalg.solve(H[np.ix_(free, free)], rhs[free])
    assert matrix.solve(rhs, free) == pytest.approx(expected)

    low, high = np.full(R, -0.02), np.full(R, 0.5)
    step, other = (box_step(100 * rhs, M, low, high) for M in (matrix, ArrowMatrix.of(H)))
    assert ((low <= step) & (step <= high)).all()
    assert step == pytest.approx(other)
    slope = 100 * rhs + H @ step
    assert (slope[step > low] < 1e-6).all() and (slope[step < high] > -1e-6).all()
