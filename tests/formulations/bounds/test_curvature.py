"""Second derivatives: the sums and steps are those of dense matrices, sparse or not."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from formulations.bounds import smoothing
from formulations.bounds.smoothing import Curvature, box_step, plus_diagonal, solve_newton_equations
from formulations.model.linear import SparseRows


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


@pytest.mark.parametrize("dense", [0, 1000])
@pytest.mark.parametrize(
    ("tenants", "each", "shared"), [(20, 3, 4), (60, 1, 2), (2, 30, 3), (1, 2, 1), (15, 2, 30)]
)
def test_sums_and_steps_are_dense_ones(tenants: int, each: int, shared: int, dense: int) -> None:
    """Sums over columns and jobs, the solution of some rows, and a step in a box."""
    random = np.random.default_rng(tenants)
    A, group = columns_of_tenants(random, tenants, each, shared)
    J, R = 5 * tenants, A.shape[1]
    x = random.random(len(group))
    with mock.patch.object(smoothing, "DENSE", dense):
        matrix = Curvature(A, group, J).spread(x)
    assert isinstance(matrix, np.ndarray) == (dense > 0)
    a = A.toarray()
    E = np.zeros((J, R))
    np.add.at(E, group, x[:, None] * a)
    H = a.T @ (x[:, None] * a) - E.T @ E
    assert matrix @ np.eye(R) == pytest.approx(H)

    more = 2.0 * np.abs(H).sum(axis=1) + 1.0  # a dominant diagonal: the matrix is definite
    H = H + np.diag(more)
    matrix = plus_diagonal(matrix, more)
    assert matrix @ np.eye(R) == pytest.approx(H)
    free = random.random(R) < 0.7
    rhs = random.normal(size=R)
    expected = np.zeros(R)
    expected[free] = np.linalg.solve(H[np.ix_(free, free)], rhs[free])
    assert solve_newton_equations(matrix, rhs, free) == pytest.approx(expected)

    low, high = np.full(R, -0.02), np.full(R, 0.5)
    step = box_step(100 * rhs, matrix, low, high)
    assert ((low <= step) & (step <= high)).all()
    slope = 100 * rhs + H @ step
    assert (slope[step > low] < 1e-6).all() and (slope[step < high] > -1e-6).all()


def test_of_many_solutions_the_smallest() -> None:
    """Two equal equations of two unknowns."""
    H = np.ones((2, 2))
    assert solve_newton_equations(H, np.array([2.0, 2.0]), np.ones(2, bool)) == pytest.approx(
        [1.0, 1.0]
    )
