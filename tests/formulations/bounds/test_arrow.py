"""Second derivatives in the form of an arrow: the sums and steps are those of dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.bounds.arrow import LARGEST, Arrow, ArrowMatrix, ArrowSums
from formulations.bounds.smoothing import Smooth, box_step
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


def test_rows_by_hand() -> None:
    """Jobs 0 and 1 share row 0, job 2 has row 1, and 60 other rows belong to one job each; row 62
    concerns all jobs.
    """
    group = np.arange(63)
    own = np.r_[0, 0, np.arange(1, 62)]
    index = np.stack([own, np.full(63, 62)], axis=1).ravel()
    A = SparseRows(np.ones(126), index, np.arange(0, 127, 2), (63, 63))
    form = Arrow.of(A, group, 63)
    assert form.common.tolist() == [62]
    assert form.place.shape == (1, 62)
    assert form.block[0] == form.block[1] != form.block[2]
    assert (form.place[0, form.block] == own).all()


def test_few_rows_are_all_common() -> None:
    """Two rows of two jobs that share nothing."""
    A = SparseRows(np.ones(2), np.arange(2), np.arange(3), (2, 2))
    assert Arrow.of(A, np.arange(2), 2).common.tolist() == [0, 1]


def test_a_block_that_is_too_large_is_split() -> None:
    """A chain of 100 rows, of which neighbours share a job, has no blocks by itself."""
    index = np.stack([np.arange(99), np.arange(1, 100)], axis=1).ravel()
    A = SparseRows(np.ones(198), index, np.arange(0, 199, 2), (99, 100))
    form = Arrow.of(A, np.arange(99), 99)
    assert len(form.place) <= LARGEST
    rows = np.sort(np.append(form.common, form.place[form.place < 100]))
    assert (rows == np.arange(100)).all()
    for job in range(99):
        blocks = {q for q in range(form.place.shape[1]) for r in (job, job + 1)
                  if r in form.place[:, q]}  # fmt: skip
        assert len(blocks) <= 1


@pytest.mark.parametrize(
    ("tenants", "each", "shared"), [(40, 3, 4), (120, 1, 2), (2, 30, 3), (1, 2, 1), (30, 2, 60)]
)
def test_sums_products_and_steps_are_dense_ones(tenants: int, each: int, shared: int) -> None:
    """Sums over columns and jobs, a product, the solution of some rows, and a step in a box."""
    random = np.random.default_rng(tenants)
    A, group = columns_of_tenants(random, tenants, each, shared)
    J, R = 5 * tenants, A.shape[1]
    x = random.random(len(group))
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


@pytest.mark.parametrize("R", [4, 60])
def test_rows_without_curvature_do_not_move(R: int) -> None:
    """Half of the rows have no jobs, or the same jobs as another one; the equations are solved."""
    group = np.repeat(np.arange(R), 2)
    index = np.repeat(np.arange(R) // 4 * 2, 2)
    A = SparseRows(np.tile([1.0, 2.0], R), index, np.arange(2 * R + 1), (2 * R, R))
    H = ArrowSums(A, group, R).spread(np.full(2 * R, 0.5))
    rhs = H @ np.random.default_rng(1).normal(size=R)
    d = H.solve(rhs, np.ones(R, dtype=bool))
    assert np.isfinite(d).all()
    assert H @ d == pytest.approx(rhs)


def test_the_second_derivative_is_the_change_of_the_gradient() -> None:
    """At warm prices of 40 tenants, by differences of gradients."""
    random = np.random.default_rng(0)
    A, group = columns_of_tenants(random, 40, 2, 3)
    R = A.shape[1]
    s = Smooth(random.random(len(group)), A, np.bincount(group), np.ones(200, bool), np.ones(R))
    p, little = random.random(R), 1e-5
    H = dense(s.hessian(s.at(p, 0.3)), R)
    for r in range(0, R, 7):
        line = little * np.eye(R)[r]
        change = s.at(p + line, 0.3).g - s.at(p - line, 0.3).g
        assert change / (2 * little) == pytest.approx(H[r], abs=1e-5)
