"""Second derivatives: sums over columns and jobs, and steps in a box, against plain matrices."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.bounds import curvature
from formulations.bounds.curvature import Curvature, solve_free
from formulations.bounds.smoothing import box_step
from formulations.model.sparse_rows import SparseRows


@pytest.mark.parametrize("dense", [0, 300])
@pytest.mark.parametrize(("tenants", "each", "shared"), [(40, 3, 4), (2, 30, 3), (1, 0, 1)])
def test_sums_and_steps(
    tenants: int, each: int, shared: int, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five jobs of a tenant with four columns each, which use a shared row and some of the tenant:
    the sums, the solution of some rows, and a step in a box that no other one improves."""
    monkeypatch.setattr(curvature, "DENSE", dense)
    random = np.random.default_rng(tenants)
    J, R = 5 * tenants, tenants * each + shared
    group = np.repeat(np.arange(J), 4)
    a = np.zeros((len(group), R))
    for c, job in enumerate(group):
        own = np.arange(each) + job // 5 * each
        a[c, own[random.random(each) < 0.6]] = random.normal()
        a[c, tenants * each + random.integers(shared)] = random.normal()
    start = np.append(0, np.cumsum((a != 0).sum(axis=1)))
    x = random.random(len(group))
    H = Curvature(SparseRows(a[a != 0], np.nonzero(a)[1], start, a.shape), group, J).spread(x)
    E = np.zeros((J, R))
    np.add.at(E, group, x[:, None] * a)
    assert pytest.approx(a.T @ (x[:, None] * a) - E.T @ E) == H

    H = H + np.diag(2.0 * np.abs(H).sum(axis=1) + 1.0)  # the matrix is definite
    free, rhs = random.random(R) < 0.7, random.normal(size=R)
    d = solve_free(H, rhs, free)
    assert (H @ d)[free] == pytest.approx(rhs[free]) and not d[~free].any()
    low, high = np.full(R, -0.02), np.full(R, 0.5)
    step = box_step(100 * rhs, H, low, high)
    assert ((low <= step) & (step <= high)).all()
    slope = 100 * rhs + H @ step
    assert (slope[step > low] < 1e-6).all() and (slope[step < high] > -1e-6).all()
