"""Newton steps over many rows: the sparse factorisation finds the step of the dense one."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.bounds import smoothing

TENANTS, EACH, SHARED = 120, 3, 4


def curvature(random: np.random.Generator) -> np.ndarray:
    """Return a Hessian of rows of tenants, which meet only in the shared rows."""
    rows = TENANTS * EACH + SHARED
    H = np.zeros((rows, rows))
    for tenant in range(TENANTS):
        own = np.r_[tenant * EACH : (tenant + 1) * EACH, TENANTS * EACH : rows]
        jobs = random.random((len(own), 8))
        H[np.ix_(own, own)] += jobs @ jobs.T
    return H


@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_step_is_the_dense_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step within a box, of 364 rows of which 4 are shared by all tenants."""
    random = np.random.default_rng(seed)
    H = curvature(random) + 1e-6 * np.eye(TENANTS * EACH + SHARED)
    g = random.normal(size=len(H))
    low, high = np.full(len(H), -0.5), np.full(len(H), 2.0)
    assert len(H) > smoothing.SPARSE_ROWS
    assert np.count_nonzero(H) < smoothing.SPARSE_SHARE * H.size
    sparse = smoothing.box_step(g, H, low, high)
    monkeypatch.setattr(smoothing, "SPARSE_ROWS", len(H))
    dense = smoothing.box_step(g, H, low, high)
    assert ((low <= sparse) & (sparse <= high)).all()
    assert g @ sparse + sparse @ H @ sparse / 2 == pytest.approx(g @ dense + dense @ H @ dense / 2)


def test_a_singular_curvature_still_gives_a_step() -> None:
    """Rows without any job have no curvature; the step of the others solves their equations."""
    H = curvature(np.random.default_rng(0))
    H[:EACH] = 0.0
    H[:, :EACH] = 0.0
    rhs = H @ np.random.default_rng(1).normal(size=len(H))
    assert H @ smoothing._solve(H, rhs) == pytest.approx(rhs)
